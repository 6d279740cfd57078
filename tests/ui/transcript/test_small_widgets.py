"""Legend, sparkline, context bar, inspector, replies side by side."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.geometry import Offset
from textual.widget import Widget

from chatapp.tokens import Alternative, Attended, Attention, Token
from chatapp.ui.heat import Heat, Scale, Scales
from chatapp.ui.transcript import MessageView
from chatapp.ui.widgets.context_bar import ContextBar, Window, shares
from chatapp.ui.widgets.inspector import Inspected, Inspector, bar
from chatapp.ui.widgets.legend import Legend
from chatapp.ui.widgets.marks import fitted, marked
from chatapp.ui.widgets.siblings import NARROWEST, Siblings, first_difference
from chatapp.ui.widgets.sparkline import DoubtSparkline

from .host import screen_text, token


class Host(App[None]):
    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        self.heard: list[object] = []

    def compose(self) -> ComposeResult:
        yield self.widget

    def on_doubt_sparkline_walked(self, event: DoubtSparkline.Walked) -> None:
        self.heard.append((event.message_id, event.index))

    def on_siblings_chosen(self, event: Siblings.Chosen) -> None:
        self.heard.append(event.message_id)


async def shown(widget: Widget, width: int = 80, height: int = 40) -> str:
    app = Host(widget)
    async with app.run_test(size=(width, height)) as pilot:
        await pilot.pause()
        return "\n".join(screen_text(app)).rstrip()


async def test_the_legend_names_measure_range_and_unit() -> None:
    legend = Legend()
    legend.set_scale(Heat.ENTROPY, Scales(), "nats")
    assert " ".join((await shown(legend)).split()) == "entropy 0.67 4.00 nats fixed"
    legend = Legend()
    ln2 = math.log(2)
    percentiles = Scales({heat: Scale(ln2**2, 2 * ln2**2, "percentile") for heat in Heat})
    legend.set_scale(Heat.VARENTROPY, percentiles, "bits")
    assert " ".join((await shown(legend)).split()) == "varentropy 1.00 2.00 bits² percentiles"


async def test_the_legend_of_both_names_both_and_of_none_is_empty() -> None:
    legend = Legend()
    legend.set_scale(Heat.BOTH, Scales(), "nats")
    line = await shown(legend, 100)
    assert line.index("entropy") < line.index("varentropy") < line.index("both")
    assert await shown(Legend()) == ""


async def test_a_narrow_legend_leaves_out_words_before_figures() -> None:
    whole = "entropy 0.67 4.00 nats varentropy 1.00 8.00 nats² both fixed"
    for width, words in (
        (80, whole),
        (74, whole.replace(" 0.67", "").replace(" 1.00", "")),
        (52, "H 4.00 nats V 8.00 nats² H+V fixed"),
        (46, "H 4.00 nats V 8.00 nats² fixed"),
        (36, "H 4.00 nats V 8.00 nats²"),
    ):
        legend = Legend()
        legend.set_scale(Heat.BOTH, Scales(), "nats")
        assert " ".join((await shown(legend, width)).split()) == words


async def test_the_sparkline_is_highest_where_the_doubt_is() -> None:
    sparkline = DoubtSparkline()
    sparkline.set_tokens("m", [token(index, "x", entropy) for index, entropy in enumerate((0.0, 2.0, 9.0, 0.4))])
    assert await shown(sparkline) == "▁▅█▁"


@given(count=st.integers(0, 500), width=st.integers(0, 120))
@settings(deadline=None)
def test_every_token_is_in_one_column_of_the_sparkline(count: int, width: int) -> None:
    sparkline = DoubtSparkline()
    sparkline.set_tokens("m", [token(index, "x") for index in range(count)])
    columns = sparkline.columns(width)
    assert len(columns) <= width
    assert [index for column in columns for index in column] == (list(range(count)) if width else [])
    assert all(columns)


async def test_walking_the_sparkline_goes_to_the_most_doubtful_token_of_a_column() -> None:
    sparkline = DoubtSparkline()
    app = Host(sparkline)
    async with app.run_test(size=(10, 3)) as pilot:
        entropies = [0.1, 0.2, 5.0, 0.1] * 5
        sparkline.set_tokens("m", [token(index, "x", entropy) for index, entropy in enumerate(entropies)], 0)
        await pilot.pause()
        sparkline.walk(1)
        await pilot.click(DoubtSparkline, offset=Offset(9, 0))
        await pilot.pause()
        assert app.heard == [("m", 2), ("m", 18)]


@given(
    capacity=st.integers(1, 10**6), used=st.integers(0, 10**6), kept=st.integers(0, 10**6), cells=st.integers(5, 200)
)
@settings(deadline=None)
def test_the_context_bar_fills_its_cells_and_hides_nothing(capacity: int, used: int, kept: int, cells: int) -> None:
    window = Window(capacity, min(used, capacity), min(kept, capacity), 0)
    parts = shares(window, cells)
    assert sum(parts) == cells
    assert (parts[0] > 0) == (min(window.kept, window.used) > 0)
    assert (parts[1] > 0) == (window.used > window.kept)
    assert (parts[2] > 0) == (window.capacity > window.used)


async def test_the_context_bar_tells_its_figures() -> None:
    context = ContextBar()
    context.set_window(Window(4096, 4096, 200, 512))
    line = await shown(context, 100)
    assert line.endswith("kept 200  live 3,896  free 0  forgotten 512")
    assert set(line.split()[0]) == {"■", "▪"}  # told apart without colours, too
    assert (await shown(context, 24)).endswith("▪ full, 512 gone")
    context = ContextBar()
    context.set_window(Window(4096, 1024, 0, 0))
    assert (await shown(context, 20)).endswith("1,024 of 4,096")
    assert await shown(ContextBar()) == ""


def full_token() -> Token:
    top = (Alternative(1, " the", math.log(0.5)), Alternative(2, "\n", math.log(0.25)))
    attention = Attention(1.25, 0.5, 0.0125, 3.5, (), (Attended(7, "\x1b[2J", 0.75),))
    return Token(0, 3, " a\t", math.log(2), 0.25, 2.0, 0.5, "explore", top, attention)


async def test_the_inspector_shows_everything() -> None:
    inspector = Inspector()
    inspector.inspect(Inspected(full_token(), 4, 10))
    lines = [" ".join(line.split()) for line in (await shown(inspector, 44)).splitlines()]
    assert lines[0] == "␣a⇥"
    assert lines[1] == "token 5 of 10 id 3"
    assert "entropy 0.69 nats" in lines
    assert "varentropy 0.25 nats²" in lines
    assert "surprisal 2.00 nats" in lines
    assert "as sampled 0.50 nats" in lines
    assert "sampler explore" in lines
    assert any(line.startswith("1 ␣the") and line.endswith("50.0%") for line in lines)
    assert any(line.startswith("2 ⏎") and line.endswith("25.0%") for line in lines)
    # The chosen token is not among the likeliest: it is added, with exp(-surprisal).
    assert any(line.startswith("… ␣a⇥") and line.endswith("13.5%") for line in lines)
    assert any(line.startswith("7 ␛[2J") and line.endswith("75.0%") for line in lines)
    assert "disagreement 0.0125" in lines


async def test_the_inspector_in_bits_and_without_a_token() -> None:
    inspector = Inspector()
    inspector.inspect(Inspected(full_token(), 0, 1), unit="bits")
    assert "1.00 bits\n" in await shown(inspector, 44)
    assert await shown(Inspector()) == "no token selected"


@given(share=st.floats(0, 1), cells=st.integers(1, 40))
@settings(deadline=None)
def test_a_bar_is_as_wide_as_asked_and_shows_what_is_not_nothing(share: float, cells: int) -> None:
    drawn = bar(share, cells)
    assert cell_len(drawn) == cells
    assert bool(drawn.strip()) == (share > 0)


@given(st.text(max_size=12), st.integers(0, 20))
@settings(deadline=None)
def test_fitted_text_has_the_width_asked_for(text: str, cells: int) -> None:
    assert cell_len(fitted(marked(text), cells)) == cells or "\u200d" in text


def test_the_empty_token_has_a_mark() -> None:
    assert marked("") == "∅"


@pytest.mark.parametrize(
    ("streams", "expected"),
    [
        ([[1, 2, 3], [1, 2, 4]], 2),
        ([[1, 2], [1, 2]], None),
        ([[1, 2], [1, 2, 3]], 2),
        ([[], [1]], 0),
        ([[1], [1], [2]], 0),
        ([[1]], None),
    ],
)
def test_the_first_difference(streams: list[list[int]], expected: int | None) -> None:
    assert first_difference([[token(i, "x", id=one) for i, one in enumerate(stream)] for stream in streams]) == expected


async def test_replies_stand_side_by_side_with_the_difference_marked() -> None:
    siblings = Siblings()
    app = Host(siblings)
    async with app.run_test(size=(80, 12)) as pilot:
        views = [
            MessageView("a", "assistant", "The cat", (token(0, "The", id=1), token(1, " cat", id=2)), "tiny"),
            MessageView("b", "assistant", "The dog", (token(0, "The", id=1), token(1, " dog", id=3)), "tiny"),
        ]
        siblings.set_replies(views)
        await pilot.pause()
        row = screen_text(app)[1]
        assert row.index("The cat") < 40 <= row.index("The dog")
        strip = list(app.screen._compositor.render_strips())[1]
        reversed_text = [s.text for s in strip if s.style and s.style.bold and (s.style.reverse or s.style.bgcolor)]
        assert " cat" in reversed_text
        assert " dog" in reversed_text
        siblings.move(1)
        siblings.choose()
        siblings.append_tokens("a", [token(2, " sat", id=9)])
        await pilot.pause()
        assert app.heard == ["b"]
        assert "The cat sat" in screen_text(app)[1]


async def test_more_replies_than_fit_are_shown_around_the_chosen_one() -> None:
    siblings = Siblings()
    app = Host(siblings)
    async with app.run_test(size=(2 * NARROWEST + 4, 8)) as pilot:
        siblings.set_replies([MessageView(f"m{n}", "assistant", f"reply {n}", (), "tiny") for n in range(4)])
        await pilot.pause()
        assert "reply 0" in screen_text(app)[1]
        assert "reply 3" not in screen_text(app)[1]
        siblings.move(-1)
        await pilot.pause()
        assert "reply 3" in screen_text(app)[1]
        assert siblings.chosen == "m3"
