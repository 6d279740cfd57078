"""Rows as strips, drawn once and kept for as long as they would look the same."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from textual.selection import Selection
from textual.strip import Strip

from chatapp.ui.transcript.document import Document, Row
from chatapp.ui.transcript.lines import Line
from chatapp.ui.transcript.render import Scene, render
from chatapp.ui.transcript.wrap import clusters, is_simple

#: Strips kept: some screens' worth. A strip is about thirty objects to Python's collector, so not more than that.
_KEPT = 256


@dataclass(frozen=True, slots=True)
class Frame:
    """What all rows of one frame have in common."""

    scene: Scene
    selection: Selection | None
    width: int


class Painter:
    """Strips of a document's rows."""

    def __init__(self) -> None:
        self._strips: dict[tuple[str, str, int], tuple[Line | None, tuple[object, ...], Strip]] = {}
        self._stamp = 0

    def forget(self) -> None:
        """The look of everything changed (theme, heat, scale, memory)."""
        self._stamp += 1

    def strip(self, document: Document, y: int, frame: Frame) -> Strip:
        """The strip of a row, exactly ``frame.width`` cells wide."""
        row = document.row(y)
        span = frame.selection.get_span(y) if frame.selection is not None else None
        if row is None or span is not None:
            return render(document, row, frame.width, frame.scene, span)
        line = document.line(row) if row.kind == "body" else None
        entry = document.entries[row.entry]
        key = (entry.id, row.kind, row.inside)
        state = self._state(document, row, line, frame)
        known = self._strips.get(key)
        if known is not None and known[0] is line and known[1] == state:
            return known[2]
        strip = render(document, row, frame.width, frame.scene, None)
        if len(self._strips) >= _KEPT:
            self._strips.clear()
        self._strips[key] = (line, state, strip)
        return strip

    def _state(self, document: Document, row: Row, line: Line | None, frame: Frame) -> tuple[object, ...]:
        """Everything but the line that the row's look depends on."""
        scene = frame.scene
        under_bar = row.entry == scene.focused and scene.active
        cursor = None
        if line is not None and row.entry == scene.focused and scene.cursor is not None:
            start, end = scene.cursor
            cursor = scene.cursor if start < line.end and end > line.start else None
        # A header also tells of the tokens so far.
        version = document.entries[row.entry].version if row.kind == "header" else 0
        return self._stamp, frame.width, under_bar, cursor, version


def by_cluster(strip: Strip) -> Strip:
    """The same cells with a segment for each cluster of text that is not simple.

    To find the character under the mouse Textual adds up the widths of a segment's characters one by one, which is
    right only where each of them stands alone.
    """
    segments: list[Segment] = []
    for segment in strip:
        if is_simple(segment.text):
            segments.append(segment)
        else:
            segments += [Segment(segment.text[a:b], segment.style) for a, b, _ in clusters(segment.text)]
    return Strip(segments, strip.cell_length)
