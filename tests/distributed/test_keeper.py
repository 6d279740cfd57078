"""What a keeper says of its rank, and that both end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import psutil
import pytest

from chatapp.engine.keeper import Keeper
from chatapp.launch import LEFT, State, beat
from tests.distributed.processes import hook


@pytest.mark.parametrize(
    ("late", "computed", "stopped_for", "state"),
    [
        (False, 0.0, None, State.FINE),
        (False, 100.0, None, State.FINE),
        (True, 0.05, None, State.ASLEEP),
        (True, 5.0, None, State.FINE),
        (True, 10.0, None, State.LATE),
        (True, 0.0, 3.0, State.STOPPED),
        (True, 0.0, 1.0, State.FINE),
    ],
)
def test_a_rank_that_gets_little_time_is_neither_asleep_nor_late(
    late: bool, computed: float, stopped_for: float | None, state: State
):
    """Its step may take 20 seconds; what it has computed since it came there counts, not what it had before."""
    keeper = Keeper.__new__(Keeper)
    times = SimpleNamespace(user=7.0, system=0.5)
    keeper._busy = SimpleNamespace(cpu_times=lambda: times)
    keeper._progress = SimpleNamespace(late=False, step=3, allowed=20.0)
    keeper._step, keeper._computed, keeper._stopped = 2, 0.0, None
    assert keeper._state() is State.FINE
    times.user += computed
    keeper._progress.late = late
    keeper._stopped = None if stopped_for is None else time.monotonic() - stopped_for
    assert keeper._state() is state


#: In place of a rank: waits, and ends when it is told to.
RANK = """
import os, sys, threading
if "--rank" in sys.orig_argv:
    for line in open(os.environ["CHATAPP_TEST_TOLD"]):
        os._exit(int(line))
"""


@pytest.fixture
def keeper(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """A keeper of a rank that waits."""
    os.mkfifo(tmp_path / "told")
    monkeypatch.setenv("CHATAPP_TEST_TOLD", str(tmp_path / "told"))
    monkeypatch.setenv("PYTHONPATH", hook(tmp_path / "hook", RANK))
    monkeypatch.setenv("MLX_RANK", "1")
    command = [sys.executable, "-m", "chatapp.engine.keeper", "--connect", "nowhere"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == beat(1, 0)
        yield process  # afterwards its input is closed, by which both end


def rank(keeper: subprocess.Popen[bytes]) -> psutil.Process:
    [found] = psutil.Process(keeper.pid).children()
    return found


def test_a_keeper_ends_as_its_rank_does(keeper: subprocess.Popen[bytes], tmp_path):
    (tmp_path / "told").write_text("3\n")
    assert keeper.wait(60) == 3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_keeper_ends_by_the_signal_that_its_rank_ended_by(keeper: subprocess.Popen[bytes], number: int):
    rank(keeper).send_signal(number)
    assert keeper.wait(60) == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_rank_ends_with_its_keeper(keeper: subprocess.Popen[bytes], number: int):
    kept = rank(keeper)
    keeper.send_signal(number)
    assert keeper.wait(60) == -number
    kept.wait(60)


def test_a_rank_ends_with_mlx_launch(keeper: subprocess.Popen[bytes]):
    kept = rank(keeper)
    assert keeper.stdin is not None
    keeper.stdin.close()
    assert keeper.wait(60) == LEFT
    kept.wait(60)


def test_a_rank_that_is_stopped_goes_on_when_it_is_let(keeper: subprocess.Popen[bytes]):
    assert keeper.stdout is not None
    rank(keeper).suspend()
    while keeper.stdout.readline() != beat(1, 0, State.STOPPED):
        pass
    rank(keeper).resume()
    while keeper.stdout.readline() != beat(1, 0):
        pass
