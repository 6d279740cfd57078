"""Mouse selection as source text."""

from __future__ import annotations

import regex
from textual.geometry import Offset
from textual.selection import Selection

from chatapp.ui.transcript.document import Document
from chatapp.ui.transcript.render import GUTTER
from chatapp.ui.transcript.wrap import cluster_at

_WORD = regex.compile(r"\w(?:[\w\p{M}\u200c\u200d'’-]*[\w\p{M}])?")


def word_at(document: Document, y: int, x: int) -> Selection | None:
    """The word under a display character of a row; None where there is none. See `source_position` for arguments."""
    row = document.row(y)
    if row is None or row.kind != "body":
        return None
    for word in _WORD.finditer(document.line(row).text):
        if word.start() <= x - GUTTER < word.end():
            return Selection(Offset(GUTTER + word.start(), y), Offset(GUTTER + word.end(), y))
    return None


def message_at(document: Document, y: int) -> Selection | None:
    """The whole message that a row belongs to; None beyond the end."""
    row = document.row(y)
    if row is None:
        return None
    last = document.bottom(row.entry) - 1
    end = document.row(last)
    cells = GUTTER + len(document.line(end).text) if end is not None and end.kind == "body" else 0
    return Selection(Offset(0, document.top(row.entry)), Offset(cells, last))


def source_position(document: Document, y: int, x: int) -> tuple[int, int] | None:
    """``(message, source offset)`` of a display character.

    Args:
        document: What is shown.
        y: The row.
        x: Index of a character of the row's strip, the gutter included.

    Returns:
        The offset; 0 for a header or rule, the content's length for the row after a message; None beyond the end.
    """
    row = document.row(y)
    if row is None:
        return None
    if row.kind in ("header", "rule"):
        return row.entry, 0
    if row.kind == "blank":
        return row.entry, len(document.entries[row.entry].content)
    return row.entry, document.line(row).source_at(max(0, x - GUTTER))


def selected_source(document: Document, selection: Selection) -> str:
    """The source text of the selection; messages are joined by a blank line."""
    if not document.entries:
        return ""
    last = len(document.entries) - 1
    end_of_all = (last, len(document.entries[last].content))
    start = (0, 0) if selection.start is None else source_position(document, selection.start.y, selection.start.x)
    end = end_of_all if selection.end is None else source_position(document, selection.end.y, selection.end.x)
    if start is None:
        return ""
    (first, begin), (final, stop) = start, end or end_of_all
    # Never half a cluster: the start goes back to its cluster's, the end on to the end of the one it is inside of.
    begin, _ = cluster_at(document.entries[first].content, begin)
    inside, after = cluster_at(document.entries[final].content, stop)
    stop = after if inside < stop else stop
    if first == final:
        return document.entries[first].content[begin:stop]
    parts = [document.entries[first].content[begin:]]
    parts += [document.entries[index].content for index in range(first + 1, final)]
    parts.append(document.entries[final].content[:stop])
    return "\n\n".join(part.rstrip("\n") for part in parts if part)
