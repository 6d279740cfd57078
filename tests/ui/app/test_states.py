"""Every action of the table while a reply is on its way or an editor is open: it is safe, or refused with a reason."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import pytest
from textual.actions import SkipAction

from chatapp.ui.keymap import ACTIONS
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine

#: What changes the tree or needs the engine: refused while a reply is on its way.
CHANGES_THE_TREE = {
    *(f"message.{name}" for name in ("edit", "edit_external", "regenerate", "candidates", "extend", "older", "newer")),
    *(f"message.{name}" for name in ("delete", "undo", "redo")),
    *(f"branch.{name}" for name in ("list", "name", "unname", "delete")),
    *("prompt.send", "chat.system", "app.model", "list.delete"),
}

#: Refused while an editor is open, beside what changes the tree: what takes the keyboard away from it for good.
LEAVES_THE_EDITOR = {"app.new", "list.open", "message.branch", "chat.rename", "message.next", "prompt.external"}

#: What ends the state itself; each has a test of its own.
ENDS_A_REPLY = {"chat.stop", "prompt.escape", "message.escape", "app.restart", "app.quit"}
ENDS_AN_EDIT = {"edit.confirm", "edit.cancel", "app.quit"}

#: Arguments with which an action does its work at once, without a dialog.
ARGUMENTS = {
    "app.model": "other",
    "app.theme": "no such theme",
    "branch.name": "mine",
    "chat.export": "out.md",
    "chat.pause": "3",
    "chat.rename": "New title",
    "chat.save_elsewhere": "copies",
    "chat.set": "top_k 5",
    "chat.system": "Be brief.",
    "token.pick": "2",
}


async def do(s: Stage, id: str) -> None:
    """Runs an action and leaves what it opened."""
    s.warned.clear()
    with contextlib.suppress(SkipAction):  # there is nothing to scroll: Textual passes the key on
        await s.screen.run(id, ARGUMENTS.get(id, ""))
    await s.served()
    while s.app.screen is not s.screen:
        await s.app.pop_screen()


async def send(s: Stage, text: str) -> None:
    s.screen.focus_prompt()
    s.screen.prompt.area.show_text(text)
    await s.screen.run("prompt.send")


async def a_reply_streams(s: Stage) -> None:
    s.engine.gate.clear()
    await send(s, "third")
    await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.written)


async def a_prompt_is_read(s: Stage) -> None:
    s.engine.prefill_steps, s.engine.prefill_delay = 1_000_000, 0.05
    await send(s, "third")
    await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.stage == "prefill")


async def the_model_loads(s: Stage) -> None:
    s.engine.loading.clear()
    await s.screen.run("app.model", "other")
    await send(s, "third")
    await s.until(lambda: s.workspace.chat.reply)


#: Where the cursor of the transcript is: on a message of the person, on the last message, on a token of a reply.
def at_first(s: Stage) -> None:
    s.screen.transcript.leave_tokens()
    s.screen.transcript.first_message()


def at_last(s: Stage) -> None:
    s.screen.transcript.leave_tokens()
    s.screen.transcript.last_message()


def at_token(s: Stage) -> None:
    at_first(s)
    s.screen.transcript.focus_token(s.screen.transcript.document.entries[1].id, 0)


async def talk(s: Stage) -> None:
    """Two turns, an alternative and a named branch: nothing is refused for want of something to work on."""
    await s.say("first")
    await s.say("second")
    s.screen.transcript.last_message()
    await s.screen.run("message.regenerate")
    await s.settled()
    await s.screen.run("branch.name", "known")
    await s.screen.run("app.conversations")


@pytest.mark.parametrize("place", [at_first, at_last, at_token], ids=lambda place: place.__name__)
@pytest.mark.parametrize("state", [a_reply_streams, a_prompt_is_read, the_model_loads], ids=lambda s: s.__name__)
async def test_while_a_reply_is_on_its_way(
    tmp_path, monkeypatch, state: Callable[[Stage], Awaitable[None]], place: Callable[[Stage], None]
):
    monkeypatch.chdir(tmp_path)
    async with stage(tmp_path / "chats", FakeEngine(models=("fake-model", "other"))) as s:
        await talk(s)
        await state(s)
        chat = s.workspace.chat
        reply, path = chat.reply, [message.id for message in chat.path()]
        for action in ACTIONS:
            if action.id in ENDS_A_REPLY:
                continue
            place(s)
            s.screen.prompt.area.show_text("typed" if action.id == "prompt.send" else "")
            await do(s, action.id)
            assert chat.reply is reply, action.id
            assert [message.id for message in chat.path()] == path, action.id
            assert s.warned or action.id not in CHANGES_THE_TREE, f"{action.id} was neither done nor refused"
            if s.workspace.chat is not chat:
                s.workspace.open(chat.id)
                s.screen.show_chat()
        assert not s.screen.edit_box.display
        chat.stop()
        s.engine.loading.set()
        await s.settled()
        assert set(path) <= set(s.store.open(chat.id, read_only=True).conversation.messages)


@pytest.mark.parametrize("what", ["message.edit", "chat.system"])
async def test_while_an_editor_is_open(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    async with stage(tmp_path / "chats", FakeEngine(models=("fake-model", "other"))) as s:
        await talk(s)
        at_first(s)
        await s.screen.run(what)
        editing, chat = s.screen.edit_box.editing, s.workspace.chat
        assert editing is not None
        path, requests = [message.id for message in chat.path()], len(s.engine.requests)
        for action in ACTIONS:
            if action.id in ENDS_AN_EDIT:
                continue
            s.screen.edit_box.area.show_text("half done")
            await do(s, action.id)
            assert s.screen.edit_box.editing is editing, action.id
            assert s.screen.edit_box.area.full_text.strip() == "half done", action.id
            assert s.workspace.chat is chat, action.id
            assert [message.id for message in chat.path()] == path, action.id
            if action.id in (CHANGES_THE_TREE | LEAVES_THE_EDITOR) - {"app.model"}:
                assert "Finish the edit first" in s.warned[0], action.id
        assert [type(request).__name__ for request in s.engine.requests[requests:]] != []
        s.screen.focus_prompt()
        await s.press("escape")
        assert s.screen.edit_box.editing is None


async def test_leaving_with_an_edit_open_is_asked_twice(tmp_path):
    async with stage(tmp_path, FakeEngine()) as s:
        await s.say("one")
        await s.press("escape", "e", "x", "ctrl+q")
        assert s.app.is_running
        assert any("not taken over yet" in text for text in s.warned)
        await s.press("ctrl+q")
        await s.until(lambda: not s.app.is_running)


@pytest.mark.parametrize("state", [a_prompt_is_read, the_model_loads], ids=lambda s: s.__name__)
async def test_escape_gives_the_prompt_back_at_once(tmp_path, state: Callable[[Stage], Awaitable[None]]):
    async with stage(tmp_path, FakeEngine(models=("fake-model", "other"))) as s:
        await s.say("first")
        await state(s)
        await s.press("escape")
        await s.until(lambda: not s.workspace.chat.busy)
        s.screen.tick()
        assert s.screen.prompt.area.text == "third"
        assert len(s.texts) == 2


async def test_a_reply_that_waits_for_another_one_is_stopped_at_once(tmp_path):
    async with stage(tmp_path, FakeEngine()) as s:
        await s.say("first")
        await a_reply_streams(s)
        other = s.workspace.chat
        await s.press("ctrl+n")
        await send(s, "behind it")
        await s.press("escape")
        await s.until(lambda: s.screen.prompt.area.text == "behind it")
        assert other.busy
        s.engine.gate.set()
        await s.until(lambda: not other.busy)


async def test_an_edit_that_is_stopped_before_it_is_read_stays_and_can_be_taken_back(tmp_path):
    async with stage(tmp_path, FakeEngine()) as s:
        await s.say("first")
        await s.say("second")
        s.engine.prefill_steps, s.engine.prefill_delay = 1_000_000, 0.01
        await s.press("escape", "g", "e", "x", "enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.stage == "prefill")
        await s.press("escape")
        await s.settled()
        assert s.texts == ["firstx"]
        await s.press("u")
        assert s.texts[0] == "first"
        assert len(s.texts) == 4
