"""The decode loop: one step in flight, one host synchronisation and one record for each token."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine.attention import Probe
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.records import Limits, Outcome, Recorder
from chatapp.engine.decode.step import Reading, Step
from chatapp.engine.decode.text import TokenTexts
from chatapp.engine.samplers.base import EntropySampler
from chatapp.tokens import Token

Config = TypeVar("Config")
State = TypeVar("State")

#: Every so many tokens the buffers that MLX keeps for reuse are given back, as mlx-lm does.
CLEAR_EVERY = 256


class DecodeCache(Protocol):
    """What the loop needs of a `chatapp.engine.cache.SessionCache`."""

    @property
    def tokens(self) -> Sequence[int]:
        """Ids inside the cache, in order; their number is the cache's offset."""
        ...

    @property
    def layers(self) -> list[Any]:
        """What the model's call takes as ``cache``."""
        ...

    def read(self, ids: Sequence[int]) -> None:
        """Appends ids that the model was run on to the record."""
        ...

    def reset(self) -> None:
        """Empties the cache."""
        ...


def check_beginning(cache: DecodeCache, prompt: Sequence[int]) -> None:
    """Checks that something of a prompt is left to read.

    Raises:
        ValueError: The cache does not hold a proper beginning of the prompt.
    """
    known = len(cache.tokens)
    if known >= len(prompt) or list(cache.tokens) != list(prompt[:known]):
        raise ValueError("the cache does not hold a proper beginning of the prompt")


@contextmanager
def emptied_on_error(cache: DecodeCache) -> Generator[None]:
    """Empties the cache if decoding fails, when some layers may have read a token and some not.

    A consumer that closes a decode loop does so at a yield, where record and cache agree.
    """
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        cache.reset()
        raise


@dataclass(kw_only=True)
class TokenGenerator(Generic[Config, State]):
    """Decodes one reply.

    The cache's record equals its offset whenever the consumer has control and after the end, however it came about
    (stop, length, pause, cancel, closing the iterator); after an error the cache is empty.

    Attributes:
        model: An mlx-lm model.
        cache: Holds the prompt but for its last ids, at least one.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        sampler, config: How tokens are drawn.
        seed: Of the generation; the same seed, config and ids give the same reply.
        limits: When it ends.
        probe: Watches attention: for a sampler that wants scores, and for the records if ``attention`` is on.
        attention: Report attention statistics in the records.
        reply: Ids of the same reply that were there before, when it is continued; they are the prompt's last ids.
        cancelled: Asked between two tokens.
        same: Makes the ranks of a distributed engine agree on drawn ids.
        outcome: How it ended.
    """

    model: Any
    cache: DecodeCache
    tokenizer: Any
    sampler: EntropySampler[Config, State]
    config: Config
    seed: int
    limits: Limits = field(default_factory=Limits)
    probe: Probe | None = None
    attention: bool = False
    reply: Sequence[int] = ()
    cancelled: Callable[[], bool] = lambda: False
    same: Callable[[mx.array], mx.array] = lambda ids: ids
    outcome: Outcome = field(default_factory=Outcome)

    def generate(self, prompt: Sequence[int]) -> Iterator[Token]:
        """Yields a record for each token of the reply.

        Args:
            prompt: All ids of the prompt; the cache holds the first of them, and the rest is read in one go.

        Raises:
            ValueError: The cache does not hold a proper beginning of the prompt.
        """
        check_beginning(self.cache, prompt)
        recorder = Recorder(
            limits=self.limits,
            states=self.sampler.states,
            texts=TokenTexts(self.tokenizer),
            tokenizer=self.tokenizer,
            before=self.reply,
            outcome=self.outcome,
        )
        if self.limits.nothing:
            recorder.end("length")
            return
        with emptied_on_error(self.cache):
            for reading in self._readings(prompt):
                yield from recorder.take(reading, lambda: self.cache.tokens)
                if recorder.ended:
                    return
            yield from recorder.end("cancelled")

    def _readings(self, prompt: Sequence[int]) -> Iterator[Reading]:
        """Drawn tokens, the next step already running while one is looked at; ends only when it is cancelled."""
        # A step ahead feeds its token before the host knows it; where the reply may stop before a token, that must
        # not happen: a rotated cache could not be trimmed.
        ahead = self.limits.pause_above is None
        rest = prompt[len(self.cache.tokens) :]
        lookback = self.sampler.lookback(self.config)
        history = mx.array(list(prompt[-lookback:] if lookback else ()), mx.uint32)[None]
        state = self.sampler.start(self.config, (self.seed,), len(self.reply))
        current, state = self._launch(mx.array(list(rest), mx.uint32)[None], history, state)
        self.cache.read(rest)
        count = 0
        while True:
            count += 1
            following: Step | None = None
            if ahead and not self.limits.last(count):
                history = steps.extend(history, current.token, lookback)
                following, state = self._launch(current.token[:, None], history, state, current)
            reading = steps.read(current, self.probe if self.attention else None)[0]
            if following is not None:
                self.cache.read([reading.id])
            yield reading
            if self.cancelled():
                return
            if following is None:
                history = steps.extend(history, current.token, lookback)
                following, state = self._launch(current.token[:, None], history, state)
                self.cache.read([reading.id])
            current = following
            if count % CLEAR_EVERY == 0:
                mx.clear_cache()

    def _launch(self, ids: mx.array, history: mx.array, state: State, before: Step | None = None) -> tuple[Step, State]:
        """Starts a step that reads ``ids``, shape ``(1, n)``, without waiting for it or for the step before it."""
        wants_scores = self.sampler.wants_scores(self.config)
        seen = steps.look(self.model, ids, self.cache.layers, self.probe, wants_scores, self.attention)
        step, state = steps.sample(
            seen.logits, seen.scores, history, self.sampler, self.config, state, self.limits.alternatives
        )
        step = steps.agree([step._replace(attention=seen.attention)], self.same, self.limits.pause_above is not None)[0]
        steps.launch(step, before)
        return step, state
