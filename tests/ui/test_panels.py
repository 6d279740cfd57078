"""Panels by themselves: the list of conversations and the help, at sizes that are awkward."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from chatapp.conversation.store import Store
from chatapp.ui.keymap import ACTIONS, Keymap
from chatapp.ui.screens.help import help_text
from chatapp.ui.widgets.chat_list import ChatList, Entry


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
