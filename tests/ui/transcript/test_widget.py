"""The widget in a running app: following, cursors, mouse, streaming."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from rich.style import Style
from textual.color import Color
from textual.geometry import Offset

from chatapp.tokens import Token
from chatapp.ui.heat import LEVELS, Heat
from chatapp.ui.transcript import Memory, MessageView, ThinkTags, Transcript
from chatapp.ui.transcript.lines import TEXT

from .host import Host, reply, screen_text, token, tokens, user

PARAGRAPHS = "\n\n".join(f"paragraph {number} has some words in it" for number in range(60))


def style_at(app: Host, x: int, y: int) -> Style:
    strip = list(app.screen._compositor.render_strips())[y]
    at = 0
    for segment in strip:
        if at <= x < at + segment.cell_length:
            return segment.style or Style.null()
        at += segment.cell_length
    raise AssertionError("outside of the screen")


def find(app: Host, text: str) -> tuple[int, int]:
    for y, row in enumerate(screen_text(app)):
        if text in row:
            return row.index(text), y
    raise AssertionError(f"{text!r} is not on the screen:\n" + "\n".join(screen_text(app)))


def beside_scrollbar(app: Host) -> list[str]:
    return [strip.text[:-1].rstrip() for strip in app.screen._compositor.render_strips()]


def settle(transcript: Transcript) -> None:
    """Lays out what idle time would."""
    for _ in range(1000):
        if transcript.settled:
            return
        transcript.measure_some()
    raise AssertionError("it is never done")


async def test_messages_are_shown_with_their_headers() -> None:
    app = Host(user("u", "hello"), reply("a", "Hi", " there", alternative=2, alternatives=3, finish="length"))
    async with app.run_test(size=(70, 12)) as pilot:
        await pilot.pause()
        rows = screen_text(app)
        assert rows[0].strip("▏▌ ") == "you"
        assert rows[1].endswith("hello")
        assert rows[3].strip() == "tiny  ‹2/3›  entropy 0.10  peak 0.10 nats  cut at the limit"
        assert rows[4].strip() == "Hi there"


async def test_markup_and_control_characters_are_shown_as_typed() -> None:
    hostile = "[bold]x[/] [/mnt/data] \x1b[2J \x1b]52;c;aGk=\x07 \x9b1m \ud800 \u202eabc"
    app = Host(user("u", hostile), MessageView("a", "assistant", hostile, model="\x1b[31mred\nname", note="\x1b[0m"))
    async with app.run_test(size=(100, 12)) as pilot:
        await pilot.pause()
        shown = "\n".join(screen_text(app))
        assert "[bold]x[/] [/mnt/data] ␛[2J ␛]52;c;aGk=␇ ‹U+009B›1m ‹U+D800› ‹U+202E›abc" in shown
        assert not any(mark in shown for mark in "\x1b\x07\x9b\ud800\u202e")


async def test_the_stream_is_followed_only_at_the_bottom() -> None:
    app = Host(user("u", PARAGRAPHS), MessageView("a", "assistant", "", model="tiny", streaming=True))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        for number in range(40):
            transcript.append_tokens("a", tokens(f"line {number}\n\n"))
        await pilot.pause()
        assert transcript.is_vertical_scroll_end
        assert "line 39" in "\n".join(screen_text(app))

        transcript.scroll_to(y=10, animate=False)
        await pilot.pause()
        before = screen_text(app)
        assert "▼ more below" in before[-1]
        transcript.append_tokens("a", tokens("unseen\n\n"))
        await pilot.pause()
        assert screen_text(app) == before

        transcript.follow()
        await pilot.pause()
        assert "unseen" in "\n".join(screen_text(app))
        assert "▼ more below" not in "\n".join(screen_text(app))


async def test_the_header_follows_the_stream() -> None:
    app = Host(MessageView("a", "assistant", "", model="tiny", streaming=True))
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        app.transcript.append_tokens("a", [token(0, "one", 1.0)])
        await pilot.pause()
        assert "entropy 1.00  peak 1.00 nats" in screen_text(app)[0]
        app.transcript.append_tokens("a", [token(1, " two", 3.0)])
        await pilot.pause()
        assert "entropy 2.00  peak 3.00 nats" in screen_text(app)[0]


async def test_the_reading_position_survives_a_resize() -> None:
    app = Host(user("u", PARAGRAPHS), user("v", PARAGRAPHS))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        index = transcript.document.index_of("v")
        char = PARAGRAPHS.index("paragraph 30")
        transcript.scroll_to(y=transcript.document.row_of(index, char), animate=False)
        await pilot.pause()
        assert "paragraph 30" in screen_text(app)[0]
        for width in (22, 90, 60):
            await pilot.resize_terminal(width, 20)
            await pilot.pause()
            assert "paragraph 30" in screen_text(app)[0]


async def test_the_token_cursor_stays_in_view_when_the_text_is_laid_out_anew() -> None:
    app = Host(reply("a", *[f"word{number} " for number in range(80)]))
    async with app.run_test(size=(80, 14)) as pilot:
        await pilot.pause()
        app.transcript.focus_token("a", 3)
        await pilot.pause()
        assert app.transcript.following  # all of it fits
        await pilot.resize_terminal(24, 8)
        await pilot.pause()
        find(app, "word3")


async def test_a_resize_at_the_bottom_stays_there() -> None:
    app = Host(user("u", PARAGRAPHS))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        await pilot.resize_terminal(30, 12)
        await pilot.pause()
        assert app.transcript.is_vertical_scroll_end
        assert "paragraph 59" in "\n".join(screen_text(app))


async def test_measuring_in_idle_time_does_not_move_the_view() -> None:
    app = Host(*(user(f"m{number}", "word " * 300) for number in range(40)), user("last", PARAGRAPHS))
    async with app.run_test(size=(50, 20)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        transcript.scroll_to(y=transcript.document.row_of(40, PARAGRAPHS.index("paragraph 7")), animate=False)
        await pilot.pause()
        before = beside_scrollbar(app)
        settle(transcript)
        await pilot.pause()
        assert beside_scrollbar(app) == before
        assert transcript.virtual_size.height == transcript.document.height


async def test_the_message_cursor_walks_and_tells() -> None:
    app = Host(user("u", "one"), reply("a", "two"), user("v", "three"))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        transcript.move_message(-1)
        assert transcript.message_cursor == "v"
        transcript.move_message(-1)
        transcript.move_message(-1)
        transcript.move_message(-1)
        assert transcript.message_cursor == "u"
        transcript.last_message()
        await pilot.pause()
        assert app.events == [("message", "v"), ("message", "a"), ("message", "u"), ("message", "v")]


async def test_a_message_beyond_the_view_is_scrolled_to() -> None:
    app = Host(user("u", "first"), user("v", PARAGRAPHS), user("w", "last"))
    async with app.run_test(size=(60, 15)) as pilot:
        await pilot.pause()
        app.transcript.first_message()
        await pilot.pause()
        assert "first" in screen_text(app)[1]
        app.transcript.move_message(1)
        await pilot.pause()
        assert "paragraph 0" in "\n".join(screen_text(app))
        app.transcript.move_message(1)
        await pilot.pause()
        assert "last" in "\n".join(screen_text(app))


async def test_the_token_cursor_walks() -> None:
    pieces = ("The", " ca", "che", " for", "gets", ".", "\n", "Yes")
    app = Host(reply("a", *pieces, hot=(2, 5)))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        assert transcript.enter_tokens()
        seen = [transcript.token_cursor]
        for move in (
            lambda: transcript.move_token(1),
            lambda: transcript.move_word(1),
            lambda: transcript.move_word(1),
            lambda: transcript.move_word(-1),
            lambda: transcript.next_uncertain(1),
            lambda: transcript.next_uncertain(-1),
            lambda: transcript.move_token(99),
        ):
            move()
            seen.append(transcript.token_cursor)
        assert seen == [0, 1, 3, 7, 3, 5, 2, 7]
        assert not transcript.next_uncertain(1)
        transcript.pick(2)
        transcript.leave_tokens()
        await pilot.pause()
        assert app.events[-2:] == [("pick", "a", 7, 2), ("token", "a", None)]
        assert transcript.message_cursor == "a"


async def test_the_token_under_the_cursor_is_marked_also_where_it_is_a_newline() -> None:
    app = Host(reply("a", "one", "\n", "two"))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        app.transcript.focus_token("a", 0)
        await pilot.pause()
        x, y = find(app, "one")
        cursor = app.transcript.palette.cursor
        assert style_at(app, x, y).bgcolor == cursor.bgcolor
        assert style_at(app, x + 3, y).bgcolor != cursor.bgcolor
        app.transcript.focus_token("a", 1)
        await pilot.pause()
        assert find(app, "one⏎") == (x, y)
        assert style_at(app, x + 3, y).bgcolor == cursor.bgcolor


async def test_heat_lies_over_markdown_and_confident_tokens_stay_plain() -> None:
    app = Host(reply("a", "plain ", "**bold", "**", " end", hot=(1,)), heat=Heat.ENTROPY)
    async with app.run_test(size=(60, 10)) as pilot:
        await pilot.pause()
        palette = app.transcript.palette
        x, y = find(app, "plain **bold** end")
        plain = palette.look(TEXT)
        assert style_at(app, x, y) == plain
        for inside in range(x + 6, x + 12):
            assert style_at(app, inside, y) != plain
        bold = style_at(app, x + 8, y)
        assert bold.bold
        level = app.transcript.scales[Heat.ENTROPY].level(3.0)
        assert bold == palette.heated(palette.look(TEXT._replace(bold=True)), Heat.ENTROPY, level, 0)


async def test_a_cluster_takes_the_highest_heat_of_its_tokens() -> None:
    # A family of three as three tokens of which the first two have no text of their own yet.
    family = "👨‍👩‍👧"
    split = [token(0, "x", 0.1), token(1, "", 3.0), token(2, "👨‍", 0.1), token(3, "👩‍👧", 0.2), token(4, "y", 0.1)]
    app = Host(MessageView("a", "assistant", "x" + family + "y", split, "tiny"), heat=Heat.ENTROPY)
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        x, y = find(app, "x" + family)
        palette = app.transcript.palette
        hot = palette.heated(palette.look(TEXT), Heat.ENTROPY, app.transcript.scales[Heat.ENTROPY].level(3.0), 0)
        assert style_at(app, x, y) == palette.look(TEXT)
        assert style_at(app, x + 1, y) == hot
        strip = list(app.screen._compositor.render_strips())[y]
        assert any(segment.text == family for segment in strip), "the cluster was cut"


async def test_dragging_the_mouse_selects_source_text() -> None:
    source = "# Title\n\nSome **bold** words\n\n- item\n\nend"
    app = Host(user("u", source))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        x, y = find(app, "Some")
        to_x, to_y = find(app, "item")
        await pilot.mouse_down(Transcript, offset=Offset(x, y))
        await pilot.hover(Transcript, offset=Offset(to_x + 3, to_y))
        await pilot.mouse_up(Transcript, offset=Offset(to_x + 3, to_y))
        await pilot.pause()
        assert app.screen.get_selected_text() == "Some **bold** words\n\n- item"


async def test_half_a_cluster_is_never_copied() -> None:
    family = "👨‍👩‍👧"
    app = Host(user("u", f"a {family} e\u0301 z"))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        x, y = find(app, "a " + family)
        for start, end, expected in (
            (2, 3, family),
            (0, 2, "a " + family),
            (3, 5, family + " e\u0301"),
            (5, 7, "e\u0301 z"),
        ):
            await pilot.mouse_down(Transcript, offset=Offset(x + start, y))
            await pilot.hover(Transcript, offset=Offset(x + end, y))
            await pilot.mouse_up(Transcript, offset=Offset(x + end, y))
            await pilot.pause()
            assert app.screen.get_selected_text() == expected, (start, end)


async def test_selecting_over_messages_joins_their_sources() -> None:
    app = Host(user("u", "first *message*"), reply("a", "second", " one"))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.pause()
        x, y = find(app, "*message*")
        to_x, to_y = find(app, "second")
        await pilot.mouse_down(Transcript, offset=Offset(x, y))
        await pilot.hover(Transcript, offset=Offset(to_x + 5, to_y))
        await pilot.mouse_up(Transcript, offset=Offset(to_x + 5, to_y))
        await pilot.pause()
        assert app.screen.get_selected_text() == "*message*\n\nsecond"


async def test_a_click_puts_the_cursor_on_the_token() -> None:
    app = Host(reply("a", "你好", "世界", " end"))
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        x, y = find(app, "你好世界")
        await pilot.click(Transcript, offset=Offset(x + 5, y))  # the second cell of 世
        await pilot.pause()
        assert (app.transcript.message_cursor, app.transcript.token_cursor) == ("a", 1)


async def test_clicking_twice_selects_the_word_and_thrice_the_message() -> None:
    app = Host(
        user("u", "before"), reply("a", "The don't-ask ", "word, and\n\n**a second** 日本語"), user("v", "after")
    )
    async with app.run_test(size=(40, 20)) as pilot:
        await pilot.pause()
        for text, selected in (("ask", "don't-ask"), ("本語", "日本語"), ("word", "word"), ("second", "second")):
            x, y = find(app, text)
            await pilot.click(Transcript, offset=Offset(x + 1, y), times=2)
            assert app.screen.get_selected_text() == selected
        x, y = find(app, ", and")
        await pilot.click(Transcript, offset=Offset(x, y), times=2)
        assert not app.screen.get_selected_text()
        await pilot.click(Transcript, offset=Offset(x, y), times=3)
        assert app.screen.get_selected_text() == "The don't-ask word, and\n\n**a second** 日本語"
        x, y = find(app, "after")
        await pilot.click(Transcript, offset=Offset(x, y), times=3)
        assert app.screen.get_selected_text() == "after"


async def test_reasoning_folds_and_unfolds() -> None:
    text = "<think>\nlet me see\nmore\n</think>\n\nThe answer"
    app = Host(reply("a", text))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        assert "▸ reasoning" in "\n".join(screen_text(app))
        assert "let me see" not in "\n".join(screen_text(app))
        assert app.transcript.toggle_fold("a")
        await pilot.pause()
        assert "let me see" in "\n".join(screen_text(app))
        x, y = find(app, "let me see")
        assert style_at(app, x, y).color != app.transcript.palette.look(TEXT).color
        x, y = find(app, "The answer")
        assert style_at(app, x, y).color == app.transcript.palette.look(TEXT).color


async def test_walking_to_a_token_in_folded_reasoning_unfolds_it() -> None:
    pieces = ["<think>", "\n", "let me", " see", "\n", "</think>", "\n\n", "The", " answer"]
    records = [token(number, piece, 0.1) for number, piece in enumerate(pieces)]
    app = Host(MessageView("a", "assistant", "".join(pieces), records, "tiny"))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        app.transcript.focus_token("a", 8)
        await pilot.pause()
        assert "let me" not in "\n".join(screen_text(app))
        app.transcript.move_token(-5)
        await pilot.pause()
        x, y = find(app, "let me see")
        assert style_at(app, x + 7, y) == style_at(app, x + 8, y) != style_at(app, x, y)


async def test_reasoning_between_the_strings_of_another_model() -> None:
    app = Host(reply("a", "[THINK]hidden[/THINK]\n\nanswer"))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        find(app, "hidden")
        app.transcript.set_think_tags(ThinkTags("[THINK]", "[/THINK]"))
        await pilot.pause()
        find(app, "▸ reasoning")
        find(app, "answer")
        assert "hidden" not in "\n".join(screen_text(app))


async def test_the_percentile_scale_follows_the_tokens_shown() -> None:
    pieces = [f"w{number} " for number in range(100)]
    records = [token(number, piece, number / 10) for number, piece in enumerate(pieces)]
    app = Host(MessageView("a", "assistant", "".join(pieces), records, "tiny"), heat=Heat.ENTROPY)
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        assert app.transcript.scales[Heat.ENTROPY].kind == "fixed"
        app.transcript.percentile = True
        await pilot.pause()
        scale = app.transcript.scales[Heat.ENTROPY]
        assert (scale.kind, scale.low, scale.high) == ("percentile", pytest.approx(5.9), pytest.approx(9.7))
        app.transcript.percentile = False
        await pilot.pause()
        assert app.transcript.scales[Heat.ENTROPY].kind == "fixed"


class Records(Sequence[Token]):
    """A hundred records of a message, and whether somebody has read them."""

    def __init__(self, message: int, read: set[int]) -> None:
        self._message, self._read = message, read
        self._records = [token(index, f"w{index} ", index / 10 + message) for index in range(100)]

    def __getitem__(self, index: int | slice) -> Any:
        self._read.add(self._message)
        return self._records[index]

    def __len__(self) -> int:
        self._read.add(self._message)
        return 100

    def forget(self) -> None:
        self._read.discard(self._message)


def long_conversation(read: set[int], messages: int = 1000) -> list[MessageView]:
    text = "".join(f"w{index} " for index in range(100))
    return [MessageView(f"m{n}", "assistant", text, Records(n, read), "tiny") for n in range(messages)]


async def test_for_percentiles_a_part_of_a_long_conversation_is_read_spread_over_all_of_it() -> None:
    read: set[int] = set()
    app = Host(*long_conversation(read), heat=Heat.ENTROPY)
    async with app.run_test(size=(60, 12)) as pilot:
        app.transcript.percentile = True
        await pilot.pause()
        scale = app.transcript.scales[Heat.ENTROPY]
    assert len(read) < 60
    entropies = sorted(index / 10 + message for index in range(100) for message in range(1000))
    assert scale.low == pytest.approx(entropies[60_000], rel=0.02)
    assert scale.high == pytest.approx(entropies[98_000], rel=0.02)


async def test_records_of_what_nobody_looks_at_are_not_read() -> None:
    read: set[int] = set()
    app = Host(*long_conversation(read, 100), heat=Heat.ENTROPY)
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        app.transcript.set_messages(long_conversation(read, 100))  # a copy, as a branch is
        while not app.transcript.settled:
            app.transcript.measure_some()
        await pilot.resize_terminal(50, 12)
        await pilot.pause()
        assert read <= {96, 97, 98, 99}
        app.transcript.first_message()
        await pilot.pause()
        assert read <= {0, 1, 2, 96, 97, 98, 99}


async def test_of_what_was_shown_long_ago_the_records_are_given_back_and_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chatapp.ui.transcript.document.REMEMBERED", 2000)
    read: set[int] = set()
    app = Host(*long_conversation(read, 40), heat=Heat.ENTROPY)
    async with app.run_test(size=(60, 12)) as pilot:
        transcript = app.transcript
        transcript.first_message()
        await pilot.pause()
        before, styles = screen_text(app), [list(strip) for strip in app.screen._compositor.render_strips()]
        for _ in range(38):
            transcript.move_message(1)
            await pilot.pause()
            assert len(read) <= 8
            assert transcript.document.index_of(transcript.message_cursor or "") in read
        transcript.first_message()
        await pilot.pause()
        assert screen_text(app) == before
        assert [list(strip) for strip in app.screen._compositor.render_strips()] == styles


async def test_a_click_on_folded_reasoning_unfolds_it() -> None:
    app = Host(reply("a", "<think>\nlet me see\n</think>\n\nThe answer"))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        x, y = find(app, "▸ reasoning")
        await pilot.click(Transcript, offset=Offset(x + 3, y))
        await pilot.pause()
        find(app, "let me see")


@pytest.mark.parametrize("kind", ["no_color", "16 colours"])
async def test_without_colours_the_heat_is_underlined(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    if kind == "no_color":
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "standard")
    app = Host(reply("a", "calm", " doubt", hot=(1,)), heat=Heat.ENTROPY)
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.pause()
        x, y = find(app, "calm doubt")
        assert not style_at(app, x, y).underline2
        assert style_at(app, x + 6, y).underline2


async def test_walking_down_from_the_start_of_a_long_conversation_shows_each_message() -> None:
    """Heights that were guessed too low must not push the message walked to out of view."""
    app = Host(*(user(f"m{number}", f"start {number}\n\n" + "- item\n" * (number % 7)) for number in range(60)))
    async with app.run_test(size=(30, 12)) as pilot:
        transcript = app.transcript
        transcript.first_message()
        for number in range(1, 60):
            transcript.move_message(1)
            await pilot.pause()
            find(app, f"start {number}")


def hot(id: str, *pieces: str) -> MessageView:
    records = [token(number, piece, 9.0) for number, piece in enumerate(pieces)]
    return MessageView(id, "assistant", "".join(pieces), records, "tiny")


async def test_what_the_model_forgot_is_dimmed_above_a_line() -> None:
    app = Host(
        MessageView("s", "system", "rules"), user("u", "old"), reply("a", "half old\n\nhalf new"), user("v", "new")
    )
    async with app.run_test(size=(70, 24)) as pilot:
        await pilot.pause()
        transcript = app.transcript
        transcript.set_memory(Memory(("a", len("half old\n\n")), frozenset({"s"})))
        await pilot.pause()
        rows = screen_text(app)
        rule = next(y for y, row in enumerate(rows) if "does not see what is above" in row)
        assert find(app, "half old")[1] < rule < find(app, "half new")[1]
        plain = transcript.palette.look(TEXT)
        assert style_at(app, *find(app, "rules")) == plain
        assert style_at(app, *find(app, "old")) != plain
        assert style_at(app, *find(app, "half old")) != plain
        assert style_at(app, *find(app, "half new")) == plain
        transcript.heat = Heat.ENTROPY  # the heat lies over it, and is as faint
        transcript.replace("a", hot("a", "half old\n\n", "half new"))
        await pilot.pause()
        palette = transcript.palette
        faint, full = (style_at(app, *find(app, words)).bgcolor for words in ("half old", "half new"))
        assert full == palette.heated(plain, Heat.ENTROPY, LEVELS, 0).bgcolor
        assert palette.base.bgcolor != faint != full
        # All that is above is kept: nothing was forgotten, and no line is drawn.
        transcript.set_memory(Memory(("u", 0), frozenset({"s"})))
        await pilot.pause()
        assert "does not see" not in "\n".join(screen_text(app))


async def test_replacing_a_reply_by_a_sibling_keeps_the_cursor() -> None:
    app = Host(user("u", "q"), reply("a", "one", " two"))
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        app.transcript.focus_token("a", 1)
        app.transcript.replace("a", reply("b", "uno"))
        await pilot.pause()
        assert app.transcript.message_cursor == "b"
        assert app.transcript.token_cursor is None
        assert "uno" in "\n".join(screen_text(app))
        app.transcript.replace("gone", reply("c", "x"))  # went away meanwhile: nothing happens
        app.transcript.append_tokens("gone", tokens("x"))


@pytest.mark.parametrize("size", [(40, 15), (12, 4), (5, 2), (80, 24)])
async def test_any_size_draws(size: tuple[int, int]) -> None:
    app = Host(user("u", PARAGRAPHS + "\n```python\nx = 1\n```\n| a | b |\n|---|---|\n| 1 | 2 |"), reply("a", "hi"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.transcript.first_message()
        await pilot.pause()
        assert all(strip.cell_length == size[0] for strip in app.screen._compositor.render_strips())


@pytest.mark.parametrize("remembered", [0, 100_000])
async def test_random_use_shows_what_a_fresh_widget_shows(monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    """After any sequence of changes the screen equals that of a widget that was given the end state at once."""
    monkeypatch.setattr("chatapp.ui.transcript.document.REMEMBERED", remembered)
    rng = random.Random(7)
    app = Host(user("u", "q"))
    contents: dict[str, str] = {"u": "q"}
    async with app.run_test(size=(50, 18)) as pilot:
        transcript = app.transcript
        streamed: dict[str, list] = {"u": []}
        for step in range(120):
            match rng.randrange(5):
                case 0:
                    message_id = f"m{step}"
                    contents[message_id], streamed[message_id] = "", []
                case 1 | 2:
                    message_id = rng.choice(list(contents))
                    piece = rng.choice(["word ", "**", "\n\n", "```\n", "- x\n", "你好", "a | b\n", "-|-\n"])
                    one = token(len(streamed[message_id]), piece, rng.random() * 3)
                    if message_id != "u":
                        contents[message_id] += piece
                        streamed[message_id].append(one)
                        transcript.append_tokens(message_id, [one])
                    continue
                case 3:
                    transcript.move_message(rng.choice([-1, 1]))
                    await pilot.pause()
                    continue
                case _:
                    transcript.heat = rng.choice(list(Heat))
                    await pilot.resize_terminal(rng.randint(20, 60), rng.randint(6, 20))
                    continue
            transcript.set_messages(views(contents, streamed))
        transcript.focus_message(None)
        await pilot.resize_terminal(50, 18)
        transcript.heat = Heat.BOTH
        transcript.follow()
        settle(transcript)  # the scrollbar shows heights, which are guessed until then
        await pilot.pause()
        shown = screen_text(app)
    fresh = Host(*views(contents, streamed), heat=Heat.BOTH)
    async with fresh.run_test(size=(50, 18)) as pilot:
        await pilot.pause()
        settle(fresh.transcript)
        await pilot.pause()
        assert screen_text(fresh) == shown


def views(contents: dict[str, str], streamed: dict[str, list]) -> list[MessageView]:
    return [
        MessageView(
            message_id,
            "user" if message_id == "u" else "assistant",
            content,
            tuple(streamed[message_id]),
            "tiny",
            streaming=True,
        )
        for message_id, content in contents.items()
    ]


async def test_themes_change_the_colours_at_once() -> None:
    app = Host(user("u", "hello"))
    async with app.run_test(size=(40, 8)) as pilot:
        await pilot.pause()
        app.theme = "textual-light"
        await pilot.pause()
        await pilot.pause()
        background = style_at(app, *find(app, "hello")).bgcolor
        assert background is not None
        assert Color.from_rich_color(background) == Color.parse(app.theme_variables["background"])


async def test_text_that_streams_moves_the_scrollbar_without_a_layout_of_the_screen() -> None:
    """Names what `virtual.py` assumes of Textual: the scrollbar and the scroll limit follow the virtual size."""
    app = Host(reply("a", *(f"line {i}\n\n" for i in range(40)), streaming=True))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        view = app.transcript
        layouts: list[object] = []
        app.screen.screen_layout_refresh_signal.subscribe(view, layouts.append)
        view.append_tokens("a", tokens(*(f"more {i}\n\n" for i in range(20))))
        await pilot.pause()
        assert layouts == []
        assert view.vertical_scrollbar.window_virtual_size == view.document.height == view.virtual_size.height
        assert view.scroll_offset.y == view.max_scroll_y == view.document.height - 12
        assert "more 19" in "".join(screen_text(app))


async def test_a_token_that_was_focused_before_there_was_room_is_in_view_later() -> None:
    class Early(Host):
        def on_mount(self) -> None:
            super().on_mount()
            self.transcript.focus_token("a", 3)
            assert not self.transcript.size

    app = Early(reply("a", *(f"line {i}\n\n" for i in range(80))))
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        assert "line 3" in "".join(screen_text(app))
