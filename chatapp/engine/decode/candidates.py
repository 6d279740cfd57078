"""Several replies to one prompt, decoded as one batch from one shared prefix.

The prompt is read once; its cache is then multiplied, and each step feeds one token to every reply. All replies are
equally long while they last, so nothing is padded. A reply that ends leaves the batch, its cache set aside as it is
then; `CandidateGenerator.choose` makes it the conversation's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine.attention import Probe
from chatapp.engine.cache import layers as kv
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.generator import DecodeCache, check_beginning, emptied_on_error
from chatapp.engine.decode.records import Limits, Outcome, Recorder
from chatapp.engine.decode.step import Look, Reading, Step
from chatapp.engine.decode.text import TokenTexts
from chatapp.engine.samplers.base import EntropySampler
from chatapp.tokens import Token

Config = TypeVar("Config")
State = TypeVar("State")


class CandidateCache(DecodeCache, Protocol):
    """What choosing a candidate needs of a `chatapp.engine.cache.SessionCache`."""

    def adopt(self, layers: Sequence[Any], ids: Sequence[int]) -> None:
        """Takes over layers that began as this cache's and read ``ids`` since."""
        ...


@dataclass(kw_only=True)
class CandidateGenerator(Generic[Config, State]):
    """Decodes one reply for each seed.

    Each reply is the one that `TokenGenerator` gives for its seed, with its own numbers and its own end. The
    conversation's cache holds just the prompt, until one of the replies is chosen; after an error it is empty.

    Attributes:
        model: An mlx-lm model.
        cache: Holds the prompt but for its last ids, at least one.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        sampler, config: How tokens are drawn.
        seeds: One for each reply.
        limits: When each reply ends.
        probe, attention: As for `TokenGenerator`.
        reply: Ids of the same reply that were there before, when it is continued; they are the prompt's last ids.
        cancelled: Asked between two steps; ends all replies.
        same: Makes the ranks of a distributed engine agree on drawn ids.
    """

    model: Any
    cache: CandidateCache
    tokenizer: Any
    sampler: EntropySampler[Config, State]
    config: Config
    seeds: tuple[int, ...]
    limits: Limits = field(default_factory=Limits)
    probe: Probe | None = None
    attention: bool = False
    reply: Sequence[int] = ()
    cancelled: Callable[[], bool] = lambda: False
    same: Callable[[mx.array], mx.array] = lambda ids: ids

    def __post_init__(self) -> None:
        texts = TokenTexts(self.tokenizer)
        self._candidates = [
            _Candidate(
                Recorder(
                    limits=self.limits,
                    states=self.sampler.states,
                    texts=texts,
                    tokenizer=self.tokenizer,
                    before=self.reply,
                )
            )
            for _ in self.seeds
        ]

    @property
    def outcomes(self) -> list[Outcome]:
        """How each reply ended, or stands."""
        return [candidate.recorder.outcome for candidate in self._candidates]

    def generate(self, prompt: Sequence[int]) -> Iterator[tuple[int, Token]]:
        """Yields the number of a reply and its next record, the replies taking turns.

        Args:
            prompt: All ids of the prompt; the cache holds the first of them, and the rest is read in one go.

        Raises:
            ValueError: The cache does not hold a proper beginning of the prompt.
        """
        check_beginning(self.cache, prompt)
        if self.limits.nothing:
            for candidate in self._candidates:
                candidate.recorder.end("length")
            return
        with emptied_on_error(self.cache):
            yield from self._decode(prompt)

    def choose(self, row: int) -> None:
        """Makes a reply's cache the conversation's cache, once, after the generation ended.

        It then holds the prompt and what the model has read of the reply. The other replies' caches are dropped.

        Raises:
            ValueError: The reply has no cache: nothing was decoded, or a reply was chosen before.
        """
        chosen = self._candidates[row]
        if chosen.layers is None:
            raise ValueError(f"candidate {row} has no cache to go on with")
        self.cache.adopt(chosen.layers, chosen.read)
        for candidate in self._candidates:
            candidate.layers = None

    def _decode(self, prompt: Sequence[int]) -> Iterator[tuple[int, Token]]:
        # A step ahead feeds tokens before the host knows them; see `TokenGenerator`.
        ahead = self.limits.pause_above is None
        batch = _Batch(self, prompt)
        current = batch.first(prompt)
        count = 0
        try:
            while batch.live:
                count += 1
                following = batch.feed(current) if ahead and not self.limits.last(count) else None
                readings = steps.read(current, self.probe if self.attention else None)
                if following is not None:
                    self._note(batch.live, readings)
                for row in batch.live:
                    for token in self._take(row, readings[row], prompt):
                        yield row, token
                self._set_aside(batch, [row for row in batch.live if self._candidates[row].recorder.ended])
                if not batch.live:
                    return
                if self.cancelled():
                    break
                if following is None:
                    following = batch.feed(current)
                    self._note(batch.live, readings)
                current = following
            for row in batch.live:
                for token in self._candidates[row].recorder.end("cancelled"):
                    yield row, token
        finally:
            for row in batch.live:
                self._candidates[row].layers = batch.cache_of(row)

    def _take(self, row: int, reading: Reading, prompt: Sequence[int]) -> list[Token]:
        candidate = self._candidates[row]
        return candidate.recorder.take(reading, lambda: [*prompt, *candidate.read])

    def _note(self, rows: Sequence[int], readings: list[Reading]) -> None:
        """Records that the model was fed these rows' tokens."""
        for row in rows:
            self._candidates[row].read.append(readings[row].id)

    def _set_aside(self, batch: _Batch[Config, State], rows: Sequence[int]) -> None:
        if not rows:
            return
        for row in rows:
            layers = batch.cache_of(row)
            mx.eval(kv.arrays(layers))  # else they would hold on to the buffers of the whole batch
            self._candidates[row].layers = layers
        batch.drop(rows)


@dataclass
class _Candidate:
    """One reply and its cache.

    Attributes:
        recorder: Its records and its end.
        read: Ids behind the prompt that the model has read.
        layers: After its end, the cache over the prompt and ``read``.
    """

    recorder: Recorder
    read: list[int] = field(default_factory=list[int])
    layers: list[Any] | None = None


class _Batch(Generic[Config, State]):
    """The replies that are still growing, as rows of one cache.

    The sampler always sees a row for every reply, ended ones with another's logits, so that its state, which only it
    understands, never has to be cut.

    Attributes:
        live: Numbers of the replies that grow, in the order of the cache's rows.
    """

    def __init__(self, owner: CandidateGenerator[Config, State], prompt: Sequence[int]) -> None:
        self.live = list(range(len(owner.seeds)))
        self._owner = owner
        self._layers: list[Any] = []
        self._lookback = owner.sampler.lookback(owner.config)
        recent = list(prompt[-self._lookback :] if self._lookback else ())
        self._history = mx.array([recent] * len(owner.seeds), mx.uint32)
        self._state = owner.sampler.start(owner.config, owner.seeds, len(owner.reply))

    def first(self, prompt: Sequence[int]) -> Step:
        """Reads the rest of the prompt once, multiplies its cache and starts the first draw of each reply."""
        owner = self._owner
        rest = prompt[len(owner.cache.tokens) :]
        look = self._run(mx.array(list(rest), mx.uint32)[None], owner.cache.layers)
        owner.cache.read(rest)
        self._layers = kv.expand(owner.cache.layers, len(self.live))
        return self._draw(look.rows([0] * len(self.live)))

    def feed(self, drawn: Step) -> Step:
        """Feeds each growing reply its drawn token and starts the next draw."""
        token = drawn.token
        self._history = steps.extend(self._history, token, self._lookback)
        if len(self.live) == len(token):
            return self._draw(self._run(token[:, None], self._layers), drawn)
        look = self._run(token[mx.array(self.live)][:, None], self._layers)
        places = [self.live.index(row) if row in self.live else 0 for row in range(len(token))]
        return self._draw(look.rows(places), drawn)

    def cache_of(self, row: int) -> list[Any]:
        """The cache of one growing reply."""
        return kv.select(self._layers, self.live.index(row))

    def drop(self, rows: Sequence[int]) -> None:
        """Takes replies that ended out of the batch."""
        left = [row for row in self.live if row not in rows]
        if left:
            self._layers = kv.select(self._layers, [self.live.index(row) for row in left])
        self.live = left

    def _run(self, ids: mx.array, layers: list[Any]) -> Look:
        """Has the model read ids, shape ``(rows, n)``."""
        owner = self._owner
        wants_scores = owner.sampler.wants_scores(owner.config)
        return steps.look(owner.model, ids, layers, owner.probe, wants_scores, owner.attention)

    def _draw(self, look: Look, before: Step | None = None) -> Step:
        owner = self._owner
        step, self._state = steps.sample(
            look.logits, look.scores, self._history, owner.sampler, owner.config, self._state, owner.limits.alternatives
        )
        pausing = owner.limits.pause_above is not None
        step = steps.agree([step._replace(attention=look.attention)], owner.same, pausing)[0]
        steps.launch(step, before)
        return step
