"""From drawn tokens to the records of one reply, for every decode loop: its text, its stop strings, its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatapp.engine.decode import step as steps
from chatapp.engine.decode.step import Reading
from chatapp.engine.decode.text import Detokenizer, StopStrings, TokenTexts
from chatapp.tokens import Finish, Token


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

    @property
    def nothing(self) -> bool:
        """Not even one token may be drawn."""
        return self.max_tokens is not None and self.max_tokens <= 0

    def last(self, count: int) -> bool:
        """Whether no token may follow the one that is number ``count``, from 1."""
        return self.max_tokens is not None and count >= self.max_tokens

    def pauses(self, reading: Reading) -> bool:
        """Whether the reply stops before this token, so that the person decides."""
        return self.pause_above is not None and reading.entropy > self.pause_above


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
    """

    finish: Finish = "cancelled"
    tokens: int = 0
    text: str = ""
    sum_entropy: float = 0.0
    seconds: float = 0.0
    pending: Token | None = None

    @property
    def mean_entropy(self) -> float:
        """Mean raw entropy of the records, in nats; 0 for an empty reply."""
        return self.sum_entropy / self.tokens if self.tokens else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Rate of decoding, the wait for the first token (reading the prompt) left out; 0 for a single token."""
        return (self.tokens - 1) / self.seconds if self.tokens > 1 and self.seconds > 0 else 0.0


@dataclass(kw_only=True)
class Recorder:
    """Takes a reply's drawn tokens one by one and gives out the records that they complete.

    Attributes:
        limits: When it ends.
        states: Names of the sampler's states.
        texts: Texts of single ids.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        before: Ids of the same reply that were there before, when it is continued.
        outcome: How it ended, or stands.
        ended: No more tokens are to be taken.
    """

    limits: Limits
    states: tuple[str, ...]
    texts: TokenTexts
    tokenizer: Any
    before: Sequence[int] = ()
    outcome: Outcome = field(default_factory=Outcome)
    ended: bool = False

    def __post_init__(self) -> None:
        self._detokenizer = Detokenizer(self.tokenizer, self.before)
        self._stops = StopStrings(self.limits.stop)
        self._count = 0
        self._began = 0.0

    def take(self, reading: Reading, sequence: Callable[[], Sequence[int]]) -> list[Token]:
        """Takes the next drawn token; ends the reply where it has to.

        Args:
            reading: The token and its numbers.
            sequence: Gives the ids that attended positions refer to; asked only where attention was read.
        """
        self._began = self._began or time.perf_counter()
        self.outcome.seconds = time.perf_counter() - self._began
        if reading.id in self.limits.stop_ids:
            return self.end("stop")
        if self.limits.pauses(reading):
            self.outcome.pending = self._record(reading, self.texts[reading.id], sequence)
            return self.end("paused")
        found = self._stops.push(self._record(reading, self._detokenizer.add(reading.id), sequence))
        self._count += 1
        given = self._given(found)
        if self._stops.found:
            return given + self.end("stop")
        return given + self.end("length") if self.limits.last(self._count) else given

    def end(self, finish: Finish) -> list[Token]:
        """Ends the reply, once; gives out the records that were held back for a stop string."""
        if self.ended:
            return []
        self.ended = True
        self.outcome.finish = finish
        return self._given(self._stops.flush())

    def _record(self, reading: Reading, text: str, sequence: Callable[[], Sequence[int]]) -> Token:
        index = len(self.before) + self._count
        ids = sequence() if reading.attention else ()
        return steps.record(reading, index, text, self.states, self.texts, ids)

    def _given(self, records: list[Token]) -> list[Token]:
        for token in records:
            self.outcome.tokens += 1
            self.outcome.text += token.text
            self.outcome.sum_entropy += token.entropy
        return records
