"""Cuts the Markdown source of a message into blocks, in one pass over its lines, without looking ahead.

Blocks are what is laid out at once: small (about `LIMIT` characters), consecutive, and covering the source from its
start to its end. Because a block depends only on the text up to its end and on its `Context`, appended text changes the
last block (or two) only, and a stream ends with the same blocks as the whole text read at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import regex

#: Characters after which a block ends at the next line.
LIMIT = 2048
#: The same for code, whose syntax colours cost more.
CODE_LIMIT = 1024

Kind = Literal["prose", "code", "table", "fold"]

_FENCE = regex.compile(
    r"(?P<indent>(?:[ \t]|>[ \t]?)*)(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)"
)
_DELIMITER = regex.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_LIST = regex.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")


class Fence(NamedTuple):
    """An open code fence: its marker (three or more of one character) and its language."""

    marker: str
    language: str


class Context(NamedTuple):
    """What a block must know of the text before it.

    Attributes:
        fence: The code fence that is open at its start.
        think: It lies in a reasoning part.
        in_list: An indented line belongs to a list item rather than being code.
    """

    fence: Fence | None = None
    think: bool = False
    in_list: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """``source[start:end]``, to be laid out as one.

    Attributes:
        kind: ``prose`` (paragraphs, lists, quotes, headings), ``code`` (a fence or a part of one), ``table``, or
            ``fold`` (a folded reasoning part).
        context: The state at its start.
        fence: For ``code``: the fence it belongs to.
        opens: For ``code``: its first line is the opening fence.
        after: The state at its end.
    """

    kind: Kind
    start: int
    end: int
    context: Context
    after: Context
    fence: Fence | None = None
    opens: bool = False


class ThinkTags(NamedTuple):
    """The strings around a reasoning part."""

    open: str = "<think>"
    close: str = "</think>"


THINK = ThinkTags()


class Scanner:
    """The blocks of a growing source."""

    def __init__(self, tags: ThinkTags = THINK) -> None:
        self.blocks: list[Block] = []
        self._tags = tags
        self._length = 0
        self._closed_unopened = False

    def feed(self, source: str) -> int:
        """Reads a source that begins with what was fed before; returns the index of the first block that is new."""
        if self._opening_was_missing(source):
            self.blocks.clear()
        self._length = len(source)
        keep = self._settled(source)
        start = self.blocks[keep].start if keep < len(self.blocks) else 0
        context = self.blocks[keep].context if keep < len(self.blocks) else Context(think=self._closed_unopened)
        old = self.blocks[keep:]
        del self.blocks[keep:]
        while start < len(source):
            block = self._block(source, start, context)
            self.blocks.append(block)
            start, context = block.end, block.after
        same = 0
        while same < len(old) and keep + same < len(self.blocks) and old[same] == self.blocks[keep + same]:
            same += 1
        return keep + same

    def _opening_was_missing(self, source: str) -> bool:
        """Some templates open the reasoning part in the prompt: then only its end is in the reply."""
        if self._closed_unopened or not self._tags.close:
            return False
        found = source.find(self._tags.close, max(0, self._length - len(self._tags.close)))
        if found < 0 or (self._tags.open and 0 <= source.find(self._tags.open) < found):
            return False
        self._closed_unopened = True
        return True

    def _settled(self, source: str) -> int:
        """How many blocks stand whatever comes: all but the last, and but the one before an unfinished last line."""
        if not self.blocks:
            return 0
        last = self.blocks[-1]
        return max(0, len(self.blocks) - (2 if source.count("\n", last.start, last.end) < 2 else 1))

    def _block(self, source: str, start: int, context: Context) -> Block:
        if context.fence:
            return self._code(source, start, context, context.fence, opens=False)
        opened = _fence(source, start, _line_end(source, start))
        if opened:
            words = opened["info"].split()
            return self._code(source, start, context, Fence(opened["fence"], words[0] if words else ""), opens=True)
        if _table_begins(source, start):
            return self._table(source, start, context)
        return self._prose(source, start, context)

    def _code(self, source: str, start: int, context: Context, fence: Fence, *, opens: bool) -> Block:
        at = _line_end(source, start) if opens else start
        while at < len(source):
            end = _line_end(source, at)
            if context.think and self._tags.close and source.startswith(self._tags.close, at):
                return Block("code", start, at, context, context._replace(fence=None), fence, opens)
            if _closes(source, at, end, fence):
                return Block("code", start, end, context, context._replace(fence=None), fence, opens)
            # Prefer to cut where a definition begins, so that syntax colours seldom see the seam.
            seam = not source[at : at + 1].isspace() or at - start >= 2 * CODE_LIMIT
            if at - start >= CODE_LIMIT and seam:
                return Block("code", start, at, context, context._replace(fence=fence), fence, opens)
            at = end
        return Block("code", start, len(source), context, context._replace(fence=fence), fence, opens)

    def _table(self, source: str, start: int, context: Context) -> Block:
        at = start
        while at < len(source):
            end = _line_end(source, at)
            if "|" not in source[at:end] or at - start >= 4 * LIMIT:
                break
            at = end
        return Block("table", start, at, context, context)

    def _prose(self, source: str, start: int, context: Context) -> Block:
        after = context
        at = start
        ended = False  # a blank line was seen
        while at < len(source):
            end = _line_end(source, at)
            line = source[at:end]
            blank = line.isspace()
            if at > start:
                if ended and not blank:
                    break
                if at - start >= LIMIT or _fence(source, at, end) or _table_begins(source, at):
                    break
                if self._tags.open and not after.think and line.lstrip().startswith(self._tags.open):
                    break
            if not blank:
                after = after._replace(in_list=_LIST.match(line) is not None or (after.in_list and line[:1].isspace()))
            if self._tags.open and line.lstrip().startswith(self._tags.open):
                after = after._replace(think=True)
                context = context._replace(think=True)
            closing = line.find(self._tags.close) if self._tags.close and after.think else -1
            if closing >= 0:
                rest = closing + len(self._tags.close)
                end = end if not line[rest:].strip() else at + rest
                return Block("prose", start, end, context, after._replace(think=False))
            ended = ended or blank
            at = end
        return Block("prose", start, at, context, after)


def _line_end(source: str, start: int) -> int:
    """Offset after the newline of the line at ``start``."""
    found = source.find("\n", start)
    return len(source) if found < 0 else found + 1


def _fence(source: str, start: int, end: int) -> regex.Match[str] | None:
    """An opening code fence on the line ``source[start:end]``."""
    return _FENCE.fullmatch(source, start, end - 1 if source[end - 1 : end] == "\n" else end)


def _table_begins(source: str, start: int) -> bool:
    """A line with a pipe over a delimiter row."""
    end = _line_end(source, start)
    if "|" not in source[start:end] or end >= len(source):
        return False
    below = source[end : _line_end(source, end)].rstrip("\n")
    return "-" in below and "|" in below and _DELIMITER.fullmatch(below) is not None


def _closes(source: str, start: int, end: int, fence: Fence) -> bool:
    line = source[start:end].strip(" \t\n>")
    return len(line) >= len(fence.marker) and line == fence.marker[0] * len(line)
