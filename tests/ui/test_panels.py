"""Panels by themselves: the list of conversations and the help, at sizes that are awkward."""

from __future__ import annotations

import math

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from chatapp.conversation.store import Store
from chatapp.ui.keymap import ACTIONS, Keymap
from chatapp.ui.screens.help import help_text
from chatapp.ui.widgets.chat_list import ChatList, Entry
from chatapp.ui.widgets.side import InspectorPanel
from tests.ui.app.stage import Stage, stage


async def test_lines_that_came_before_the_list_had_its_size_are_whole(tmp_path):
    class Host(App[None]):
        def compose(self) -> ComposeResult:
            self.chats = ChatList(Store(tmp_path))
            self.chats.reload = lambda: self.chats._show([Entry("a", "永遠に " * 20, "now · 2 messages")])
            yield self.chats

    app = Host()
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.pause()
        screen = ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]
        assert any(line.strip().startswith("now · 2 messages") for line in screen), screen
        assert all(cell_len(line) == 40 for line in screen)


@pytest.mark.parametrize("width", [30, 37, 66, 73, 102, 150])
def test_the_help_fits_and_leaves_no_action_out(width):
    text = help_text(Keymap(), "transcript", width).plain
    assert max(cell_len(line) for line in text.split("\n")) <= width
    flat = " ".join(text.split())
    for action in ACTIONS:
        if not action.name.startswith("pick_"):
            assert width > 100 or action.keys or f"/{action.command}" in flat, action.id
            assert all(word in flat for word in action.help.split()), action.id


def drawn(s: Stage) -> list[str]:
    """The screen's rows as text."""
    return ["".join(segment.text for segment in strip) for strip in s.app.screen._compositor.render_strips()]


async def test_on_a_small_terminal_the_inspector_says_the_essential_in_three_lines(tmp_path):
    async with stage(tmp_path, size=(40, 15)) as s:
        await s.say("one")
        token = s.screen.transcript.document.entries[-1].tokens[1]
        await s.press("escape", "t", "l")
        await s.pilot.pause()
        shown = "\n".join(drawn(s))
        assert f"2/{len(s.screen.transcript.document.entries[-1].tokens)}" in shown
        assert f"H {token.entropy:.2f}  V {token.varentropy:.2f}  S {token.surprisal:.2f}  nats" in shown
        assert f"1 {token.top[0].text.replace(' ', '␣')} {100 * math.exp(token.top[0].logprob):.0f}%" in shown


async def test_beside_the_list_there_is_room_for_the_text(tmp_path):
    async with stage(tmp_path, size=(80, 24)) as s:
        await s.say("one")
        await s.press("escape", "t", "f3")
        await s.until(lambda: s.screen.query(ChatList))
        await s.pilot.pause()
        assert s.screen.transcript.size.width > 40
        await s.press("f3")
        await s.until(lambda: not s.screen.query(ChatList))
        await s.until(lambda: s.screen.query_one(InspectorPanel).size.width > 20)
