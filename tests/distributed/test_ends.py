"""However and whenever the chat ends, no process of an engine of several ranks is left, and what was asked is saved.

Every run takes some; ``CHATAPP_TEST_ENDS=1`` every moment with every end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.distributed.processes import assert_none_left, family, hook, meets, of_this_test, ranks_of
from tests.terminal.terminal import CTRL_Q, ENTER, Terminal
from tests.terminal.test_real import saved

pytestmark = [pytest.mark.terminal, pytest.mark.timeout(300)]

RANKS = 3

#: Holds a rank up where a test wants it, and has the chat fail at a signal.
HELD_UP = """
import os, signal, sys, threading
line = sys.orig_argv
held_up = os.environ.get("CHATAPP_TEST_HELD_UP")
if "--rank" in line and line[line.index("--rank") + 1] == "2":
    if held_up == "meeting":
        threading.Event().wait()
    if held_up == "loading":
        from chatapp.models import folder
        folder.read_config = lambda *_: threading.Event().wait()
if "chatapp.cli" in line:
    def fail(*_):
        raise RuntimeError("The chat fails.")
    signal.signal(signal.SIGUSR1, fail)
"""

QUESTION = "one, two, three " * 40


def launching(t: Terminal) -> None:
    t.until("starting")
    t.until(lambda _: len(of_this_test()) > 1)


def meeting(t: Terminal) -> None:
    def met(_: str) -> bool:
        return sum(map(meets, ranks_of(family(t.child.pid or 0)).values())) == RANKS - 1

    t.until("starting")
    t.until(met)


def loading(t: Terminal) -> None:
    t.until("loading")


def reading(t: Terminal) -> None:
    ask(t, QUESTION * 40, "paste 1", "reading")


def writing(t: Terminal) -> None:
    ask(t, QUESTION, "three", "writing")


def ask(t: Terminal, question: str, shown: str, stage: str) -> None:
    """Pastes a question, which the prompt shows as ``shown``, sends it, and waits for the status line's word."""
    t.until("· ready")
    t.child.send(f"\x1b[200~{question}\x1b[201~")
    t.until(shown)
    t.keys(ENTER)
    t.until(stage)


def ready(t: Terminal) -> None:
    t.until("· ready")


MOMENTS: dict[str, Callable[[Terminal], None]] = {
    "launching": launching,
    "meeting": meeting,
    "loading": loading,
    "reading": reading,
    "writing": writing,
    "ready": ready,
}
ENDS = {"key": None, "TERM": signal.SIGTERM, "HUP": signal.SIGHUP, "crash": signal.SIGUSR1, "KILL": signal.SIGKILL}
SOME = [
    ("launching", "KILL"),
    ("meeting", "KILL"),
    ("reading", "TERM"),
    ("writing", "KILL"),
]


@pytest.fixture
def start(divisible_model: Path, private_folders: Path, tmp_path: Path) -> Iterator[Callable[[str], Terminal]]:
    """Starts the chat on three ranks."""
    config = private_folders / "config"
    config.mkdir()
    options = "temperature = 1\nmax_tokens = 2000\nlogit_bias = {2 = -1000}\n"
    (config / "config.toml").write_text(f'model = "{divisible_model}"\n[sampling]\n{options}')
    environment = {"PYTHONPATH": hook(tmp_path / "hook", HELD_UP)}
    running: list[Terminal] = []

    def begin(held_up: str) -> Terminal:
        environment["CHATAPP_TEST_HELD_UP"] = held_up
        running.append(Terminal("-n", str(RANKS), "--max-kv-size", "16384", columns=140, environment=environment))
        return running[-1]

    yield begin
    for terminal in running:
        if terminal.child.isalive():
            terminal.kill()


@pytest.mark.parametrize(
    ("moment", "end"), list(product(MOMENTS, ENDS)) if os.environ.get("CHATAPP_TEST_ENDS") else SOME
)
def test_no_process_is_left(start: Callable[[str], Terminal], moment: str, end: str) -> None:
    t = start(moment)
    MOMENTS[moment](t)
    before = len(of_this_test())
    number = ENDS[end]
    if number is None:
        t.child.send(CTRL_Q)
    else:
        t.child.kill(number)
    while t.child.isalive():
        t.read()
    took = assert_none_left()
    print(f"{end} while {moment}: {before} processes, the last one gone {took:.1f} s after the chat")
    if moment in ("reading", "writing"):
        assert saved()[0].startswith(QUESTION)
