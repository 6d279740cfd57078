"""Speculative decoding: guess some tokens cheaply, have the model check them all in one pass.

A guess is accepted where it is the very token that the plain loop would have drawn there, with the same random key.
So a reply is the same as without speculation for the same seed, at any temperature and with any sampler, and every
number in its records is the model's own (Leviathan et al. 2023, arXiv:2211.17192, accept with a probability instead:
more guesses pass, but a reply could not be drawn again).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine.cache.ladder import common
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.gain import LONGEST_DRAFT
from chatapp.engine.decode.generator import CLEAR_EVERY, DecodeCache, TokenGenerator
from chatapp.engine.decode.step import Reading, Step

Config = TypeVar("Config")
State = TypeVar("State")

#: Where a cache cannot go back, accepted tokens wait to be read again with the next guesses; from so many on they are
#: read by themselves first, so that a wrong guess does not cost them again.
_MOST_WAITING = 8


class Drafter(Protocol):
    """Guesses how a text goes on, where it expects that to pay."""

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """Guesses.

        Args:
            ids: The whole text so far, prompt included.
            index: Place in the reply of the first guessed token.
            most: The most tokens to guess, at least 1.

        Returns:
            Up to ``most`` ids; none where a guess is not expected to pay.
        """
        ...

    def resting(self, ids: Sequence[int], most: int) -> bool:
        """Whether there is nothing to guess behind the token after ``ids``, which is not known yet.

        The loop may then run a step ahead, as the plain one does.
        """
        ...

    def learn(self, drafted: int, accepted: int) -> None:
        """Takes note of how the last guess went."""
        ...


class SpeculativeCache(DecodeCache, Protocol):
    """What checking guesses needs of a `chatapp.engine.cache.SessionCache`."""

    def mark(self, ahead: int) -> Any:
        """Marks this place, to which `rollback` can return after at most ``ahead`` more tokens."""
        ...

    def rollback(self, place: Any, keep: int = 0) -> int:
        """Goes back to ``keep`` tokens behind a mark, or to the mark; returns which."""
        ...


@dataclass(kw_only=True)
class SpeculativeGenerator(TokenGenerator[Config, State]):
    """A `TokenGenerator` that checks guesses where there are any, and draws one token at a time where not.

    After the end the cache may hold a few accepted tokens behind a stop string or a cancel, and may lack the last
    tokens of the reply where it could not go back; its record says what it holds, as ever.

    Attributes:
        drafter: Guesses. It is not asked where attention is watched, because a probe sees just the last of the places.
        drafted, accepted: Tokens guessed, and how many of them were right.
        passes: How often the model was called for the reply.
    """

    cache: SpeculativeCache  # pyright: ignore[reportIncompatibleVariableOverride] - a narrower one is asked for
    drafter: Drafter
    drafted: int = 0
    accepted: int = 0
    passes: int = 0

    def _readings(self, prompt: Sequence[int]) -> Iterator[Reading]:
        if self.attention or self.sampler.wants_scores(self.config):
            yield from super()._readings(prompt)
            return
        ids = list(prompt)
        state = self.sampler.start(self.config, (self.seed,), len(self.reply))
        flight: Step | None = None  # a step that the model runs already, and the sampler's state after it
        while True:
            if flight is None and (draft := self._draft(ids, len(prompt))):
                readings, state = self._block(ids, draft, state)
            else:
                reading, flight, state = self._single(ids, flight, state, len(prompt))
                readings = [reading]
            for reading in readings:
                ids.append(reading.id)
                yield reading
                if self.cancelled():
                    return
                if (len(ids) - len(prompt)) % CLEAR_EVERY == 0:
                    mx.clear_cache()

    def _draft(self, ids: list[int], start: int) -> list[int]:
        """The guesses to check in the next pass, for a text whose reply began at ``start``."""
        most = self._room(ids, start) - 1
        if most < 1 or len(ids) - len(self.cache.tokens) > _MOST_WAITING:
            return []
        return self.drafter.propose(ids, len(self.reply) + len(ids) - start, most)[:most]

    def _room(self, ids: list[int], start: int) -> int:
        """How many tokens may be drawn in one pass."""
        limit = self.limits.max_tokens
        longest = LONGEST_DRAFT + 1
        return longest if limit is None else min(longest, start + limit - len(ids))

    def _single(
        self, ids: list[int], flight: Step | None, state: State, start: int
    ) -> tuple[Reading, Step | None, State]:
        """Draws one token; as in the plain loop, with the next step on its way where nothing is to be guessed.

        Args:
            ids: The text so far.
            flight: The step that draws the token, if it is on its way.
            state: The sampler's, after ``flight``, or before the step that is launched here.
            start: Where the reply began.

        Returns:
            The token, the step behind it if that is on its way, and the sampler's state after what was launched.
        """
        lookback = self.sampler.lookback(self.config)
        history = mx.array([ids[-lookback:] if lookback else []], mx.uint32)
        if flight is None:
            waiting = ids[len(self.cache.tokens) :]
            flight, state = self._launch(mx.array([waiting], mx.uint32), history, state)
            self.cache.read(waiting)
            self.passes += 1
        following: Step | None = None
        room = self._room(ids, start) - 1
        if self.limits.pause_above is None and room and self.drafter.resting(ids, room):
            history = steps.extend(history, flight.token, lookback)
            following, state = self._launch(flight.token[:, None], history, state, flight)
            self.passes += 1
        reading = steps.read(flight)[0]
        if following is not None:
            self.cache.read([reading.id])
        return reading, following, state

    def _block(self, ids: list[int], draft: list[int], state: State) -> tuple[list[Reading], State]:
        """Has the model read what it has not read yet with the guesses, and draws up to the first miss.

        Args:
            ids: The text so far.
            draft: The guesses, at least one.
            state: The sampler's, before the next token.

        Returns:
            The drawn tokens, at least one, and the sampler's state after them.
        """
        waiting = ids[len(self.cache.tokens) :]
        place = self.cache.mark(len(waiting) + len(draft))
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
        if len(readings) <= len(draft):
            self.cache.rollback(place, len(waiting) + len(readings) - 1)
        self.drafter.learn(len(draft), hits)
        self.drafted += len(draft)
        self.accepted += hits
        self.passes += 1
        return readings, launched[len(readings) - 1][1]

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
