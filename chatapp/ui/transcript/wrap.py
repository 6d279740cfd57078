"""Breaks a styled source line into rows of at most ``width`` cells.

Rows break after white space, and beside wide characters (CJK), never inside a grapheme cluster; a word longer than a
row breaks between clusters. White space that does not fit at a row's end is hidden there: it still covers its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import regex
from rich.cells import cell_len

from chatapp.text import visible
from chatapp.ui.transcript.lines import Line, Look, Run

_CLUSTER = regex.compile(r"\X")
_JOINS = regex.compile(r"[\p{M}\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")
_WORD = regex.compile(r"\S*\s*")
_SUSPECT = regex.compile(r"[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]")
# Text of which every character is a cluster of one cell: the quick path.
_SIMPLE = regex.compile(r"[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2030-\u205e\u2500-\u25fc]*")
# Characters that must not begin a row (the common closing marks of CJK text).
_CLOSING = frozenset("、。，．・：；？！）］｝〕〉》」』】ー々…‥")
TAB = 4
#: A cluster longer than this is not looked for whole.
_LONGEST = 64


def clusters(text: str) -> Iterator[tuple[int, int, int]]:
    """``(start, end, cells)`` of each grapheme cluster."""
    for match in _CLUSTER.finditer(text):
        yield match.start(), match.end(), cell_len(match[0])


def cluster_at(text: str, offset: int) -> tuple[int, int]:
    """``[start, end)`` of the grapheme cluster that holds a character (the empty range at the text's end)."""
    begin = max(0, text.rfind("\n", 0, offset) + 1, offset - _LONGEST)
    for match in _CLUSTER.finditer(text, begin):
        if match.end() > offset:
            return match.start(), match.end()
    return offset, offset


def pieces(source: str, start: int, end: int, spans: Sequence[tuple[int, int, Look]], plain: Look) -> list[Run]:
    """Cuts ``source[start:end]`` by its styled spans (sorted, disjoint); the gaps between get the plain look."""
    result: list[Run] = []
    at = start
    for first, last, look in spans:
        first, last = max(first, at), min(last, end)
        while last < end and _JOINS.match(source[last]):  # never cut a cluster: what joins goes with its base
            last += 1
        if last <= first:
            continue
        if first > at:
            result.append(Run(source[at:first], at, first, plain))
        result.append(Run(source[first:last], first, last, look))
        at = last
    if at < end:
        result.append(Run(source[at:end], at, end, plain))
    return result


def made_safe(runs: Iterable[Run]) -> list[Run]:
    """Replaces tabs and characters that could drive the terminal by marks that keep their source range."""
    result: list[Run] = []
    for run in runs:
        if run.text.isprintable() or not run.exact:
            result.append(run)
            continue
        at = 0
        for match in _SUSPECT.finditer(run.text):
            shown = " " * TAB if match[0] == "\t" else visible(match[0])
            if shown == match[0]:  # a joiner inside a cluster
                continue
            here = run.start + match.start()
            if match.start() > at:
                result.append(Run(run.text[at : match.start()], run.start + at, here, run.look))
            result.append(Run(shown, here, here + 1, run.look))
            at = match.end()
        if at < len(run.text):
            result.append(Run(run.text[at:], run.start + at, run.end, run.look))
    return result


def wrap(
    runs: Sequence[Run],
    width: int,
    start: int,
    end: int,
    hang: Sequence[Run] = (),
    fill: str = "",
    *,
    continued: bool = False,
) -> list[Line]:
    """Breaks one source line into rows.

    Args:
        runs: The line's runs, made safe, without the newline.
        width: Cells in a row, at least 2.
        start: Source offset of the line.
        end: Source offset after the line, its newline included.
        hang: Decoration in front of the second and later rows; left out where it takes half of the row.
        fill: See `Line`.
        continued: The first row too is one of the later ones.
    """
    text = "".join(run.text for run in runs)
    simple = is_simple(text)
    total = len(text) if simple else text_cells(text)
    if total <= width and not continued:
        return [Line(_closed(runs, start, end), start, end, total, fill)]
    prefix = sum(cell_len(run.text) for run in hang)
    if prefix > width // 2:
        hang, prefix = (), 0
    words = _simple_words(text) if simple else _unicode_words(text)
    return _rows(runs, _breaks(words, width, prefix, continued=continued), start, end, hang, fill, continued=continued)


def is_simple(text: str) -> bool:
    """Every character is a cluster of one cell (the quick path; true of most text)."""
    return _SIMPLE.fullmatch(text) is not None


def text_cells(text: str) -> int:
    """Width in cells, cluster by cluster (as the terminal's cells are divided here)."""
    if is_simple(text):
        return len(text)
    return sum(cells for _, _, cells in clusters(text))


# A word is (start, end of its ink, end of its white space, cells of ink, cells of white space, cluster ends or None).
_Word = tuple[int, int, int, int, int, "list[tuple[int, int]] | None"]


def _simple_words(text: str) -> Iterator[_Word]:
    for match in _WORD.finditer(text):
        if match.end() > match.start():
            ink = match.start() + len(match[0].rstrip())
            yield match.start(), ink, match.end(), ink - match.start(), match.end() - ink, None


def _unicode_words(text: str) -> Iterator[_Word]:
    parts: list[tuple[int, int]] = []  # (end, cells) of the ink's clusters
    start = ink_end = 0
    ink = space = 0
    at = 0
    for first, last, cells in clusters(text):
        cluster = text[first:last]
        blank = cluster.isspace() and cluster not in "\u00a0\u202f\u2007"
        breakable = not blank and (space > 0 or (at > start and _may_break(text, first, cells, parts)))
        if breakable:
            yield start, ink_end, at, ink, space, parts
            parts, start, ink, space = [], at, 0, 0
        if blank:
            space += cells
            if not parts:
                ink_end = start
        else:
            ink += cells
            ink_end = last
            parts.append((last, cells))
        at = last
    if at > start:
        yield start, max(ink_end, start), at, ink, space, parts


def _may_break(text: str, first: int, cells: int, parts: list[tuple[int, int]]) -> bool:
    """A break is allowed beside a wide cluster, but not before closing punctuation."""
    wide_beside = cells == 2 or (bool(parts) and parts[-1][1] == 2)
    return wide_beside and text[first] not in _CLOSING


def _breaks(words: Iterator[_Word], width: int, prefix: int, *, continued: bool) -> list[tuple[int, int, int]]:
    """Rows as ``(start, end of what is shown, end)`` in display characters; what is between the last two is hidden."""
    rows: list[tuple[int, int, int]] = []
    row_start = used = shown = at = 0
    room = width - prefix if continued else width

    def new_row(until: int) -> None:
        nonlocal row_start, used, room
        rows.append((row_start, until, at))
        row_start, used, room = at, 0, width - prefix

    for start, ink_end, end, ink, space, parts in words:
        if used and used + ink > room:
            new_row(shown)
        if ink > room:  # only at a row's start: the word itself is cut
            for cut, cells in parts if parts is not None else [(i + 1, 1) for i in range(start, ink_end)]:
                if used and used + cells > room:
                    new_row(at)
                used += cells
                at = cut
        else:
            used += ink
        at = end
        if used + space <= room:
            used, shown = used + space, end
        else:  # hide the white space that does not fit; the row is full (an ideographic space hides whole)
            shown = ink_end + (max(0, room - used) if end - ink_end == space else 0)
            used = room
    rows.append((row_start, shown, at))
    return rows


def _rows(
    runs: Sequence[Run],
    breaks: list[tuple[int, int, int]],
    start: int,
    end: int,
    hang: Sequence[Run],
    fill: str,
    *,
    continued: bool,
) -> list[Line]:
    lines: list[Line] = []
    cutter = _Cutter(runs, start)
    for number, (first, shown, last) in enumerate(breaks):
        row: list[Run] = []
        source = cutter.at
        if number or continued:
            row.extend(Run(part.text, source, source, part.look) for part in hang)
        row.extend(cutter.take(shown - first))
        row.extend(Run("", run.start, run.end, run.look) for run in cutter.take(last - shown))
        closed = _closed(row, source, end) if number == len(breaks) - 1 else tuple(row)
        cells = text_cells("".join(part.text for part in row))
        row_end = end if number == len(breaks) - 1 else cutter.at
        lines.append(Line(closed, source, row_end, cells, fill))
    return lines


class _Cutter:
    """Takes display characters off a sequence of runs, keeping each character's source."""

    def __init__(self, runs: Sequence[Run], start: int) -> None:
        self._runs = runs
        self._index = 0
        self._used = 0
        self.at = start

    def take(self, count: int) -> list[Run]:
        taken: list[Run] = []
        while count > 0 and self._index < len(self._runs):
            run = self._runs[self._index]
            part = run.text[self._used : self._used + count]
            if run.exact:
                first = run.start + self._used
                taken.append(Run(part, first, first + len(part), run.look))
            else:  # the first part of a mark stands for its source, the rest is decoration
                first, last = (run.start, run.end) if self._used == 0 else (run.end, run.end)
                taken.append(Run(part, first, last, run.look))
            self.at = taken[-1].end
            count -= len(part)
            self._used += len(part)
            if self._used >= len(run.text):
                self._index += 1
                self._used = 0
                self._skip_hidden(taken)
        return taken

    def _skip_hidden(self, taken: list[Run]) -> None:
        while self._index < len(self._runs) and not self._runs[self._index].text:
            taken.append(self._runs[self._index])
            self.at = taken[-1].end
            self._index += 1


def _closed(runs: Sequence[Run], start: int, end: int) -> tuple[Run, ...]:
    """Adds the hidden run that covers the newline."""
    last = runs[-1].end if runs else start
    if last >= end:
        return tuple(runs)
    look = runs[-1].look if runs else Look()
    return (*runs, Run("", last, end, look))
