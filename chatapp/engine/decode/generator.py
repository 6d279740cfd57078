"""The decode loop: one step in flight, one host synchronisation and one record for each token."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine.attention import Probe
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.step import Reading, Step
from chatapp.engine.decode.text import Detokenizer, StopStrings, TokenTexts
from chatapp.engine.samplers.base import EntropySampler
from chatapp.tokens import Finish, Token

Config = TypeVar("Config")
State = TypeVar("State")

#: Every so many tokens the buffers that MLX keeps for reuse are given back, as mlx-lm does.
_CLEAR_EVERY = 256


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


@dataclass(frozen=True, kw_only=True)
class Limits:
    """When a reply ends, and what is recorded of it.

    Attributes:
        max_tokens: Longest reply in tokens; None for no limit.
        stop: Strings that end the reply; they are not part of it.
        stop_ids: End-of-turn ids; they are not part of the reply.
        pause_above: Stop before a token whose raw entropy is above this, in nats.
        alternatives: How many of the likeliest tokens each record has.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: frozenset[int] = frozenset()
    pause_above: float | None = None
    alternatives: int = 10


@dataclass
class Outcome:
    """How a reply ended; filled in while it grows.

    Attributes:
        finish: Why it ended.
        tokens: How many records were given out.
        text: Their texts joined.
        sum_entropy: Of their raw entropies, in nats.
        seconds: From the first token to the end.
        pending: For ``paused``, the token that was drawn but is not part of the reply.
        cut: A stop string began inside the last token: its record's text is shorter than what its id spells, so ids
            and text agree only without it.
    """

    finish: Finish = "cancelled"
    tokens: int = 0
    text: str = ""
    sum_entropy: float = 0.0
    seconds: float = 0.0
    pending: Token | None = None
    cut: bool = False

    @property
    def mean_entropy(self) -> float:
        """Mean raw entropy of the records, in nats; 0 for an empty reply."""
        return self.sum_entropy / self.tokens if self.tokens else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Rate of decoding, the wait for the first token (reading the prompt) left out; 0 for a single token."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else 0.0


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
    limits: Limits = Limits()
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
        known = len(self.cache.tokens)
        if known >= len(prompt) or list(self.cache.tokens) != list(prompt[:known]):
            raise ValueError("the cache does not hold a proper beginning of the prompt")
        try:
            for token in self._records(prompt):
                self.outcome.tokens += 1
                self.outcome.text += token.text
                self.outcome.sum_entropy += token.entropy
                yield token
        except GeneratorExit:
            raise  # the consumer stops at a yield, where record and cache agree
        except BaseException:
            self.cache.reset()
            raise

    def _records(self, prompt: Sequence[int]) -> Iterator[Token]:
        """Readings with their texts, stop strings cut."""
        detokenizer = Detokenizer(self.tokenizer, self.reply)
        texts = TokenTexts(self.tokenizer)
        stops = StopStrings(self.limits.stop)
        index = len(self.reply)
        for reading in self._readings(prompt):
            if self._pauses(reading):
                self._finish("paused")
                self.outcome.pending = self._record(reading, index, texts[reading.id], texts)
                break
            piece = detokenizer.add(reading.id)
            yield from stops.push(self._record(reading, index, piece, texts))
            if stops.found:
                self.outcome.cut = stops.cut
                self._finish("stop")
                return
            index += 1
        yield from stops.flush()

    def _readings(self, prompt: Sequence[int]) -> Iterator[Reading]:
        """Drawn tokens, the next step already running while one is looked at; ends after setting ``finish``."""
        limit = self.limits.max_tokens
        if limit is not None and limit <= 0:
            self._finish("length")
            return
        # A step ahead feeds its token before the host knows it; where the reply may stop before a token, that must
        # not happen: a rotated cache could not be trimmed.
        ahead = self.limits.pause_above is None
        rest = prompt[len(self.cache.tokens) :]
        lookback = self.sampler.lookback(self.config)
        history = mx.array(list(prompt[-lookback:] if lookback else ()), mx.uint32)[None]
        state = self.sampler.start(self.config, (self.seed,), len(self.reply))
        current, state = self._launch(mx.array(list(rest), mx.uint32)[None], history, state)
        self.cache.read(rest)
        began = 0.0
        count = 0
        while True:
            following: Step | None = None
            last = limit is not None and count + 1 >= limit
            if ahead and not last:
                history = steps.extend(history, current.token, lookback)
                following, state = self._launch(current.token[:, None], history, state)
            reading = steps.read(current)[0]
            if following is not None:
                self.cache.read([reading.id])
            count += 1
            began = began or time.perf_counter()
            self.outcome.seconds = time.perf_counter() - began
            if reading.id in self.limits.stop_ids:
                self._finish("stop")
                return
            yield reading
            if last:
                self._finish("length")
                return
            if self.cancelled():
                self._finish("cancelled")
                return
            if following is None:
                history = steps.extend(history, current.token, lookback)
                following, state = self._launch(current.token[:, None], history, state)
                self.cache.read([reading.id])
            current = following
            if count % _CLEAR_EVERY == 0:
                mx.clear_cache()

    def _launch(self, ids: mx.array, history: mx.array, state: State) -> tuple[Step, State]:
        """Starts a step that reads ``ids``, shape ``(1, n)``, without waiting for it."""
        with self.probe.watching() if self.probe else nullcontext():
            logits = self.model(ids, cache=self.cache.layers)[:, -1, :]
        scores = self.probe.scores() if self.probe and self.sampler.wants_scores(self.config) else None
        summary = self.probe.summary() if self.probe and self.attention else None
        step, state = steps.sample(logits, scores, history, self.sampler, self.config, state, self.limits.alternatives)
        step = steps.agree([step._replace(attention=summary)], self.same, self.limits.pause_above is not None)[0]
        mx.async_eval(step.arrays())
        return step, state

    def _record(self, reading: Reading, index: int, text: str, texts: TokenTexts) -> Token:
        return steps.record(reading, index, text, self.sampler.states, texts, self.cache.tokens)

    def _pauses(self, reading: Reading) -> bool:
        return self.limits.pause_above is not None and reading.entropy > self.limits.pause_above

    def _finish(self, finish: Finish) -> None:
        self.outcome.finish = finish
