"""Lays a block of Markdown out as rows, styled in place: every source character stays and keeps its offset."""

from __future__ import annotations

from chatapp.ui.transcript.blocks import Block
from chatapp.ui.transcript.lines import TEXT, Line
from chatapp.ui.transcript.wrap import made_safe, pieces, wrap


def lay_out(source: str, block: Block, width: int, seed: list[Line] | None = None) -> list[Line]:
    """Rows of one block.

    Args:
        source: The whole message.
        block: Which part of it.
        width: Cells in a row, at least 4.
        seed: Rows of the same block before text was appended to it.
    """
    lines: list[Line] = []
    at = block.start
    while at < block.end:
        found = source.find("\n", at, block.end)
        text_end, end = (block.end, block.end) if found < 0 else (found, found + 1)
        lines.extend(wrap(made_safe(pieces(source, at, text_end, (), TEXT)), width, end))
        at = end
    return lines
