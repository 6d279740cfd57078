"""Keys that come faster than they are served, as on a busy machine, act in the order in which they came."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.widgets import Input

from chatapp.ui.key_order import PATIENCE
from chatapp.ui.screens.ask import AskScreen
from chatapp.ui.screens.clock import Clock
from chatapp.ui.screens.compare import CompareScreen
from chatapp.ui.widgets.chat_list import ChatList, ChatOptions
from tests.ui.app.stage import Stage, stage


def burst(s: Stage, *keys: str) -> None:
    """Keys that are all there before the first of them is served."""
    for key in keys:
        s.app.post_message(events.Key(key, key if len(key) == 1 else {"slash": "/"}.get(key)))


@pytest.mark.parametrize("editor", [False, True])
async def test_in_a_writing_area(tmp_path, editor):
    """Bindings bubble and letters do not: deletions came after what was typed behind them."""
    async with stage(tmp_path) as s:
        if editor:
            await s.say("one")
            await s.press("escape", "k", "e")
            await s.until(lambda: s.screen.edit_box.editing)
        area = s.screen.edit_box.area if editor else s.screen.prompt.area
        area.show_text("hello")
        burst(s, "backspace", "backspace", "x", "left", "y", "home", "z", "ctrl+z", "end", "!")
        await s.until(lambda: area.text.endswith("!"))
        assert area.text == "helyx!"


async def test_what_is_typed_behind_enter_is_the_next_message(tmp_path):
    async with stage(tmp_path) as s:
        burst(s, "h", "i", "enter", "n", "e", "x", "t")
        await s.until(lambda: s.screen.prompt.area.text)
        await s.settled()
        assert s.texts[0] == "hi"
        assert s.screen.prompt.area.text == "next"


async def test_a_paste_between_keys(tmp_path):
    async with stage(tmp_path) as s:
        s.screen.prompt.area.show_text("ab")
        burst(s, "backspace")
        s.app.post_message(events.Paste("pasted"))
        burst(s, "left", "x", "end", "!")
        await s.until(lambda: s.screen.prompt.area.text.endswith("!"))
        assert s.screen.prompt.area.text == "apastexd!"


async def test_tab_takes_the_completion_of_all_that_was_typed_before_it(tmp_path):
    async with stage(tmp_path) as s:
        burst(s, "slash", "h", "e", "a", "tab")
        await s.until(lambda: s.screen.prompt.area.text.startswith("/heat"))


@pytest.mark.parametrize("seconds", [0, 3 * PATIENCE])
async def test_in_the_fields_of_the_list_and_of_a_dialog(tmp_path, monkeypatch, seconds):
    """Also where the dialog takes its time to come."""

    async def composing(_):
        await asyncio.sleep(seconds)

    monkeypatch.setattr(AskScreen, "on_compose", composing, raising=False)
    async with stage(tmp_path, size=(120, 30)) as s:
        await s.say("about tea")
        first = s.workspace.chat.id
        await s.press("ctrl+n")
        await s.say("about coffee")
        await s.press("f3")
        await s.until(lambda: s.screen.query(ChatList) and s.screen.query_one(ChatOptions).option_count == 2)
        chats = s.screen.query_one(ChatList)
        await s.until(lambda: chats.chosen and chats.chosen.id != first)
        # The letters behind r are for the dialog that r opens, and Up behind Enter is for the list again.
        burst(s, "down", "r", "c", "u", "x", "backspace", "p", "enter", "up")
        await s.until(lambda: "cup" in {each.title for each in s.store.summaries()})
        await s.until(lambda: chats.chosen and chats.chosen.id != first)
        burst(s, "slash", "c", "u", "x", "backspace", "q", "left", "delete", "p")
        field = s.screen.query_one("#chats-search", Input)
        await s.until(lambda: field.value.endswith("p"))
        assert field.value == "cup"


async def test_a_second_enter_does_not_answer_twice(tmp_path):
    async with stage(tmp_path) as s:
        answers: list[str | None] = []
        s.screen.ask(AskScreen("What?", "a"), answers.append)
        await s.until(lambda: isinstance(s.app.focused, Input))
        burst(s, "b", "enter", "enter", "enter")
        await s.until(lambda: answers and s.app.screen is s.screen)
        await s.served()
        assert answers == ["b"]  # what stood there was selected


async def test_no_key_waits_long_for_one_that_is_held_up(tmp_path):
    async with stage(tmp_path) as s:
        held = asyncio.Event()
        s.screen.call_later(held.wait)
        burst(s, "a", "b", "c")
        for _ in range(1000):
            if s.screen.prompt.area.text == "abc":
                break
            await asyncio.sleep(0.01)
        held.set()
        assert s.screen.prompt.area.text == "abc"


async def test_a_key_is_about_the_conversation_as_it_is_when_the_screen_is_behind(tmp_path, monkeypatch):
    """A reply that came and went between two ticks: the transcript still shows the one before it."""
    ticking = True
    tick = Clock.tick
    monkeypatch.setattr(Clock, "tick", lambda clock: tick(clock) if ticking else None)
    async with stage(tmp_path) as s:
        await s.say("hello")
        await s.press("escape")
        old = s.workspace.chat.path()[-1].id
        ticking = False
        s.workspace.chat.regenerate(old)
        await s.until(lambda: not s.workspace.chat.busy)
        assert s.screen.transcript.document.entries[-1].id == old
        await s.screen.run("message.edit")
        assert s.screen.edit_box.editing is not None
        assert s.screen.edit_box.editing.id == s.workspace.chat.path()[-1].id != old
        ticking = True


async def test_a_key_that_was_under_way_when_a_dialog_opened_breaks_nothing(tmp_path):
    """It comes back to the app when the dialog is on the stack and has no widgets yet."""
    async with stage(tmp_path) as s:
        await s.say("hello")
        views = s.screen.views.shown()
        dialog = CompareScreen("Replies", views, 0, s.screen.transcript)
        mounted = s.app.push_screen(dialog)
        for key in ("down", "right", "enter"):
            assert not await s.app._check_bindings(key)
        await mounted
        await s.press("escape")
        assert s.app.screen is s.screen
