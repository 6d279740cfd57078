"""Texts in the person's own editor: what comes back, what is said when nothing does, and that replies go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.app import SuspendNotSupported

from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a shell script the person's editor."""
    monkeypatch.delenv("VISUAL", raising=False)

    def use(script: str) -> None:
        program = tmp_path / "my editor"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
        monkeypatch.setenv("EDITOR", f"'{program}' -w")

    return use


def hand_over(s: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' app has no terminal to hand over."""
    monkeypatch.setattr(s.app, "suspend", contextlib.nullcontext)


async def test_a_prompt_and_a_message_come_back_edited(tmp_path, monkeypatch, editor):
    editor('test "$1" = -w && printf "%s, edited\\n" "$(cat "$2")" > "$2.new" && mv "$2.new" "$2"')
    async with stage(tmp_path / "chats") as s:
        hand_over(s, monkeypatch)
        area = s.screen.prompt.area
        area.show_text("two\nlines")
        await s.press("ctrl+g")
        await s.until(lambda: area.full_text == "two\nlines, edited")
        await s.say("first")
        s.screen.focus_transcript()
        s.screen.transcript.first_message()
        await s.press("E")
        await s.until(lambda: s.screen.edit_box.editing is not None)
        assert s.screen.edit_box.area.full_text == "first, edited"
        await s.press("ctrl+g")
        await s.until(lambda: s.screen.edit_box.area.full_text == "first, edited, edited")
        await s.press("enter")
        await s.settled()
        assert s.reopened()[0] == "first, edited, edited"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "ended with code 3"),
        ('rm "$2"', "left no file behind"),
        ("exit 0", "left the text as it was"),
        (None, "could not be started"),
        ("'unfinished", "is no command"),
    ],
)
async def test_where_nothing_comes_back_all_stays_as_it_was(tmp_path, monkeypatch, editor, script, said):
    editor(script or "")
    if script is None:
        monkeypatch.setenv("EDITOR", str(tmp_path / "nowhere"))
    if script == "'unfinished":
        monkeypatch.setenv("EDITOR", script)
    async with stage(tmp_path / "chats") as s:
        hand_over(s, monkeypatch)
        await s.say("first")
        s.screen.prompt.area.show_text("draft")
        for keys in (["ctrl+g"], ["escape", "E"]):
            s.warned.clear()
            await s.press(*keys)
            await s.until(lambda: s.warned)
            assert said in s.warned[0]
        assert s.screen.prompt.area.full_text == "draft"
        assert s.screen.edit_box.editing is None


async def test_a_terminal_that_cannot_be_handed_over_is_said(tmp_path, monkeypatch, editor):
    editor("exit 0")
    async with stage(tmp_path / "chats") as s:

        def no_suspend():
            raise SuspendNotSupported

        monkeypatch.setattr(s.app, "suspend", no_suspend)
        await s.press("ctrl+g")
        await s.until(lambda: s.warned)
        assert "cannot be handed" in s.warned[0]


async def test_a_reply_goes_on_while_an_editor_is_open(tmp_path, monkeypatch, editor):
    done, opened = tmp_path / "done", tmp_path / "opened"
    editor(f'touch "{opened}"; until test -e "{done}"; do sleep 0.02; done; printf late > "$2"')
    async with stage(tmp_path / "chats", FakeEngine()) as s:
        hand_over(s, monkeypatch)
        s.engine.gate.clear()
        s.screen.prompt.area.show_text("first")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.written)
        await s.press("ctrl+g")
        await s.until(opened.exists)
        s.engine.gate.set()
        await s.until(lambda: len(s.reopened()) == 2 and not s.workspace.chat.busy)
        assert s.screen.prompt.area.full_text == ""
        done.touch()
        await s.until(lambda: s.screen.prompt.area.full_text == "late")
