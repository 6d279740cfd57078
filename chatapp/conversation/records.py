"""The token records of replies: ``<id>.tokens.jsonl``, one line a message. Losing it loses the heat, not the words."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from chatapp.conversation.appendlog import AppendLog
from chatapp.conversation.events import encode_any
from chatapp.conversation.files import FILES, Files
from chatapp.tokens import Token

#: Token id of text that a person typed into a reply: it was not sampled, and all its numbers are 0.
TYPED = -1

SUFFIX = ".tokens.jsonl"


class Record(msgspec.Struct, frozen=True):
    """One line: the tokens of one message, in order."""

    id: str
    tokens: tuple[Token, ...]


class _Named(msgspec.Struct):
    id: str


class Records:
    """Token records of one conversation, read when asked for.

    Attributes:
        log: The file; its ``trouble`` says if lines wait in memory.
        notices: Damage found, as sentences.
    """

    def __init__(self, path: Path, *, files: Files = FILES, writable: bool = True) -> None:
        self.log = AppendLog(path, files=files, writable=writable)
        self.notices: list[str] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._held: dict[str, tuple[Token, ...]] = {}

    def load(self) -> None:
        """Finds where each message's line is. A missing or unreadable file has none."""
        try:
            data = self.log.load()
        except FileNotFoundError:
            return
        except OSError as error:
            self.notices.append(f"The token records cannot be read ({error.strerror or error}); the heat is missing.")
            return
        self._index(data, 0)

    def _index(self, data: bytes, offset: int) -> None:
        bad = 0
        for line in data.splitlines(keepends=True):
            try:
                id = msgspec.json.decode(line, type=_Named).id
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                bad += 1
            else:
                self._places[id] = (offset, len(line))
            offset += len(line)
        if bad:
            self.notices.append(f"{bad} damaged token record(s) were skipped; the heat of those replies is missing.")

    def append(self, id: str, tokens: Sequence[Token]) -> None:
        """Writes the records of a message."""
        line = encode_any(Record(id, tuple(tokens)))
        if b":null" in line:  # how JSON has infinities, which could not be read back
            line = encode_any(Record(id, tuple(_finite(token) for token in tokens)))
        self.log.append([line])
        if self.log.trouble:
            self._held[id] = tuple(tokens)
            return
        self._places[id] = (self.log.size - len(line) - 1, len(line) + 1)

    def put_back(self, lines: Sequence[bytes]) -> None:
        """Takes in lines that an earlier session could not write."""
        for line in lines:
            try:
                record = msgspec.json.decode(line, type=Record)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._held[record.id] = record.tokens
        if lines and self.log.writable:
            self.log.append(lines)

    def get(self, id: str) -> list[Token]:
        """The records of a message; empty if there are none or they are damaged."""
        if id in self._held:
            return list(self._held[id])
        if id not in self._places:
            return []
        offset, size = self._places[id]
        try:
            return list(msgspec.json.decode(self.log.read(offset, size), type=Record).tokens)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return []

    def poll(self) -> None:
        """Takes in what another process has written since."""
        start = self.log.size
        data, replaced = self.log.poll()
        if replaced:
            self._places.clear()
            start = 0
        self._index(data, start)

    def close(self) -> None:
        self.log.close()


def _finite(token: Token) -> Token:
    """Puts the largest float for an infinite number and 0 for none at all; leaves impossible alternatives out."""
    largest = sys.float_info.max
    numbers = {
        name: 0.0 if math.isnan(value := getattr(token, name)) else min(max(value, -largest), largest)
        for name in ("entropy", "varentropy", "surprisal", "sampled_entropy")
    }
    top = tuple(other for other in token.top if math.isfinite(other.logprob))
    return msgspec.structs.replace(token, **numbers, top=top)


def fit(tokens: Sequence[Token], content: str) -> list[Token]:
    """Makes records agree with a text: the sampled tokens that it begins with, then one typed token for the rest.

    Returns:
        Records whose texts joined are ``content``; empty if no token agrees.
    """
    kept: list[Token] = []
    length = 0
    for token in tokens:
        if not content.startswith(token.text, length):
            while kept and not kept[-1].text:  # parts of a code point that ends in the token left out
                kept.pop()
            break
        kept.append(token)
        length += len(token.text)
    if length == 0:
        return []
    return kept if length == len(content) else [*kept, typed(content[length:], len(kept))]


def typed(text: str, index: int) -> Token:
    """The record of text that a person wrote into a reply."""
    return Token(index, TYPED, text, 0.0, 0.0, 0.0, 0.0)


def joined(first: Sequence[Token], second: Sequence[Token]) -> list[Token]:
    """One reply's records after another's, numbered through."""
    return [msgspec.structs.replace(token, index=i) for i, token in enumerate([*first, *second])]


def doubt(tokens: Sequence[Token]) -> tuple[float | None, float | None]:
    """Mean and highest entropy of the sampled tokens, in nats; None where there are none."""
    entropies = [token.entropy for token in tokens if token.id != TYPED]
    if not entropies:
        return None, None
    return sum(entropies) / len(entropies), max(entropies)
