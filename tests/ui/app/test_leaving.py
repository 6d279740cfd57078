"""Leaving while the disk does not take what was written: asked about, kept, and never lost silently."""

from __future__ import annotations

import errno

import pytest
from textual import events

from chatapp.conversation.store import Store
from chatapp.ui.screens.ask import AskScreen
from chatapp.ui.screens.pick import PickScreen
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine


class FullDisk:
    """Refuses all writing to the conversations' files while ``full``."""

    def __init__(self, s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        write = type(s.store._files).write

        def no_room(files, *arguments):
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(files, *arguments)

        monkeypatch.setattr(type(s.store._files), "write", no_room)


async def test_leaving_with_unsaved_changes_asks_and_writes_them_elsewhere(tmp_path, monkeypatch):
    async with stage(tmp_path / "chats") as s:
        FullDisk(s, monkeypatch)
        await s.say("hello")
        shown = s.texts
        await s.press("ctrl+q")
        await s.until(lambda: isinstance(s.app.screen, PickScreen))
        assert s.app.is_running
        await s.press("down", "enter")
        await s.until(lambda: isinstance(s.app.screen, AskScreen))
        await s.press("ctrl+a", "ctrl+k")
        await s.type(str(tmp_path / "stick"))
        await s.press("enter")
        await s.until(lambda: not s.app.is_running or s.app._exit)
        id = s.workspace.chat.id
    assert any(str(tmp_path / "stick") in sentence for sentence in s.app.farewell)
    copy = Store(tmp_path / "stick").open(id, read_only=True)
    assert [message.content for message in copy.conversation.path()] == shown


async def test_leaving_tries_to_save_first(tmp_path, monkeypatch):
    async with stage(tmp_path / "chats") as s:
        disk = FullDisk(s, monkeypatch)
        await s.say("hello")
        shown = s.texts
        disk.full = False
        await s.press("ctrl+q")
        await s.until(lambda: s.app._exit)
        id = s.workspace.chat.id
    saved = Store(tmp_path / "chats").open(id, read_only=True)
    assert [message.content for message in saved.conversation.path()] == shown


async def test_a_conversation_with_unsaved_changes_stays_open_when_another_is_shown(tmp_path, monkeypatch):
    async with stage(tmp_path / "chats") as s:
        disk = FullDisk(s, monkeypatch)
        await s.say("hello")
        first, shown = s.workspace.chat, s.texts
        await s.press("ctrl+n")
        assert [chat.id for chat in s.workspace.unsaved()] == [first.id]
        s.screen.tick()
        assert f"“{first.session.conversation.title}” is not saved" in str(s.screen.banner.render())
        disk.full = False
        s.workspace.tend()
        assert s.workspace.unsaved() == []
        kept = s.store.open(first.id, read_only=True).conversation.path()
        assert [message.content for message in kept] == shown


async def test_a_draft_that_the_disk_does_not_take_is_kept_while_it_runs_and_told_at_the_end(tmp_path, monkeypatch):
    def no_room(path, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    async with stage(tmp_path / "chats") as s:
        await s.say("hello")
        first = s.workspace.chat.id
        monkeypatch.setattr("chatapp.ui.prompt.drafts.write_private", no_room)
        await s.type("half a thought")
        await s.press("ctrl+n")
        assert any("could not be saved" in sentence for sentence in s.warned)
        s.workspace.open(first)
        s.screen.show_chat()
        assert s.screen.prompt.area.full_text == "half a thought"
        await s.press("ctrl+q")
        await s.until(lambda: s.app._exit)
    assert s.app.farewell == ["This draft could not be saved: half a thought"]


@pytest.mark.parametrize("reading", [True, False])
async def test_a_message_that_was_not_read_yet_is_there_next_time(tmp_path, reading):
    """Whether the engine reads it, or still loads the model: Esc would give it back to the prompt, which is gone."""
    engine = FakeEngine(prefill_steps=1000, prefill_delay=0.05)
    if not reading:
        engine.loading.clear()
    async with stage(tmp_path, engine, ready=reading) as s:
        await s.type("an important question")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply is not None)
        if reading:
            await s.until(lambda: s.workspace.chat.reply.stage == "prefill")
        await s.press("ctrl+q")
        await s.until(lambda: s.app._exit)
        id = s.workspace.chat.id
    saved = Store(tmp_path).open(id, read_only=True)
    assert [message.content for message in saved.conversation.path()] == ["an important question"]


async def test_keys_that_are_still_under_way_when_the_app_ends_break_nothing(tmp_path):
    async with stage(tmp_path) as s:
        pass
    assert s.app.screen_stack == []
    for returning in (False, True):
        key = events.Key("a", "a")
        if returning:  # it comes back from a widget, and the app would look for bindings
            key._set_forwarded()
        await s.app.on_event(key)
    assert s.app._exception is None
