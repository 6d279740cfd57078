"""Tables: aligned in place where they fit, else each row as a stack of its cells, with the heads beside them."""

from __future__ import annotations

import re
from typing import NamedTuple

from chatapp.ui.transcript.blocks import Block
from chatapp.ui.transcript.inline import inline_spans
from chatapp.ui.transcript.lines import TEXT, Line, Look, Run
from chatapp.ui.transcript.wrap import clusters, made_safe, pieces, text_cells, wrap

_PIPE = re.compile(r"(?:\\.|`[^`\n]*`|[^|\\`])*\|?|`|\\")
_BAR = Look("rule")
_HEAD = Look("table", bold=True)
_HINT = Look("hint")


class _Cell(NamedTuple):
    """``source[start:end]`` between two pipes; its text without white space is ``[first, last)``."""

    start: int
    first: int
    last: int
    end: int
    runs: list[Run]
    width: int


class _Row(NamedTuple):
    """``lead`` is the source before the first cell: indentation and a pipe, if there is one."""

    start: int
    lead: int
    stop: int
    end: int
    cells: list[_Cell]


def lay_out_table(source: str, block: Block, width: int) -> list[Line]:
    """Rows of a table block."""
    rows = [
        _row(source, start, end, _HEAD if number == 0 else TEXT)
        for number, (start, end) in enumerate(_line_ranges(source, block))
    ]
    columns = max(len(row.cells) for row in rows)
    content = [row for number, row in enumerate(rows) if number != 1]
    widths = [max((row.cells[i].width for row in content if i < len(row.cells)), default=1) for i in range(columns)]
    if sum(widths) + 3 * columns + 1 > width:
        return _stacked(source, rows, width)
    aligns = [_alignment(source, rows[1].cells[i]) if i < len(rows[1].cells) else "left" for i in range(columns)]
    return [
        wrap(_ruled(row, widths) if number == 1 else _aligned(row, widths, aligns), width, row.start, row.end)[0]
        for number, row in enumerate(rows)
    ]


def _line_ranges(source: str, block: Block) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    at = block.start
    while at < block.end:
        found = source.find("\n", at, block.end)
        end = block.end if found < 0 else found + 1
        ranges.append((at, end))
        at = end
    return ranges


def _row(source: str, start: int, end: int, look: Look) -> _Row:
    stop = end - 1 if source[end - 1 : end] == "\n" else end
    stop = len(source[:stop].rstrip("\r")) if source[start:stop].endswith("\r") else stop
    at = start
    while at < stop and source[at] in " \t":
        at += 1
    lead = at = at + 1 if source[at:stop].startswith("|") else at
    cells: list[_Cell] = []
    while at < stop:
        border = _next_pipe(source, at, stop)
        text = source[at:border]
        if border == stop and not text.strip():
            break
        first = at + len(text) - len(text.lstrip())
        last = max(first, at + len(text.rstrip()))
        spans = inline_spans(source[first:last], first, look)
        runs = made_safe(pieces(source, first, last, spans, look))
        cells.append(_Cell(at, first, last, border, runs, max(1, text_cells("".join(run.text for run in runs)))))
        at = border + 1
    return _Row(start, lead, stop, end, cells)


def _next_pipe(source: str, at: int, stop: int) -> int:
    """Offset of the next pipe that is neither escaped nor in code."""
    while at < stop:
        found = _PIPE.match(source, at, stop)
        if found is None or found.end() == at:
            return stop
        at = found.end()
        if source[at - 1] == "|" and found[0] not in ("`", "\\"):
            return at - 1
    return stop


def _alignment(source: str, cell: _Cell) -> str:
    text = source[cell.first : cell.last]
    if text.endswith(":"):
        return "center" if text.startswith(":") and len(text) > 1 else "right"
    return "left"


def _aligned(row: _Row, widths: list[int], aligns: list[str]) -> list[Run]:
    runs = [_lead(row, "│")]
    for index, cell in enumerate(row.cells):
        spare = widths[index] - cell.width
        before = {"left": 0, "right": spare, "center": spare // 2}[aligns[index]]
        runs.append(Run(" " * (before + 1), cell.start, cell.first, TEXT))
        runs.extend(cell.runs)
        runs.append(Run(" " * (spare - before + 1), cell.last, cell.end, TEXT))
        if cell.end < row.stop:
            runs.append(Run("│", cell.end, cell.end + 1, _BAR))
    return _with_rest(row, runs)


def _ruled(row: _Row, widths: list[int]) -> list[Run]:
    runs = [_lead(row, "├")]
    for index, cell in enumerate(row.cells):
        runs.append(Run("─" * (widths[index] + 2), cell.start, cell.end, _BAR))
        if cell.end < row.stop:
            last = index == len(row.cells) - 1
            runs.append(Run("┤" if last else "┼", cell.end, cell.end + 1, _BAR))
    return _with_rest(row, runs)


def _lead(row: _Row, bar: str) -> Run:
    return Run(bar if row.lead > row.start else "", row.start, row.lead, _BAR)


def _with_rest(row: _Row, runs: list[Run]) -> list[Run]:
    """Covers white space after the last pipe."""
    covered = runs[-1].end
    return [*runs, Run("", covered, row.stop, _BAR)] if covered < row.stop else runs


def _stacked(source: str, rows: list[_Row], width: int) -> list[Line]:
    head, rule, *body = rows
    lines = _plain(source, head, width)
    lines += wrap([Run("─" * width, rule.start, rule.stop, _BAR)], width, rule.start, rule.end)
    heads = ["".join(run.text for run in cell.runs if run.look.role != "marker") for cell in head.cells]
    room = min(max(map(text_cells, heads), default=0), width // 3)
    for row in body:
        lines += _stack(row, [_cut(text, room) for text in heads], width) or _plain(source, row, width)
    return lines


def _stack(row: _Row, heads: list[str], width: int) -> list[Line]:
    """The cells of a row, one under the other."""
    lines: list[Line] = []
    start, after = row.start, row.lead
    for index, cell in enumerate(row.cells):
        last = index == len(row.cells) - 1
        head = heads[index] if index < len(heads) else ""
        runs = [
            Run("├" if index == 0 else "└" if last else "│", start, after, _BAR),
            Run(f" {head} ", after, after, _HINT),
            Run(" ", cell.start, cell.first, TEXT),
            *cell.runs,
            Run("", cell.last, row.stop if last else cell.end, TEXT),
        ]
        hang = [Run("│" if not last else " ", 0, 0, _BAR), Run(" " * (text_cells(head) + 3), 0, 0, TEXT)]
        lines += wrap(runs, width, start, row.end if last else cell.end, hang)
        start, after = cell.end, cell.end + 1
    return lines


def _cut(text: str, cells: int) -> str:
    """The text in exactly so many cells."""
    if text_cells(text) > cells:
        short = ""
        for first, last, _ in clusters(text):
            if text_cells(short + text[first:last]) >= cells:
                break
            short += text[first:last]
        text = short + "…"
    return text + " " * (cells - text_cells(text))


def _plain(source: str, row: _Row, width: int) -> list[Line]:
    runs: list[Run] = []
    at = row.start
    for cell in row.cells:
        runs.extend(pieces(source, at, cell.first, (), _BAR))
        runs.extend(cell.runs)
        at = cell.last
    runs.extend(pieces(source, at, row.stop, (), _BAR))
    return wrap(made_safe(runs), width, row.start, row.end)
