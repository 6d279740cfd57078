"""The whole program, with the real engine and the real default model, in a real terminal."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from chatapp.cli import main
from chatapp.conversation.store import Store
from tests.terminal.terminal import CTRL_J, ENTER, ESCAPE, F1, F3, F5, LEFT, UP, Terminal

pytestmark = [pytest.mark.terminal, pytest.mark.model, pytest.mark.timeout(600)]

CALM = "temperature = 0\nmax_tokens = 40\n"


@pytest.fixture
def start(default_model_dir: Path, private_folders: Path) -> Iterator[Callable[..., Terminal]]:
    """Starts the program on the default model with greedy, short replies; whatever still runs is ended."""
    config = private_folders / "config"
    config.mkdir(exist_ok=True)
    running: list[Terminal] = []

    def begin(*arguments: str, sampling: str = CALM, **options: int) -> Terminal:
        (config / "config.toml").write_text(f'model = "{default_model_dir}"\n[sampling]\n{sampling}')
        terminal = Terminal(*arguments, **options)
        running.append(terminal)
        return terminal

    yield begin
    for terminal in running:
        if terminal.child.isalive():
            terminal.kill()


def saved() -> list[str]:
    """The messages of the newest conversation on disk."""
    store = Store()
    id = store.latest()
    if not id:
        return []
    with contextlib.closing(store.open(id, read_only=True)) as session:
        return [m.content for m in session.conversation.path()]


def ask(terminal: Terminal, text: str) -> None:
    """Sends a message and waits for the whole reply."""
    terminal.until("· ready")
    terminal.keys(*text)
    terminal.until(text)
    before = len(saved())
    terminal.keys(ENTER)
    terminal.until(lambda screen: "· ready" in screen and len(saved()) >= before + 2)


def test_chat_quit_and_go_on(start: Callable[..., Terminal]) -> None:
    t = start()
    t.until("chatapp")
    ask(t, "What is the capital of France?")
    assert "Paris" in t.text
    assert "entropy" in t.text
    assert t.leave() == 0
    assert "Paris" in saved()[1]
    again = start("-c")
    again.until("Paris")
    ask(again, "And of Italy?")
    assert "reused" in again.text
    assert again.leave() == 0
    assert len(saved()) == 4


def test_stop_edit_regenerate_and_alternatives(start: Callable[..., Terminal]) -> None:
    t = start(sampling="temperature = 0\nmax_tokens = 400\n")
    t.until("· ready")
    t.keys(*"Tell a long story.", ENTER)
    t.until("writing")
    t.until("tok/s")
    t.keys(ESCAPE)
    t.until("stopped")
    t.until("· ready")
    first = saved()
    assert len(first) == 2
    t.keys(UP)
    t.until("Editing your message")
    t.keys(*" Briefly.")
    t.until("tokens again")
    t.keys(ENTER)
    t.until("writing")
    t.keys(ESCAPE)
    t.until("· ready")
    assert saved()[0] == "Tell a long story. Briefly."
    t.keys(ESCAPE)
    t.until("e Edit")
    t.keys("r")
    t.until("writing")
    t.keys(ESCAPE)
    t.until("· ready")
    t.until("2/2")
    t.keys(LEFT)
    t.until("1/2")
    assert t.leave() == 0


def test_pick_another_token_and_draw_its_reply_again(start: Callable[..., Terminal]) -> None:
    t = start(sampling="temperature = 0.8\nmax_tokens = 40\n")
    ask(t, "What is the capital of France?")
    before = saved()[1]
    t.keys(ESCAPE)
    t.until("t Tokens")
    t.keys("t")
    t.until("might have been")
    t.keys("2")
    if "2/2" not in t.until(lambda screen: "2/2" in screen or "the token it already is" in screen):
        t.keys("1")  # the second likeliest had been drawn
        t.until("2/2")
    t.until("· ready")
    assert saved()[1] != before
    assert len(saved()) == 2
    assert t.leave() == 0
    assert main(["show", Store().latest() or "", "--replay"]) == 0


def test_sizes_help_and_list(start: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    # As a worker of pytest-xdist finds them: the terminal's own size has to count, not these.
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    t = start(columns=80, rows=24)
    ask(t, "Hello!")
    for columns, rows in ((160, 50), (40, 15), (20, 6), (80, 24)):
        t.resize(columns, rows)
        # The prompt and, below it, the last line of the screen are drawn at the new size.
        t.until(lambda screen: "Write a" in screen and screen.splitlines()[-1].strip())
    t.until("Hello!")
    t.keys(F1)
    t.until("you are here")
    t.keys(ESCAPE)
    t.gone("you are here")
    t.keys(F3)
    t.until("now · 2 messages")
    t.keys(ESCAPE)
    t.keys("a", CTRL_J, "b")
    t.until(lambda screen: any(line.strip() == "b" for line in screen.splitlines()))
    assert t.leave() == 0


def test_nothing_is_lost_when_the_program_is_killed_while_it_streams(start: Callable[..., Terminal]) -> None:
    t = start(sampling="temperature = 0\nmax_tokens = 2000\n")
    t.until("· ready")
    t.keys(*"Tell a long story.", ENTER)
    t.until("writing")
    partial: list[str] = []
    folder = Path(os.environ["CHATAPP_DATA_DIR"]) / "conversations"
    t.until(lambda _: any('"partial"' in path.read_text() for path in folder.glob("*.jsonl")))
    engine = t.engine()
    t.kill()
    psutil.wait_procs([engine], timeout=30)
    assert not engine.is_running(), "the engine outlived the program"
    again = start("-c")
    again.until("Tell a long story.")
    again.until("cut off")
    partial = saved()
    assert len(partial) == 2
    assert len(partial[1]) > 3
    assert again.leave() == 0


def test_the_engine_is_killed_and_started_again_by_one_key(start: Callable[..., Terminal]) -> None:
    t = start()
    ask(t, "Hello!")
    t.engine().kill()
    t.until(lambda screen: "killed" in screen and "F5 starts" in screen)
    t.keys(F5)
    t.until("· ready")
    ask(t, "Once more?")
    assert len(saved()) == 4
    assert t.leave() == 0
