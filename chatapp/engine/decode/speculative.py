"""Speculative decoding: guess some tokens cheaply, have the model check them all in one pass.

A guess is accepted where it is the very token that the plain loop would have drawn there, with the same random key.
So a reply is the same as without speculation for the same seed, at any temperature and with any sampler, and every
number in its records is the model's own (Leviathan et al. 2023, arXiv:2211.17192, accept with a probability instead:
more guesses pass, but a reply could not be drawn again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine.cache.ladder import common
from chatapp.engine.cache.saved import Mark
from chatapp.engine.cache.session import SessionCache
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.generator import DecodeCache, TokenGenerator
from chatapp.engine.decode.step import Reading, Step
from chatapp.engine.samplers.base import EntropySampler

Config = TypeVar("Config")
State = TypeVar("State")

#: The most tokens guessed at once: beyond, a pass on a CPU costs nearly as much more as the tokens are worth.
LONGEST_DRAFT = 16

#: Where a cache cannot go back, accepted tokens wait to be read again with the next guesses; from so many on they are
#: read by themselves first, so that a wrong guess does not cost them again.
_MOST_WAITING = 8


class Drafter(Protocol):
    """Guesses how a text goes on."""

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """Guesses.

        Args:
            ids: The whole text so far, prompt included.
            index: Place in the reply of the first guessed token.
            most: The most tokens to guess, at least 1.

        Returns:
            Up to ``most`` ids; none where there is nothing to go by.
        """
        ...


class SpeculativeCache(DecodeCache, Protocol):
    """What checking guesses needs of a `chatapp.engine.cache.SessionCache`."""

    def mark(self, ahead: int) -> Any:
        """Marks this place, to which `rollback` can return after at most ``ahead`` more tokens."""
        ...

    def rollback(self, place: Any, keep: int = 0) -> int:
        """Goes back to ``keep`` tokens behind a mark, or to the mark; returns which."""
        ...


@dataclass
class DraftLength:
    """How much to guess, from how the last guesses went.

    Twice as much after a guess that was right to its end, hardly more than what was right after another; after a
    guess of which nothing was right, a pause that doubles. So a text that cannot be guessed costs a few percent.
    No clock is looked at: ranks that decode together must agree.

    Attributes:
        length: Tokens to guess next.
        pause: Steps before the next guess.
    """

    length: int = 4
    pause: int = 0
    _misses: int = 0

    def next(self) -> int:
        """How many tokens to guess now; 0 in a pause."""
        if self.pause:
            self.pause -= 1
            return 0
        return self.length

    def learn(self, drafted: int, accepted: int) -> None:
        """Takes note of a guess."""
        if not drafted:
            return
        self._misses = 0 if accepted else self._misses + 1
        if not accepted:
            self.pause = min(2**self._misses, 32)
        grown = 2 * max(self.length, drafted) if accepted == drafted else accepted + 2
        self.length = max(2, min(grown, LONGEST_DRAFT))


@dataclass(kw_only=True)
class SpeculativeGenerator(TokenGenerator[Config, State]):
    """A `TokenGenerator` that checks guesses instead of drawing one token at a time.

    After the end the cache may hold a few accepted tokens behind a stop string or a cancel, and may lack the last
    tokens of the reply where it could not go back; its record says what it holds, as ever.

    Attributes:
        drafter: Guesses. It is not asked where attention is watched, because a probe sees just the last of the places.
        length: How much is guessed.
        drafted, accepted: Tokens guessed, and how many of them were right.
    """

    cache: SpeculativeCache  # pyright: ignore[reportIncompatibleVariableOverride] - a narrower one is asked for
    drafter: Drafter
    length: DraftLength = field(default_factory=DraftLength)
    drafted: int = 0
    accepted: int = 0

    def _readings(self, prompt: Sequence[int]) -> Iterator[Reading]:
        if self.attention or self.sampler.wants_scores(self.config):
            yield from super()._readings(prompt)
            return
        limit = self.limits.max_tokens
        ids = list(prompt)
        state = self.sampler.start(self.config, (self.seed,), len(self.reply))
        count = 0
        while True:
            room = None if limit is None else limit - count
            readings, state = self._block(ids, len(self.reply) + count, state, room)
            for reading in readings:
                count += 1
                ids.append(reading.id)
                yield reading
                if self.cancelled():
                    return

    def _block(self, ids: list[int], index: int, state: State, room: int | None) -> tuple[list[Reading], State]:
        """Guesses, has the model read what it has not read yet with the guesses, and draws up to the first miss.

        Args:
            ids: The text so far.
            index: Place in the reply of the next token.
            state: The sampler's, before the next token.
            room: How many tokens the reply may still get.

        Returns:
            The drawn tokens, at least one, and the sampler's state after them.
        """
        waiting = ids[len(self.cache.tokens) :]
        draft = self._draft(ids, index, len(waiting), room)
        place = self.cache.mark(len(waiting) + len(draft)) if draft else None
        block = [*waiting, *draft]
        logits = self.model(mx.array([block], mx.uint32), cache=self.cache.layers)[:, -len(draft) - 1 :, :]
        launched = self._draws(logits, ids, draft, state)
        # The draws alone first: the numbers of tokens behind a miss are never computed.
        drawn: list[int] = mx.concatenate([step.token for step, _ in launched]).tolist()  # pyright: ignore[reportAssignmentType]
        hits = common(drawn, draft)
        mx.eval([array for step, _ in launched[: hits + 1] for array in step.arrays()])
        readings = [steps.read(step)[0] for step, _ in launched[: hits + 1]]
        readings = readings[: self._end_of(readings)]
        self.cache.read(block)
        if place is not None and len(readings) <= len(draft):
            self.cache.rollback(place, len(waiting) + len(readings) - 1)
        self.length.learn(len(draft), hits)
        self.drafted += len(draft)
        self.accepted += hits
        return readings, launched[len(readings) - 1][1]

    def _draft(self, ids: list[int], index: int, waiting: int, room: int | None) -> list[int]:
        if waiting > _MOST_WAITING:
            return []
        most = self.length.next()
        if room is not None:
            most = min(most, room - 1)
        return self.drafter.propose(ids, index, most)[:most] if most > 0 else []

    def _draws(self, logits: mx.array, ids: list[int], draft: list[int], state: State) -> list[tuple[Step, State]]:
        """What the plain loop would draw at each place if the guesses before it are right; nothing is evaluated.

        Args:
            logits: Shape ``(1, len(draft) + 1, vocab)``.
            ids: The text so far.
            draft: The guesses.
            state: The sampler's, before the first draw.

        Returns:
            Each draw, with the sampler's state after it.
        """
        lookback = self.sampler.lookback(self.config)
        drawn: list[Step] = []
        states: list[State] = []
        for place in range(len(draft) + 1):
            text = [*ids[-lookback:], *draft[:place]][-lookback:] if lookback else []
            step, state = steps.sample(
                logits[:, place, :],
                None,
                mx.array([text], mx.uint32),
                self.sampler,
                self.config,
                state,
                self.limits.alternatives,
            )
            drawn.append(step)
            states.append(state)
        agreed = steps.agree(drawn, self.same, self.limits.pause_above is not None)
        return list(zip(agreed, states, strict=True))

    def _end_of(self, readings: list[Reading]) -> int:
        """How many readings count: up to an end of turn, or to a token before which the reply pauses."""
        for place, reading in enumerate(readings):
            if reading.id in self.limits.stop_ids or self.limits.pauses(reading):
                return place + 1
        return len(readings)


class ModelDrafter(Generic[Config, State]):
    """Drafts with a smaller model of the same vocabulary.

    It draws with the sampler and the random keys of the model that checks: where the two models' distributions are
    close, the same random numbers mostly lead to the same token.

    Args:
        model: An mlx-lm model.
        cache: Its own cache; kept from reply to reply, it need not read the conversation again.
        sampler, config, seed, same: Those of the generator that checks.
    """

    def __init__(
        self,
        model: Any,
        cache: SessionCache,
        sampler: EntropySampler[Config, State],
        config: Config,
        seed: int,
        same: Callable[[mx.array], mx.array] = lambda ids: ids,
    ) -> None:
        self._model = model
        self._cache = cache
        self._sampler = sampler
        self._config = config
        self._seed = seed
        self._same = same
        self._place: tuple[Mark, int] | None = None

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """See `Drafter.propose`."""
        self._rewind(ids)
        rest = ids[len(self._cache.tokens) :]
        for _ in self._cache.prefill(rest[:-1]):
            pass
        self._place = self._cache.mark(most)
        return self._draw(ids, index, most)

    def _rewind(self, ids: Sequence[int]) -> None:
        """Takes wrong guesses out of the cache, or brings it to another text."""
        cache = self._cache
        held = common(cache.tokens, ids[:-1])
        if held == len(cache.tokens):
            return
        if self._place is not None and held >= self._place[1]:
            cache.rollback(self._place, held - self._place[1])
        else:
            cache.prepare(ids, cache.keep)

    def _draw(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        lookback = self._sampler.lookback(self._config)
        history = mx.array([ids[-lookback:] if lookback else []], mx.uint32)
        state = self._sampler.start(self._config, (self._seed,), index)
        token = mx.array([ids[-1]], mx.uint32)
        drawn: list[mx.array] = []
        for _ in range(most):
            logits = self._model(token[:, None], cache=self._cache.layers)[:, -1, :]
            token, _, state = self._sampler(logits, None, history, self._config, state)
            history = steps.extend(history, token, lookback)
            drawn.append(token)
        guessed: list[int] = self._same(mx.concatenate(drawn)).tolist()  # pyright: ignore[reportAssignmentType]
        self._cache.read([ids[-1], *guessed[:-1]])
        return guessed
