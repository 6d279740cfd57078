"""The terminal is given back and taken again: to an editor, to the shell, and at an end that nobody asked for.

No model is needed: what is told is that none is loaded, and all else works.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.terminal.terminal import Terminal

pytestmark = [pytest.mark.terminal, pytest.mark.timeout(300)]

CTRL_G = "\x07"


@pytest.fixture
def start(private_folders: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts the program without a model; whatever still runs is ended."""
    config = private_folders / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text(f'model = "{private_folders / "no-model"}"\n')
    running: list[Terminal] = []

    def begin(editor: str = "vi") -> Terminal:
        terminal = Terminal(environment={"EDITOR": editor, "VISUAL": ""})
        running.append(terminal)
        terminal.until("not loaded")
        terminal.child.send("draft")
        terminal.until("draft")
        return terminal

    yield begin
    for terminal in running:
        if terminal.child.isalive():
            terminal.kill()


def drafts(folder: Path) -> list[str]:
    return [path.read_text() for path in (folder / "data" / "drafts").glob("*.txt")]


def test_an_editor_that_is_not_there_leaves_the_terminal_to_chatapp(start: Callable[..., Terminal]) -> None:
    t = start(editor="/no/such/editor")
    t.keys(CTRL_G)
    t.until("could not be started")
    t.keys("s")
    t.until("drafts")
    assert t.leave() == 0


def test_an_editor_has_the_terminal_for_itself(start: Callable[..., Terminal], tmp_path: Path) -> None:
    """Ctrl+C in it ends neither chatapp nor what it does; the size may change meanwhile."""
    program = tmp_path / "editor"
    program.write_text(
        '#!/bin/sh\ntrap "printf edited > $1; exit 0" INT\necho in the editor\nwhile :; do sleep 0.1; done\n'
    )
    program.chmod(0o700)
    t = start(editor=str(program))
    t.keys(CTRL_G)
    t.until("in the editor")
    t.resize(90, 25)
    t.keys("\x03")
    t.until(lambda screen: "edited" in screen and "Write" not in screen and screen.splitlines()[-1].strip())
    t.keys("!")
    t.until("edited!")
    assert t.leave() == 0


def test_a_signal_ends_it_as_its_key_does(start: Callable[..., Terminal], private_folders: Path) -> None:
    t = start()
    engine = t.engine()
    t.keys("!")
    t.until("draft!")
    t.child.kill(signal.SIGTERM)
    last = t.child.read()
    t.child.close()
    assert t.child.exitstatus == 128 + signal.SIGTERM
    assert drafts(private_folders) == ["draft!"]
    psutil.wait_procs([engine], timeout=30)
    assert not engine.is_running()
    assert b"\x1b[?1049l" in last
    assert b"\x1b[?1003l" in last
    assert b"Traceback" not in last


def test_a_closed_terminal_ends_it(start: Callable[..., Terminal], private_folders: Path) -> None:
    t = start()
    engine = t.engine()
    t.keys("!")
    t.until("draft!")
    os.close(t.child.child_fd)
    psutil.wait_procs([engine], timeout=60)
    assert not engine.is_running()
    assert t.child.wait() == 128 + signal.SIGHUP
    assert drafts(private_folders) == ["draft!"]


def test_a_terminal_that_cannot_show_a_screen_is_told_what_works_in_it() -> None:
    t = Terminal(environment={"TERM": "dumb"})
    t.until("`chatapp ask` works in it")
    assert t.child.wait() == 2
