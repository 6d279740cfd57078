"""Paragraphs, headings, lists and quotes, styled in place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chatapp.ui.transcript.blocks import LIMIT, Block
from chatapp.ui.transcript.inline import Span, inline_spans
from chatapp.ui.transcript.lines import MARKER, TEXT, Line, Look, Run
from chatapp.ui.transcript.wrap import made_safe, pieces, text_cells, wrap

_PREFIX = re.compile(
    r"(?P<quote>(?:[ ]{0,3}>[ ]?)*)"
    r"(?P<indent>[ \t]*)"
    r"(?P<mark>(?:[-*+]|\d{1,9}[.)])(?=[ \t\n]|$)[ \t]*(?:\[[ xX]\](?=[ \t]))?[ \t]*)?"
    r"(?P<hashes>\#{1,6}(?=[ \t\n]|$)[ \t]*)?"
)
_RULE = re.compile(r"[ ]{0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})")
# Three at least (CommonMark: one), so that a list item that begins to stream does not flash a heading.
_UNDERLINE = re.compile(r"[ ]{0,3}(?:={3,}|-{3,})[ \t]*")
_INDENTED = re.compile(r"(?: {4}|\t)")

_QUOTE = Look("quote")
_BULLET = Look("bullet")
_RULE_LOOK = Look("rule")
_CODE = Look("code")
_HEADING = Look("heading", bold=True)
_SUBHEADING = Look("subheading", bold=True)


@dataclass(slots=True)
class _SourceLine:
    """One line of the source and how it is shown.

    Attributes:
        start, text, end: Where the line, its text (after the prefix) and the next line begin.
        stop: Where the text ends, before the newline.
        prefix: Runs for what is before the text.
        look: The base look of the text.
        opens: It begins a new paragraph.
        rule: It is a thematic break or the underline of a heading.
    """

    start: int
    text: int
    stop: int
    end: int
    prefix: list[Run]
    look: Look
    opens: bool
    rule: bool = False
    fill: str = ""
    spans: tuple[Span, ...] | list[Span] = ()

    @property
    def hang(self) -> list[Run]:
        """Decoration for the second and later rows: quote bars go on, everything else is blank."""
        return [Run(re.sub("[^│]", " ", run.text), 0, 0, run.look) for run in self.prefix]


def lay_out_prose(source: str, block: Block, width: int, seed: list[Line] | None) -> list[Line]:
    """Rows of a prose block (arguments as for `markdown.lay_out`)."""
    resumed = _resumed(source, block, width, seed)
    if resumed is not None:
        return resumed
    lines = list(_source_lines(source, block))
    _underlined(source, lines)
    for paragraph in _paragraphs(lines):
        _style(source, paragraph)
    rows: list[Line] = []
    for line in lines:
        rows.extend(_rows(source, line, width))
    return rows


def _rows(source: str, line: _SourceLine, width: int) -> list[Line]:
    if line.rule and not line.fill:
        shown = "─" * (line.stop - line.text)
        runs = [*line.prefix, Run(shown, line.text, line.stop, _RULE_LOOK)]
        rest = width - text_cells("".join(run.text for run in runs))
        if rest > 0:
            runs.append(Run("─" * rest, line.stop, line.stop, _RULE_LOOK))
        return wrap(runs, width, line.start, line.end)
    text = made_safe(pieces(source, line.text, line.stop, line.spans, line.look))
    return wrap([*line.prefix, *text], width, line.start, line.end, line.hang, line.fill)


def _resumed(source: str, block: Block, width: int, seed: list[Line] | None) -> list[Line] | None:
    """For a line that grew far beyond `LIMIT`: its old rows and, anew, what follows the last but one of them."""
    if not seed:
        return None
    at = seed[-1].start
    start = source.rfind("\n", block.start, at) + 1 or block.start
    if at - start < LIMIT or "\n" in source[at : block.end]:
        return None
    line = _source_line(source, start, block.end, indented=False)
    text = made_safe(pieces(source, at, block.end, (), line.look))
    return seed[:-1] + wrap(text, width, at, block.end, line.hang, continued=True)


def _source_lines(source: str, block: Block) -> Iterator[_SourceLine]:
    at = block.start
    indented = not block.context.in_list and _INDENTED.match(source, at) is not None
    while at < block.end:
        found = source.find("\n", at, block.end)
        end = block.end if found < 0 else found + 1
        indented = indented and (_INDENTED.match(source, at) is not None or source[at:end].isspace())
        yield _source_line(source, at, end, indented=indented)
        at = end


def _source_line(source: str, start: int, end: int, *, indented: bool) -> _SourceLine:
    stop = end - 1 if source[end - 1 : end] == "\n" else end
    if stop > start and source[stop - 1] == "\r":
        stop -= 1
    if indented:
        return _SourceLine(start, start, stop, end, [], _CODE, opens=True, rule=True, fill="code")
    found = _PREFIX.match(source, start, stop)
    assert found is not None  # every part of the pattern is optional
    quote_end, mark_start, mark_end = found.end("quote"), found.start("mark"), found.end("mark")
    prefix: list[Run] = []
    if quote_end > start:
        prefix.append(Run(source[start:quote_end].replace(">", "│"), start, quote_end, Look("bar")))
    if _RULE.fullmatch(source, quote_end, stop):
        return _SourceLine(start, quote_end, stop, end, prefix, _RULE_LOOK, opens=True, rule=True)
    look = _QUOTE if quote_end > start else TEXT
    text = found.end("indent")
    if text > quote_end:
        prefix.append(Run(source[quote_end:text], quote_end, text, look))
    if mark_start >= 0:
        shown = source[mark_start:mark_end]
        shown = "•" + shown[1:] if shown[0] in "-*+" else shown
        prefix.append(Run(shown, mark_start, mark_end, _BULLET))
        text = mark_end
    hashes = found["hashes"]
    if hashes:
        prefix.append(Run(hashes, text, found.end(), MARKER))
        text = found.end()
        look = _HEADING if hashes.count("#") <= 2 else _SUBHEADING
    opens = bool(mark_start >= 0 or hashes) or text >= stop
    return _SourceLine(start, text, stop, end, made_safe(prefix), look, opens)


def _underlined(source: str, lines: list[_SourceLine]) -> None:
    """Makes a heading of each paragraph with a line of ``=`` or ``-`` under it."""
    begin = 0  # of the paragraph at hand
    for number, line in enumerate(lines):
        text_above = number > begin and all(above.look == TEXT for above in lines[begin:number])
        if text_above and _UNDERLINE.fullmatch(source, line.start, line.stop):
            for above in lines[begin:number]:
                above.look = _HEADING
            line.rule, line.look = True, _RULE_LOOK
            begin = number + 1
        elif line.opens or line.rule:
            begin = number + 1 if line.rule or line.text >= line.stop or line.look.bold else number


def _paragraphs(lines: list[_SourceLine]) -> Iterator[list[_SourceLine]]:
    paragraph: list[_SourceLine] = []
    for line in lines:
        heading = bool(paragraph) and paragraph[0].look.bold
        if paragraph and (line.opens or heading or line.look != paragraph[-1].look):
            yield paragraph
            paragraph = []
        if not line.rule:
            paragraph.append(line)
    if paragraph:
        yield paragraph


def _style(source: str, paragraph: list[_SourceLine]) -> None:
    """Gives a paragraph's lines their spans. Text far beyond `LIMIT` stays plain, so that it never is read again."""
    text = "\n".join(source[line.text : line.stop] for line in paragraph)[:LIMIT]
    spans = inline_spans(text, 0, paragraph[0].look)
    if not spans:
        return
    begin = 0
    for line in paragraph:
        size = line.stop - line.text
        shift = line.text - begin
        line.spans = [
            (max(start, begin) + shift, min(end, begin + size) + shift, look)
            for start, end, look in spans
            if end > begin and start < begin + size
        ]
        begin += size + 1
