"""How mlx.launch is called and watched, and what is relied on of it."""

from __future__ import annotations

import inspect
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from mlx._distributed_utils import launch as mlx_launch

from chatapp import launch
from chatapp.engine import mlx_launch as patient
from chatapp.errors import UsageError
from chatapp.launch import Hosts

HOSTS = Hosts(("127.0.0.1", "b", "there"), ())


def hostfile(path: Path, *names: str) -> Path:
    path.write_text(json.dumps([{"ssh": name, "ips": [f"10.0.0.{n}"]} for n, name in enumerate(names)]))
    return path


def test_hosts_of_a_file(tmp_path: Path):
    own = socket.gethostname()
    hosts = Hosts.from_file(hostfile(tmp_path / "hosts.json", own, "mini.local"))
    assert hosts.names == (own, "mini.local")
    command = hosts.command("/tmp/socket")
    assert str(tmp_path / "hosts.json") in command
    assert command[command.index("--") + 2 :] == ["-m", "chatapp.engine", "--launched", "--connect", "/tmp/socket"]
    assert not any("TMPDIR" in part for part in command), "another machine has its own folder for temporary files"


def test_a_file_in_the_longer_form(tmp_path: Path):
    path = tmp_path / "hosts.json"
    path.write_text(json.dumps({"backend": "jaccl", "hosts": [{"ssh": "127.0.0.1", "ips": ["127.0.0.1"], "rdma": []}]}))
    assert Hosts.from_file(path).names == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[]", "names no hosts"),
        ('[{"ips": ["10.0.0.1"]}]', "names no hosts"),
        ('[{"ssh": "elsewhere.example"}]', "put this machine first"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str, words: str):
    path = tmp_path / "hosts.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        Hosts.from_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Hosts.from_file(tmp_path / "missing.json")


def test_signs_of_life_are_taken_out_of_the_output_and_ends_are_seen():
    output = launch._Output(3, threading.Event())
    data = (
        b"a line\n"
        + launch.beat(0, 5)
        + b"half "
        + launch.beat(2, 5)
        + b"\x1b[33m[WARN] Node with rank 1 exited with code -9 "
    )
    assert list(output.lines(data)) == [b"a line\n", b"half \n"]
    assert list(output.lines(b"\x1b[0m\n")) == [b"\x1b[33m[WARN] Node with rank 1 exited with code -9 \x1b[0m\n"]
    assert output.exits == [(1, -9)]


def test_the_client_begins_to_beat_when_it_has_heard_all_ranks():
    heard = threading.Event()
    output = launch._Output(2, heard)
    reading = launch.beating(heard)
    try:
        list(output.lines(launch.beat(1, 0)))
        assert not heard.is_set()
        assert select.select([reading], [], [], 0.1)[0] == []
        list(output.lines(launch.beat(0, 0)))
        assert os.read(reading, 10) == b"\n"
    finally:
        os.close(reading)


def test_a_process_id_is_found_behind_the_terminal_of_ssh():
    process = mlx_launch.RemoteProcess.__new__(mlx_launch.RemoteProcess)
    process._pidfile = None
    assert patient.plain_lines(process, "/tmp/tmp.W7oSuR0GZP\r\na line\r\n", True) == "a line\n"
    assert process._pidfile == "/tmp/tmp.W7oSuR0GZP"


def test_a_death_that_mpi_tells(tmp_path: Path):
    """Open MPI 5 says it in a box of its own, wrapped."""
    log = tmp_path / "log"
    box = b"-----\nprterun noticed that process rank 1 with PID 13329 on node vm exited on\nsignal 9 (Killed).\n-----\n"
    output = launch._Output(3, threading.Event())
    log.write_bytes(b"".join(output.lines(box)))
    assert launch._sentence(output, HOSTS, log) == (
        f"Rank 1 on b was ended by a signal; start the engine again. Its log {log} ends: signal 9 (Killed)."
    )


def test_lines_of_a_rank_behind_ssh():
    """Its terminal ends lines with a carriage return; a sign of life leaves no empty line in the log."""
    output = launch._Output(1, threading.Event())
    assert list(output.lines(launch.beat(0, 5).replace(b"\n", b"\r\n") + b"a line\r\n")) == [b"a line\n"]


def test_a_rank_that_was_heard_and_then_not(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(2, threading.Event())
    list(output.lines(launch.beat(0, 5) + launch.beat(1, 5)))
    for _ in range(int(launch.SILENCE)):
        clock[0] += 1
        list(output.lines(launch.beat(0, 5)))
        assert output.silent() is None
    clock[0] += 1
    output.wait()
    assert output.silent() == 1


@pytest.mark.parametrize(("step", "patience"), [(0, launch.IMPORTING), (1, launch.STARTING), (2, launch.SILENCE)])
def test_a_rank_that_starts_may_be_silent_for_longer(monkeypatch: pytest.MonkeyPatch, step: int, patience: float):
    """While it imports and while the ranks look for each other, MLX lets no other thread run."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(1, threading.Event())
    list(output.lines(launch.beat(0, step)))
    for _ in range(int(patience)):
        clock[0] += 1
        output.wait()
    assert output.silent() is None
    clock[0] += 1
    output.wait()
    assert output.silent() == 0
    assert f"no sign of life for {patience:.0f} seconds" in launch._sentence(output, HOSTS, Path("missing"))


@pytest.mark.parametrize(
    ("steps", "words"),
    [((9, 7, 9), "Rank 1 on b is alive, but no longer gets on"), ((7, 7, 7), "The ranks are alive, but wait")],
)
def test_a_rank_that_is_alive_and_hangs_is_the_one_that_is_behind(steps: tuple[int, ...], words: str):
    output = launch._Output(3, threading.Event())
    list(output.lines(b"".join(launch.beat(rank, step) for rank, step in enumerate(steps))))
    assert not output.lost()
    list(output.lines(launch.beat(2, steps[2], late=True)))
    assert output.lost()
    assert launch._sentence(output, HOSTS, Path("missing")).startswith(words)


def test_a_client_that_was_held_up_does_not_take_it_for_silence(monkeypatch: pytest.MonkeyPatch):
    """An editor had the terminal for ten minutes; what the ranks said meanwhile has not been read yet."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(1, threading.Event())
    list(output.lines(launch.beat(0, 5)))
    clock[0] += 600
    output.wait()
    assert output.silent() is None


def test_the_first_to_die_is_named_and_not_those_who_followed(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("1 rank 0 on here: x: loading\n2 rank 2 on there: x: this rank ends\nterminate called\n")
    output = launch._Output(3, threading.Event())
    lines = b"".join(b"Node with rank %d exited with code %d\n" % end for end in ((0, launch.LEFT), (2, 1), (1, -15)))
    list(output.lines(lines))
    sentence = launch._sentence(output, HOSTS, log)
    assert sentence.startswith("Rank 2 on there ended with code 1")
    assert sentence.endswith("this rank ends")


@pytest.mark.parametrize(
    ("came", "words"),
    [(b"", "could not be reached by ssh"), (launch.beat(1, 5), "was killed, or its connection broke")],
)
def test_a_host_that_was_never_reached_is_told_from_one_that_was_lost(tmp_path: Path, came: bytes, words: str):
    """ssh ends with 255 either way; a line that says where mlx.launch keeps a process id is nobody's last word."""
    log = tmp_path / "log"
    log.write_text("rank 1 on b: importing\n/tmp/tmp.W7oSuR0GZP\n")
    output = launch._Output(3, threading.Event())
    list(output.lines(came + b"Node with rank 1 exited with code 255\n"))
    assert launch._sentence(output, HOSTS, log).startswith(f"Rank 1 on b {words}; start the engine again.")
    assert launch._sentence(output, HOSTS, log).endswith("rank 1 on b: importing")


def test_what_is_relied_on_of_mlx_launch():
    """A new mlx may change these; then `chatapp.engine.mlx_launch` and `chatapp.launch` have to be looked at again."""
    source = inspect.getsource(mlx_launch)
    assert mlx_launch.select is not None, "select is a name of the module, which ours takes the place of"
    assert source.count("select(") == 2
    assert "Node with rank {rank} was killed" in source
    assert "Node with rank {rank} exited with code" in source
    assert 'is_local = host == "127.0.0.1"' in source
    assert "export MLX_RANK=" in source
    assert "pidfile=$(mktemp)" in source


def test_waiting_for_output_does_not_spin():
    """With room to write but nothing to read, mlx's own select returns at once, ours after a while."""
    ours, other = socket.socketpair()
    with ours, other:
        began = time.monotonic()
        ready, room, _ = patient.patient_select([ours], [ours], [], 1.0)
        assert time.monotonic() - began >= patient._PATIENCE
        assert (ready, room) == ([], [ours])
        other.send(b"x")
        assert patient.patient_select([ours], [ours], [], 1.0)[0] == [ours]


#: Rank 0 of two; the other one never comes, and the client has gone.
LONELY = """
from chatapp import launch
launch.STARTING, launch.SILENCE = 1.0, 0.5
from chatapp.engine import __main__ as engine
from chatapp.engine.progress import Progress
engine._group(0, Progress())
"""


def test_a_rank_that_waits_for_the_others_for_ever_is_ended_by_the_system(tmp_path: Path):
    """While MLX waits no thread runs, so the rank cannot hear that its client has gone."""
    ring = tmp_path / "ring.json"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    ring.write_text(json.dumps([[f"127.0.0.1:{port}"], ["127.0.0.1:9"]]))
    rank = subprocess.run(
        [sys.executable, "-c", LONELY],
        env={**os.environ, "MLX_RANK": "0", "MLX_HOSTFILE": str(ring)},
        capture_output=True,
        timeout=120,
    )
    assert rank.returncode == -signal.SIGALRM, rank.stderr.decode()
