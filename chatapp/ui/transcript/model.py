"""What the transcript shows: messages, their text, and which token wrote which character."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from chatapp.protocol import Role
from chatapp.tokens import Finish, Token


@runtime_checkable
class Rereadable(Protocol):
    """Tokens that are read when they are looked at, and can be read again."""

    def forget(self) -> None:
        """Gives back what was read."""


@dataclass(frozen=True, slots=True)
class MessageView:
    """One message as the transcript needs it.

    Attributes:
        id: Unique among the messages shown.
        role: Who speaks.
        content: The source text (Markdown). It may differ from the tokens' text where a person edited it.
        tokens: What is known about the sampled tokens; empty where nothing is. They may cover only the end of the
            content (an edited reply that was continued).
        model: Name of the model that wrote a reply.
        finish: Why the reply ended; None while it runs and for messages of people.
        alternative: Which of the siblings this is, from 1.
        alternatives: How many siblings there are, itself included.
        streaming: Tokens still arrive by `Transcript.append_tokens`.
        note: A few words to show in the message's header line ("edited", "saved without its end", …).
    """

    id: str
    role: Role
    content: str
    tokens: Sequence[Token] = ()
    model: str = ""
    finish: Finish | None = None
    alternative: int = 1
    alternatives: int = 1
    streaming: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """What the model still sees of the messages shown.

    Attributes:
        live_from: Message id and offset in its content of the first character that is live again after the evicted
            ones; None if nothing was evicted.
        kept: Ids of messages before it that are kept whole all the same (the system message).
    """

    live_from: tuple[str, int] | None = None
    kept: frozenset[str] = frozenset()


class TokenMap:
    """Which token wrote which character of a message, and back. Grows at its end only.

    A token with empty text (a code point split over several tokens, an end-of-turn token) has no character of its
    own: it belongs to the first character of the next token with text.
    """

    def __init__(self, content: str, tokens: Iterable[Token]) -> None:
        self.tokens = list(tokens)
        text = "".join(token.text for token in self.tokens)
        self.offset = _align(content, text)
        if self.offset < 0:
            self.tokens = []
            self.offset = len(content)
        self._starts: list[int] = []
        self._owners: list[int] = []
        self._end = self.offset
        for index, token in enumerate(self.tokens):
            self._place(index, token)

    def append(self, tokens: Iterable[Token]) -> None:
        """Adds tokens whose text was appended to the content."""
        for token in tokens:
            self.tokens.append(token)
            self._place(len(self.tokens) - 1, token)

    def _place(self, index: int, token: Token) -> None:
        if token.text:
            self._starts.append(self._end)
            self._owners.append(index)
            self._end += len(token.text)

    def token_at(self, char: int) -> int | None:
        """Index of the token that wrote the character at this offset; None if no token did."""
        if not self.offset <= char < self._end:
            return None
        return self._owners[bisect_right(self._starts, char) - 1]

    def span(self, index: int) -> tuple[int, int]:
        """Characters ``[start, end)`` of a token; for one without text those of the token that completes it.

        A token without text at the end of the reply gets the empty span at the end.
        """
        place = bisect_right(self._owners, index - 1)
        if place == len(self._owners):
            return self._end, self._end
        start = self._starts[place]
        return start, start + len(self.tokens[self._owners[place]].text)

    def group(self, index: int) -> range:
        """Indices of the tokens that completed the text of token ``index``: itself and the empty ones before it."""
        place = bisect_right(self._owners, index - 1)
        before = self._owners[place - 1] if place > 0 else -1
        last = self._owners[place] if place < len(self._owners) else len(self.tokens) - 1
        return range(before + 1, last + 1)

    def spans_between(self, start: int, end: int) -> Iterable[tuple[int, int, int]]:
        """``(token, first char, end char)`` of the tokens that wrote characters of ``[start, end)``, in order."""
        place = max(0, bisect_right(self._starts, start) - 1)
        while place < len(self._starts) and self._starts[place] < end:
            index = self._owners[place]
            first = self._starts[place]
            last = first + len(self.tokens[index].text)
            if last > start:
                yield index, first, last
            place += 1


def _align(content: str, text: str) -> int:
    """Where the tokens' text begins in the content, -1 if it is not there."""
    if content.startswith(text):
        return 0
    if content.endswith(text):
        return len(content) - len(text)
    # A stop string cut from the content leaves the tokens a little longer than it.
    return 0 if text.startswith(content) else -1
