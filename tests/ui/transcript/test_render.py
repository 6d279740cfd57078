"""Cells and tokens: what is drawn over which character, for any text, any tokens and any width."""

from __future__ import annotations

from itertools import pairwise

import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from chatapp.tokens import Token
from chatapp.ui.heat import Heat
from chatapp.ui.transcript.document import Document
from chatapp.ui.transcript.model import MessageView, TokenMap
from chatapp.ui.transcript.palette import Palette
from chatapp.ui.transcript.render import GUTTER, Scene, render

from .sources import sources, widths

COLD, HOT = 0.1, 9.0
PALETTE = Palette({"background": "#101010", "foreground": "#e0e0e0"}, dark=True)
HEAT_COLOR = PALETTE.ramps.color(Heat.ENTROPY, 8)


@st.composite
def tokenized(draw: st.DrawFn) -> tuple[str, list[Token]]:
    """A source cut into tokens at any characters, some of them empty, some of them uncertain."""
    source = draw(sources)
    cuts = sorted(draw(st.lists(st.integers(0, len(source)), max_size=30)))
    edges = [0, *cuts, len(source)]
    tokens = [
        Token(index, index, source[first:last], HOT if draw(st.booleans()) else COLD, 0.0, 0.0, 0.0)
        for index, (first, last) in enumerate(pairwise(edges))
    ]
    return source, tokens


def hot_characters(tokens: list[Token]) -> list[bool]:
    """For each character whether its token, or an empty one just before that, is uncertain."""
    result: list[bool] = []
    pending = False
    for token in tokens:
        hot = token.entropy == HOT or pending
        result += [hot] * len(token.text)
        pending = hot and not token.text
    return result


@given(case=tokenized(), width=widths)
@settings(deadline=None, max_examples=200)
def test_each_cluster_is_hot_exactly_if_one_of_its_tokens_is(case: tuple[str, list[Token]], width: int) -> None:
    source, tokens = case
    hot = hot_characters(tokens)
    document = Document(width)
    document.set_messages([MessageView("a", "assistant", source, tokens, "m", streaming=True)])
    document.settle(0, 10**6)
    scene = Scene(PALETTE, Heat.ENTROPY)
    for y in range(document.height):
        row = document.row(y)
        strip = render(document, row, width + GUTTER + 1, scene, None)
        assert strip.cell_length == width + GUTTER + 1
        if row is None or row.kind != "body":
            continue
        line = document.line(row)
        drawn = [
            (character, segment.style is not None and segment.style.bgcolor == HEAT_COLOR.rich_color)
            for segment in strip
            for character in segment.text
        ][GUTTER:]
        at = 0
        for run in line.runs:
            for cluster in regex.findall(r"\X", run.text):
                if run.exact:
                    first = run.start + (at - sum(len(r.text) for r in line.runs[: line.runs.index(run)]))
                    covered = range(first, first + len(cluster))
                else:
                    covered = range(run.start, run.end)
                expected = any(hot[offset] for offset in covered)
                assert all(is_hot == expected for _, is_hot in drawn[at : at + len(cluster)])
                at += len(cluster)
        assert "".join(character for character, _ in drawn).startswith(line.text)


@given(case=tokenized())
@settings(deadline=None, max_examples=200)
def test_tokens_and_characters_map_to_each_other(case: tuple[str, list[Token]]) -> None:
    source, tokens = case
    token_map = TokenMap(source, tokens)
    owners = [index for index, token in enumerate(tokens) for _ in token.text]
    assert [token_map.token_at(char) for char in range(len(source))] == owners
    assert token_map.token_at(len(source)) is None
    for index, token in enumerate(tokens):
        start, end = token_map.span(index)
        if token.text:
            assert source[start:end] == token.text
            assert owners[start:end] == [index] * len(token.text)
        else:
            following = next((later for later in tokens[index:] if later.text), None)
            assert source[start:end] == (following.text if following else "")
    for start, end in ((0, len(source)), (len(source) // 3, 2 * len(source) // 3)):
        assert [index for index, _, _ in token_map.spans_between(start, end)] == list(dict.fromkeys(owners[start:end]))


@given(case=tokenized(), cut=st.integers(0, 30))
@settings(deadline=None, max_examples=100)
def test_a_map_that_grew_is_the_map_of_the_whole(case: tuple[str, list[Token]], cut: int) -> None:
    source, tokens = case
    grown = TokenMap("".join(token.text for token in tokens[:cut]), tokens[:cut])
    grown.append(tokens[cut:])
    whole = TokenMap(source, tokens)
    assert [grown.token_at(char) for char in range(len(source))] == [
        whole.token_at(char) for char in range(len(source))
    ]
    assert [grown.span(index) for index in range(len(tokens))] == [whole.span(index) for index in range(len(tokens))]


def test_tokens_of_an_edited_reply_that_was_continued_cover_its_end() -> None:
    tokens = [Token(0, 0, " and", COLD, 0, 0, 0), Token(1, 1, " on", COLD, 0, 0, 0)]
    token_map = TokenMap("edited by hand and on", tokens)
    assert token_map.token_at(3) is None
    assert token_map.span(1) == (18, 21)
    assert TokenMap("something else", tokens).tokens == []


def test_the_width_measured_is_the_width_rich_draws() -> None:
    """Layout measures by clusters, Textual by segments: they must agree where a segment is one cluster or simple."""
    for text in ("你好", "👨‍👩‍👧", "🇩🇪", "e\u0301", "❤️", "👍🏽", "שלום", "—", "“q”", "\u3000", "한국"):
        assert sum(cell_len(cluster) for cluster in regex.findall(r"\X", text)) == cell_len(text), text
