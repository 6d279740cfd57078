"""Which program takes what is copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatapp.ui import clipboard


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
    by_terminal: list[str] = []
    await clipboard.copy("text\n永", by_terminal.append)
    assert by_terminal == []
    assert (installed / "copied").read_text() == "text\n永"
    assert (installed / "arguments").read_text() == "load-buffer -w -\n"


async def test_where_the_program_fails_the_terminal_copies(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "tmux").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(clipboard, "program", lambda: clipboard._TMUX[1])
    by_terminal: list[str] = []
    await clipboard.copy("text", by_terminal.append)
    assert by_terminal == ["text"]
