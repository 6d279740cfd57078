"""Draws a row as a strip: looks, then heat, then selection and cursor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from chatapp.text import visible
from chatapp.ui.heat import Heat, Scales, Unit, shown
from chatapp.ui.transcript.document import Document, Row
from chatapp.ui.transcript.entry import Entry
from chatapp.ui.transcript.lines import TEXT, Line, Run
from chatapp.ui.transcript.palette import Palette
from chatapp.ui.transcript.wrap import cluster_at, clusters, is_simple

#: Cells left of the text (the message cursor's bar) and kept free right of it (marks for newline tokens).
GUTTER = 2
MARGIN = 1

_FINISH = {"length": "cut at the limit", "cancelled": "stopped", "error": "ended by an error", "paused": "paused"}
_ROLE_NAMES = {"user": "you", "assistant": "model", "system": "system", "tool": "tool"}
_ROLE_COLORS = {"user": "secondary", "assistant": "primary", "system": "warning", "tool": "accent"}


@dataclass(slots=True)
class Scene:
    """Everything outside of the document that a row's picture depends on.

    Attributes:
        focused: Index of the message under the message cursor, -1 for none.
        cursor: Characters ``[start, end)`` of the focused message under the token cursor.
        active: The transcript has the keyboard.
    """

    palette: Palette
    heat: Heat = Heat.OFF
    scales: Scales = field(default_factory=Scales)
    unit: Unit = "nats"
    focused: int = -1
    cursor: tuple[int, int] | None = None
    active: bool = False


def render(document: Document, row: Row | None, width: int, scene: Scene, selected: tuple[int, int] | None) -> Strip:
    """The picture of a row, exactly ``width`` cells wide.

    Args:
        document: What is shown.
        row: The row of it; None draws an empty one.
        width: Cells in all.
        scene: How it is shown.
        selected: Display characters of the strip that are selected; an end of -1 is the row's end.
    """
    palette = scene.palette
    if row is None:
        return Strip.blank(width, palette.base)
    segments = [_bar(document, row, scene)]
    if row.kind == "header":
        segments += _header(document.entries[row.entry], scene, width - GUTTER)
    elif row.kind == "rule":
        segments += _rule(palette, width - GUTTER)
    elif row.kind == "body":
        line = document.line(row)
        segments += _body(document, row, line, scene)
        if selected is not None:
            segments = _select(segments, selected, palette.selection)
        if line.fill:
            _pad(segments, width - MARGIN, palette.look(TEXT, fill=line.fill))
    cells = _pad(segments, width, palette.base)
    return Strip(segments, cells) if cells == width else Strip(segments, cells).crop(0, width)


def _pad(segments: list[Segment], width: int, style: Style) -> int:
    """Adds blank cells up to a width; returns the cells there are."""
    cells = sum(segment.cell_length for segment in segments)
    if cells < width:
        segments.append(Segment(" " * (width - cells), style))
    return max(cells, width)


def _bar(document: Document, row: Row, scene: Scene) -> Segment:
    """The gutter: a bar beside the message under the cursor, a faint one beside what people wrote."""
    role = document.entries[row.entry].view.role
    if row.kind in ("header", "body"):
        if row.entry == scene.focused and scene.active:
            return Segment("▌ ", scene.palette.accent(_ROLE_COLORS[role], bold=True))
        if role == "user":
            return Segment("▏ ", scene.palette.accent("secondary", strength=0.6))
    return Segment("  ", scene.palette.base)


def _header(entry: Entry, scene: Scene, width: int) -> list[Segment]:
    view, palette = entry.view, scene.palette
    name = (
        visible(view.model or _ROLE_NAMES[view.role]).replace("\n", " ")
        if view.role == "assistant"
        else _ROLE_NAMES[view.role]
    )
    parts = [Segment(name, palette.accent(_ROLE_COLORS[view.role], bold=True))]
    faint = palette.accent("foreground", strength=0.55)
    words: list[str] = []
    if view.alternatives > 1:
        words.append(f"‹{view.alternative}/{view.alternatives}›")
    if entry.mean_entropy is not None:
        mean, peak = (
            shown(entry.mean_entropy, Heat.ENTROPY, scene.unit),
            shown(entry.entropy_peak, Heat.ENTROPY, scene.unit),
        )
        words.append(f"entropy {mean}  peak {peak} {scene.unit}")
    if view.finish in _FINISH:
        words.append(_FINISH[view.finish])
    if view.streaming:
        words.append("…")
    if view.note:
        words.append(visible(view.note).replace("\n", " "))
    for word in words:
        parts.append(Segment("  " + word, faint))
    return list(Strip(parts).crop(0, max(0, width)))


def _rule(palette: Palette, width: int) -> list[Segment]:
    style = palette.accent("warning", strength=0.8)
    text = " the model does not see what is above "
    if width < len(text) + 4:
        return [Segment("╌" * max(0, width - MARGIN), style)]
    side = (width - MARGIN - len(text)) // 2
    return [Segment("╌" * side + text + "╌" * (width - MARGIN - len(text) - side), style)]


def _body(document: Document, row: Row, line: Line, scene: Scene) -> list[Segment]:
    entry = document.entries[row.entry]
    think = entry.layout.think_at(row.inside)
    evicted = document.evicted_before(row.entry)
    marks = _marks(entry, line, scene, focused=row.entry == scene.focused, evicted=evicted)
    segments: list[Segment] = []
    for run in line.runs:
        base = scene.palette.look(run.look, think=think, evicted=run.start < evicted, fill=line.fill)
        if run.text:
            segments.extend(_paint(run, base, marks, scene))
    segments.extend(_newline_mark(entry, line, marks, scene, think=think))
    return segments


@dataclass(slots=True)
class _Marks:
    """Heat and cursor over the source characters of one line.

    Attributes:
        heat: ``(start, end, first level, second level)``, sorted, only where a level is above 0.
        cursor: Characters under the token cursor.
        evicted: The model does not see the characters before this one any more.
    """

    heat: list[tuple[int, int, int, int]]
    cursor: tuple[int, int] | None
    evicted: int


def _marks(entry: Entry, line: Line, scene: Scene, *, focused: bool, evicted: int) -> _Marks:
    spans: list[tuple[int, int, int, int]] = []
    if scene.heat is not Heat.OFF:
        tokens = entry.map.tokens
        for index, start, end in entry.map.spans_between(line.start, line.end):
            first = second = 0
            for one in entry.map.group(index):
                levels = scene.scales.levels(tokens[one], scene.heat)
                first, second = max(first, levels[0]), max(second, levels[1])
            if first or second:
                spans.append((start, end, first, second))
    cursor = scene.cursor if focused else None
    if cursor is not None and (cursor[1] <= line.start or cursor[0] >= line.end):
        cursor = None
    return _Marks(spans, cursor, evicted)


def _paint(run: Run, base: Style, marks: _Marks, scene: Scene) -> Iterable[Segment]:
    """Segments of a run, split where the heat or the cursor changes, at cluster borders only."""
    decoration = run.start == run.end
    if decoration or (not marks.heat and marks.cursor is None):
        yield Segment(run.text, base)
        return
    if not run.exact:
        yield Segment(run.text, _style(base, run.start, run.end, marks, scene))
        return
    text, start = run.text, run.start
    pending_from = 0
    pending: Style | None = None
    borders = _borders(run, marks) if text.isascii() else clusters(text)
    for first, last, _ in borders:
        style = _style(base, start + first, start + last, marks, scene)
        if style is not pending:
            if pending is not None:
                yield Segment(text[pending_from:first], pending)
            pending, pending_from = style, first
    if pending is not None:
        yield Segment(text[pending_from:], pending)


def _borders(run: Run, marks: _Marks) -> Iterable[tuple[int, int, int]]:
    """The stretches of a run without clusters of several characters between which heat or cursor may change."""
    cuts = {0, len(run.text)}
    for span in (*marks.heat, *([(*marks.cursor, 0, 0)] if marks.cursor else [])):
        cuts.update(cut - run.start for cut in span[:2] if run.start < cut < run.end)
    ordered = sorted(cuts)
    return ((first, last, last - first) for first, last in pairwise(ordered))


def _style(base: Style, start: int, end: int, marks: _Marks, scene: Scene) -> Style:
    """Style of the source characters ``[start, end)``: a cluster takes the highest heat of its tokens."""
    first = second = 0
    for span_start, span_end, one, two in marks.heat:
        if span_start >= end:
            break
        if span_end > start:
            first, second = max(first, one), max(second, two)
    style = scene.palette.heated(base, scene.heat, first, second, evicted=start < marks.evicted)
    if marks.cursor is not None and marks.cursor[0] < end and marks.cursor[1] > start:
        return scene.palette.under_cursor(style)
    return style


def _newline_mark(entry: Entry, line: Line, marks: _Marks, scene: Scene, *, think: bool) -> list[Segment]:
    """A cell for the newline at the line's end, where its token is hot or under the cursor."""
    last = line.end - 1
    if line.end <= line.start or entry.content[last : line.end] != "\n":
        return []
    base = scene.palette.look(TEXT, think=think, fill=line.fill)
    style = _style(base, last, line.end, marks, scene)
    if style is base:
        return []
    at_cursor = marks.cursor is not None and marks.cursor[0] < line.end and marks.cursor[1] > last
    return [Segment("⏎" if at_cursor else " ", style)]


def _whole_clusters(text: str, selected: tuple[int, int]) -> tuple[int, int]:
    """The selection widened to whole clusters: half of one cannot be drawn."""
    start, end = selected
    if is_simple(text):
        return start, end
    start, _ = cluster_at(text, start)
    inside, after = cluster_at(text, end) if end >= 0 else (end, end)
    return start, after if inside < end else end


def _select(segments: list[Segment], selected: tuple[int, int], style: Style) -> list[Segment]:
    start, end = _whole_clusters("".join(segment.text for segment in segments), selected)
    result: list[Segment] = []
    at = 0
    for segment in segments:
        size = len(segment.text)
        first = min(max(start - at, 0), size)
        last = size if end < 0 else min(max(end - at, first), size)
        own = segment.style or Style.null()
        for text, shown_style in (
            (segment.text[:first], own),
            (segment.text[first:last], own + style),
            (segment.text[last:], own),
        ):
            if text:
                result.append(Segment(text, shown_style))
        at += size
    return result
