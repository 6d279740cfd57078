"""Lays a block of Markdown out as rows, styled in place: every source character stays and keeps its offset.

Markers (``**``, ``#``, backticks) are dimmed rather than hidden: each of them was a token of the model, which can be
walked to, and copied text is the source. Some are drawn as what they mean: ``-`` as a bullet, ``>`` as a bar, ``|`` as
a border.
"""

from __future__ import annotations

from chatapp.ui.transcript.blocks import LIMIT, Block
from chatapp.ui.transcript.code import code_spans
from chatapp.ui.transcript.inline import Span
from chatapp.ui.transcript.lines import MARKER, Line, Look, Run
from chatapp.ui.transcript.prose import lay_out_prose
from chatapp.ui.transcript.table import lay_out_table
from chatapp.ui.transcript.wrap import made_safe, pieces, wrap

_CODE = Look("plain-code")
_HINT = Look("hint")


def lay_out(source: str, block: Block, width: int, seed: list[Line] | None = None) -> list[Line]:
    """Rows of one block.

    Args:
        source: The whole message.
        block: Which part of it.
        width: Cells in a row, at least 4.
        seed: Rows of the same block before text was appended to it.
    """
    if block.kind == "fold":
        return _fold(source, block, width)
    if block.kind == "table":
        return lay_out_table(source, block, width)
    if block.kind == "code":
        return _code(source, block, width)
    return lay_out_prose(source, block, width, seed)


def _fold(source: str, block: Block, width: int) -> list[Line]:
    words = len(source[block.start : block.end].split())
    shown = f"▸ reasoning, {words} words"[:width]
    return [Line((Run(shown, block.start, block.end, _HINT),), block.start, block.end, len(shown))]


def _code(source: str, block: Block, width: int) -> list[Line]:
    lines: list[Line] = []
    at = block.start
    if block.opens:
        found = source.find("\n", at, block.end)
        at = block.end if found < 0 else found + 1
        lines.extend(_code_line(source, block.start, at, [(block.start, at, MARKER)], width))
    closed = block.end
    if block.fence is not None and block.after.fence is None:  # the closing fence is inside
        closed = source.rfind("\n", at, block.end - 1) + 1 or at
        if source[closed : block.end].strip(" \t\n>" + block.fence.marker[0]):
            closed = block.end
    spans = _syntax(source, at, closed, block.fence.language if block.fence else "")
    if closed < block.end:
        spans.append((closed, block.end, MARKER))
    place = 0
    while at < block.end:
        found = source.find("\n", at, block.end)
        end = block.end if found < 0 else found + 1
        while place < len(spans) and spans[place][1] <= at:
            place += 1
        last = place
        while last < len(spans) and spans[last][0] < end:
            last += 1
        lines.extend(_code_line(source, at, end, spans[place:last], width))
        at = end
    return lines


def _syntax(source: str, start: int, end: int, language: str) -> list[Span]:
    if end - start > 4 * LIMIT:  # one giant line: colours are not worth the wait
        return []
    return [(start + first, start + last, look) for first, last, look in code_spans(source[start:end], language)]


def _code_line(source: str, start: int, end: int, spans: list[Span], width: int) -> list[Line]:
    stop = end - 1 if source[end - 1 : end] == "\n" else end
    if stop > start and source[stop - 1] == "\r":
        stop -= 1
    return wrap(made_safe(pieces(source, start, stop, spans, _CODE)), width, start, end, fill="code")
