"""The token records of replies: ``<id>.tokens.jsonl``. Losing it loses the heat, not the words.

A reply is one line, or several where it took longer than a second: each goes on from the one before.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from chatapp.conversation.appendlog import AppendLog
from chatapp.conversation.events import encode_any
from chatapp.conversation.files import FILES, Files
from chatapp.tokens import Token

#: Token id of text that a person typed into a reply: it was not sampled, and all its numbers are 0.
TYPED = -1

SUFFIX = ".tokens.jsonl"


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line: tokens of one message, in order.

    Attributes:
        id: Of the message.
        start: Place of the first of these tokens in the message. What earlier lines say from there on is replaced.
    """

    id: str
    start: int = msgspec.field(default=0, name="from")
    tokens: tuple[Token, ...]


class _Named(msgspec.Struct):
    id: str
    start: int = msgspec.field(default=0, name="from")


class _Sampled(msgspec.Struct, frozen=True, gc=False):
    """What of a token makes the prompt of a later turn."""

    id: int
    text: str


class _Prompted(msgspec.Struct, frozen=True):
    """A `Record` without what is only looked at: half the time to read."""

    id: str
    start: int = msgspec.field(default=0, name="from")
    tokens: tuple[_Sampled, ...] = ()


_Part = TypeVar("_Part", Record, _Prompted)

#: How the lines begin and end that are written here: which message's they are is known without reading them.
_HEAD = re.compile(rb'\{"id":"([\w~-]+)",(?:"from":(\d+),)?"tokens":\[')
_ENDS = (b"]}\n", b"]}")
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Records:
    """Token records of one conversation, read when asked for.

    Attributes:
        log: The file; its ``trouble`` says if lines wait in memory.
        notices: Damage found, as sentences.
    """

    def __init__(self, path: Path, *, files: Files = FILES, writable: bool = True) -> None:
        self.log = AppendLog(path, files=files, writable=writable)
        self.notices: list[str] = []
        # For each message its lines: where they are in the file, or those themselves that wait in memory.
        self._lines: dict[str, list[tuple[int, int] | Record]] = {}
        self._ids: dict[str, tuple[str, tuple[int, ...]]] = {}

    def load(self) -> None:
        """Finds where each message's line is. A missing or unreadable file has none."""
        place = bad = 0
        try:
            for part in self.log.load_parts():
                bad += self._index(part, place)
                place += len(part)
        except FileNotFoundError:
            return
        except OSError as error:
            self.notices.append(f"The token records cannot be read ({error.strerror or error}); the heat is missing.")
        self._tell_damage(bad)

    def _index(self, data: bytes, offset: int) -> int:
        """Takes in whole lines, which begin at ``offset`` of the file; returns how many are damaged."""
        bad = start = 0
        while start < len(data):
            end = data.find(b"\n", start) + 1 or len(data)
            try:
                self._add(_named(data, start, end), (offset + start, end - start))
            except _DAMAGE:
                bad += 1
            start = end
        return bad

    def _tell_damage(self, lines: int) -> None:
        if lines:
            self.notices.append(f"{lines} damaged token record(s) were skipped; the heat of those replies is missing.")

    def _add(self, named: Record | _Named, line: tuple[int, int] | Record) -> None:
        self._ids.pop(named.id, None)
        if named.start == 0:
            self._lines[named.id] = [line]
        else:
            self._lines.setdefault(named.id, []).append(line)

    def append(self, id: str, tokens: Sequence[Token], start: int = 0) -> None:
        """Writes records of a message, those from ``start`` on; the ones before it were written earlier."""
        record = Record(id=id, start=start, tokens=tuple(tokens))
        line = encode_any(record)
        if b":null" in line:  # how JSON has infinities, which could not be read back
            line = encode_any(Record(id=id, start=start, tokens=tuple(_finite(token) for token in tokens)))
        self._append(line, record)

    def _append(self, line: bytes, record: Record | None = None) -> None:
        self.log.append([line])
        if self.log.trouble:
            record = record or msgspec.json.decode(line, type=Record)
            self._add(record, record)
        else:
            self._add(record or _named(line), (self.log.size - len(line) - 1, len(line) + 1))

    def take_over(self, other: Records, id: str) -> None:
        """Writes what another conversation knows of a message, whose id is the same here; not what is damaged there."""
        for line in other._lines.get(id, ()):
            try:
                self._append(encode_any(line) if isinstance(line, Record) else other.log.read(line[0], line[1] - 1))
            except (OSError, *_DAMAGE):
                return

    def put_back(self, lines: Sequence[bytes]) -> None:
        """Takes in lines that an earlier session could not write."""
        for line in lines:
            try:
                record = msgspec.json.decode(line, type=Record)
            except _DAMAGE:
                continue
            self._add(record, record)
        if lines and self.log.writable:
            self.log.append(lines)

    def get(self, id: str) -> list[Token]:
        """The records of a message; empty if there are none or a part of them is damaged."""
        tokens: list[Token] = []
        for record in self._parts(id, Record):
            if record.id != id or record.start > len(tokens):
                return []
            tokens[record.start :] = record.tokens
        return tokens

    def ids(self, id: str, content: str) -> tuple[int, ...]:
        """The ids that were sampled for a message; none where a person wrote a part of it, or they do not fit it.

        Args:
            id: Of the message.
            content: Its text.
        """
        known = self._ids.get(id)
        if known is None or known[0] != content:
            known = self._ids[id] = content, self._sampled(id, content)
        return known[1]

    def knows_ids(self, id: str) -> bool:
        """`ids` need not read the file."""
        return id in self._ids or id not in self._lines

    def _sampled(self, id: str, content: str) -> tuple[int, ...]:
        tokens: list[_Sampled | Token] = []
        for record in self._parts(id, _Prompted):
            if record.id != id or record.start > len(tokens):
                return ()
            tokens[record.start :] = record.tokens
        ids = tuple(token.id for token in tokens)
        return () if TYPED in ids or "".join(token.text for token in tokens) != content else ids

    def _parts(self, id: str, kind: type[_Part]) -> list[_Part | Record]:
        """The lines of a message, in order; none if one of them is damaged."""
        found: list[_Part | Record] = []
        for line in self._lines.get(id, ()):
            try:
                found.append(line if isinstance(line, Record) else self._read(*line, kind))
            except OSError:
                return []
            except _DAMAGE:
                self._tell_damage(1)
                del self._lines[id]
                return []
        return found

    def _read(self, offset: int, size: int, kind: type[_Part]) -> _Part:
        return msgspec.json.decode(self.log.read(offset, size), type=kind)

    def poll(self) -> None:
        """Takes in what another process has written since."""
        start = self.log.size
        data, replaced = self.log.poll()
        if replaced:
            self._lines.clear()
            start = 0
        self._tell_damage(self._index(data, start))

    def close(self) -> None:
        self.log.close()


def _named(data: bytes, start: int = 0, end: int | None = None) -> _Named:
    """Whose the line ``data[start:end]`` is. One that looks whole is taken at its word: `Records.get` reads it."""
    end = len(data) if end is None else end
    head = _HEAD.match(data, start, end)
    if head is not None and data.endswith(_ENDS, start, end):
        return _Named(head[1].decode(), int(head[2] or 0))
    return msgspec.json.decode(data[start:end], type=_Named)


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


def alike(first: Sequence[Token], second: Sequence[Token]) -> int:
    """How many records two lists begin with that are the same."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


def typed(text: str, index: int) -> Token:
    """The record of text that a person wrote into a reply."""
    return Token(index, TYPED, text, 0.0, 0.0, 0.0, 0.0)


def doubt(tokens: Sequence[Token]) -> tuple[float | None, float | None]:
    """Mean and highest entropy of the sampled tokens, in nats; None where there are none."""
    entropies = [token.entropy for token in tokens if token.id != TYPED]
    if not entropies:
        return None, None
    return sum(entropies) / len(entropies), max(entropies)
