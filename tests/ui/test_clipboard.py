"""Which program takes what is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatapp.ui import clipboard
from tests.ui.app.stage import stage


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with xclip and a tmux that keeps what it is given."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    for name in ("xclip", "tmux"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/arguments"\ncat > "{tmp_path}/copied"\n')
        (tmp_path / name).chmod(0o700)
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"DISPLAY": ":0"}, "xclip"),
        ({"DISPLAY": ":0", "TMUX": "socket"}, "xclip"),
        ({"TMUX": "socket"}, "tmux"),
        ({"DISPLAY": ":0", "TMUX": "socket", "SSH_TTY": "tty"}, "tmux"),
        ({"DISPLAY": ":0", "SSH_TTY": "tty"}, None),
    ],
)
@pytest.mark.usefixtures("installed")
def test_the_program_nearest_to_the_person_is_chosen(environment: dict[str, str], expected: str | None) -> None:
    found = clipboard.program(environment)
    assert (found[0] if found else None) == expected


async def test_tmux_hands_the_text_on_to_the_terminal(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipboard, "program", lambda: clipboard._TMUX[1])
    assert await clipboard.copy("text\n永\ud800")
    assert (installed / "copied").read_text() == "text\n永?"
    assert (installed / "arguments").read_text() == "load-buffer -w -\n"


async def test_a_program_that_fails_is_noticed(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "tmux").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(clipboard, "program", lambda: clipboard._TMUX[1])
    assert not await clipboard.copy("text")


async def test_whatever_is_copied_reaches_the_program(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A selection in the prompt by Ctrl+C as well as a message by its key, lone surrogates included."""
    monkeypatch.setattr(clipboard, "program", lambda: clipboard._TMUX[1])
    copied = installed / "copied"
    async with stage(tmp_path / "chats") as s:
        await s.say("a message")
        await s.press("escape", "k", "y")
        await s.until(lambda: copied.exists() and copied.read_text() == "a message")
        s.app.copy_to_clipboard("lone \ud800")
        await s.until(lambda: copied.read_text() == "lone ?")
        await s.press("i")
        s.screen.prompt.area.show_text("in the prompt")
        s.screen.prompt.area.select_all()
        await s.press("ctrl+c")
        await s.until(lambda: copied.read_text() == "in the prompt")
        assert s.app.clipboard == "in the prompt"
