"""What must hold for the rows of any source at any width, however it arrived."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from chatapp.text import visible
from chatapp.ui.transcript.blocks import LIMIT
from chatapp.ui.transcript.layout import MessageLayout
from chatapp.ui.transcript.lines import Line

from .sources import sources, widths

LONG = "the quick brown fox jumps over the lazy dog " * 120


def rows(source: str, width: int, *, folded: bool = False) -> list[Line]:
    layout = MessageLayout(source, width, folded=folded)
    return all_rows(layout)


def all_rows(layout: MessageLayout) -> list[Line]:
    for block in range(layout.blocks):
        layout.settle(block)
    return [layout.line(row) for row in range(layout.height)]


@given(source=sources, width=widths, folded=st.booleans())
@example(source="", width=10, folded=False)
@example(source="\n", width=10, folded=False)
@example(source=LONG, width=33, folded=False)
@example(source="```\n" + "x = 1\n" * 2000, width=33, folded=False)
@settings(deadline=None, max_examples=100)
def test_every_source_character_appears_once_and_in_order(source: str, width: int, folded: bool) -> None:
    covered = [
        offset
        for line in rows(source, width, folded=folded)
        for run in line.runs
        for offset in range(run.start, run.end)
    ]
    assert covered == list(range(len(source)))


@given(source=sources, width=widths)
@settings(deadline=None, max_examples=100)
def test_lines_cover_the_source_without_gaps(source: str, width: int) -> None:
    at = 0
    for line in rows(source, width):
        assert line.start == at
        assert all(line.start <= run.start <= run.end <= line.end for run in line.runs if run.end > run.start)
        at = line.end
    assert at == len(source)


@given(source=sources, width=widths)
@example(source="  " * 40 + "你" * 40, width=5)
@example(source="> > > > > > > > > > " + "word " * 20, width=12)
@settings(deadline=None, max_examples=100)
def test_no_row_is_wider_than_its_width(source: str, width: int) -> None:
    for line in rows(source, width):
        assert line.cells <= width
        # Rich measures what Textual will draw. It is asked cluster by cluster, as a terminal divides its cells.
        assert line.cells >= cell_len(line.text) or "\u200d" in line.text


@given(source=sources, width=widths)
@settings(deadline=None, max_examples=100)
def test_nothing_that_drives_a_terminal_is_shown(source: str, width: int) -> None:
    for line in rows(source, width):
        assert visible(line.text) == line.text
        assert "\n" not in line.text
        assert "\t" not in line.text


@given(source=sources, width=widths, cuts=st.lists(st.integers(min_value=0, max_value=400), max_size=12))
@settings(deadline=None, max_examples=150)
def test_a_stream_ends_with_the_rows_of_the_whole(source: str, width: int, cuts: list[int]) -> None:
    check_stream(source, width, sorted({min(cut, len(source)) for cut in cuts}))


@given(source=sources, width=widths)
# What looked like a table, a fence or a reasoning part turns out to belong to the paragraph above it.
@example(source="**text\na | b\n-|-x\nend** of it", width=30)
@example(source="**text\n```x`` y** z", width=30)
@example(source="a | b\n-|-\n1 | 2\nx y | z\n", width=30)
@settings(deadline=None, max_examples=40)
def test_a_stream_of_single_characters_shows_the_rows_of_each_prefix(source: str, width: int) -> None:
    check_stream(source, width, list(range(len(source))), every=True)


def check_stream(source: str, width: int, cuts: list[int], *, every: bool = False) -> None:
    layout = MessageLayout("", width)
    shown: list[Line] = []
    for cut in [*cuts, len(source)]:
        first = layout.grow(source[:cut])
        fresh = all_rows(layout)
        # What was said to be unchanged is unchanged.
        assert fresh[:first] == shown[:first]
        shown = fresh
        if every:
            assert shown == rows(source[:cut], width)
    assert shown == rows(source, width)


@pytest.mark.parametrize(
    "source",
    [
        LONG,
        "你好世界" * 1500,
        "intro line\n" * 30 + LONG,
        "- " + LONG,
        "> " + LONG + "\n\nafter",
        "x" * 3 * LIMIT,
        "```python\n" + "def f(x):\n    return [x, 'é']\n\n" * 300 + "```\ndone",
        "| a | b |\n|---|---|\n" + "| one | two |\n" * 400,
        "para\n" * 900 + "# end\n",
    ],
)
def test_long_sources_stream_to_the_same_rows(source: str) -> None:
    check_stream(source, 40, list(range(0, len(source), 97)))


def test_a_long_stream_lays_out_only_its_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work for one more token does not grow with the message (counted in characters, not in time)."""
    from chatapp.ui.transcript import layout as module

    sizes: list[int] = []
    lay_out = module.lay_out

    def counted(source, block, width, seed=None):
        sizes.append(block.end - (seed[-1].start if seed and block.end - block.start > 2 * LIMIT else block.start))
        return lay_out(source, block, width, seed)

    monkeypatch.setattr(module, "lay_out", counted)
    source = "A paragraph of a few words.\n\n" * 1000
    layout = MessageLayout(source, 40)
    all_rows(layout)
    sizes.clear()
    for word in LONG.split(" "):
        source += word + " "
        layout.grow(source)
        all_rows(layout)
    assert max(sizes) <= 2 * LIMIT + 64


@given(source=sources, before=widths, width=widths, folded=st.booleans())
@settings(deadline=None, max_examples=60)
def test_another_width_gives_the_rows_of_a_fresh_layout(source: str, before: int, width: int, folded: bool) -> None:
    layout = MessageLayout(source, before, folded=folded)
    all_rows(layout)
    layout.set_width(width)
    assert all_rows(layout) == rows(source, width, folded=folded)


def test_guesses_are_replaced_when_looked_at() -> None:
    layout = MessageLayout("para one\n\n" + "b" * 100 + "\n\nlast", 20)
    assert not layout.is_exact(1)
    assert layout.line(layout.row_of(12)).text == "b" * 20
    assert layout.is_exact(1)
    assert [line.text for line in all_rows(layout)] == ["para one", "", *["b" * 20] * 5, "", "last"]
