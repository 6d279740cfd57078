"""How mlx.launch is called and watched, and what is relied on of it."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from mlx._distributed_utils import launch as mlx_launch

from chatapp import launch
from chatapp.client import Engine, EngineLost
from chatapp.engine import mlx_launch as patient
from chatapp.errors import UsageError
from chatapp.hostfile import unreachable
from chatapp.launch import Hosts, State

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
    assert command[command.index("--") + 2 :] == ["-m", "chatapp.engine.keeper", "--connect", "/tmp/socket"]
    assert not any("TMPDIR" in part for part in command), "another machine has its own folder for temporary files"


def test_a_file_in_the_longer_form(tmp_path: Path):
    path = tmp_path / "hosts.json"
    host = {"ssh": "127.0.0.1", "ips": ["127.0.0.1"]}
    hosts = [{**host, "rdma": [None, "rdma_en2"]}, {**host, "rdma": ["rdma_en2", None]}]
    path.write_text(json.dumps({"backend": "jaccl", "envs": ["MLX_METAL_FAST_SYNCH=1"], "hosts": hosts}))
    assert Hosts.from_file(path).names == ("127.0.0.1", "127.0.0.1")


def ring(*hosts: object, **options: object) -> str:
    return json.dumps({"backend": "ring", "hosts": hosts, **options})


HERE = {"ssh": "127.0.0.1", "ips": ["127.0.0.1"]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[]", "names no hosts"),
        ('[{"ips": ["10.0.0.1"]}]', "missing required field `ssh`"),
        ('[{"ssh": "elsewhere.example"}]', "put this machine first"),
        ('[{"ssh": "127.0.0.1"}]', "names one host only"),
        (ring(HERE, HERE, backend="wrong"), "asks for the backend “wrong”"),
        (ring(HERE, {"ssh": "mini.local"}), "mini.local has no “ips”"),
        (ring(HERE, {"ssh": "mini.local", "ips": ["10.0.0.300"]}), "“10.0.0.300” of mini.local is no address"),
        (ring(HERE, HERE, envs="X=1"), r"Expected `array`, got `str` - at `\$\.envs`"),
        (ring(HERE, HERE, envs=["X"]), "not of the form NAME=value"),
        (ring(HERE, HERE, backend="jaccl"), "0 entries in “rdma”, and there are 2 hosts"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str, words: str):
    path = tmp_path / "hosts.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        Hosts.from_file(path)
    with pytest.raises(UsageError, match="cannot be read"):
        Hosts.from_file(tmp_path / "missing.json")


#: In place of ssh: says what it is told to for a host.
FAKE_SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
case $1 in
gone) echo "ssh: connect to host gone port 22: No route to host" >&2; exit 255;;
nopython) echo "sh: 1: python: not found" >&2; exit 127;;
nochatapp) echo "ModuleNotFoundError: No module named 'chatapp'" >&2; exit 1;;
older) echo Welcome; echo versions %s 0.0.1 0.0.2;;
*) shift; exec sh -c "$*";;
esac
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gone", r"gone cannot be reached by ssh \(ssh: connect to host gone port 22: No route to host\)"),
        ("nopython", f"nopython has no {sys.executable}"),
        ("nochatapp", "chatapp cannot be started on nochatapp .*No module named"),
        ("older", "older has mlx 0.0.1, this machine"),
        ("like this one", ""),
    ],
)
async def test_a_host_that_cannot_take_part_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
):
    ssh = tmp_path / "ssh"
    ssh.write_text(FAKE_SSH % metadata.version("chatapp"))
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    said = await unreachable(["127.0.0.1", "also like this one", name])
    assert re.match(words, said) if words else said == ""


async def test_an_engine_over_a_host_that_cannot_be_reached_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """mlx.launch's own ssh may wait for minutes."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\ncase "$*" in *BatchMode*) echo Unknown host >&2; exit 255;; *) sleep 60;; esac\n')
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    engine = await Engine.start(hosts=Hosts.from_file(hostfile(tmp_path / "hosts.json", "127.0.0.1", "mini.local")))
    with pytest.raises(EngineLost, match=r"mini\.local cannot be reached by ssh \(Unknown host\)"):
        await asyncio.wait_for(engine.hello(), 30)
    await engine.close()


def test_signs_of_life_are_taken_out_of_the_output_and_ends_are_seen():
    output = launch._Output(3, list)
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


def test_the_ranks_hear_signs_of_life_when_the_client_has_heard_all_of_them():
    leash = launch.Leash()
    output = launch._Output(2, leash.begin)
    theirs, ours = os.pipe()
    held = threading.Thread(target=patient.hold, args=(leash.theirs, ours), daemon=True)
    held.start()  # ends with the tests: the client's end stays open
    list(output.lines(launch.beat(1, 0)))
    assert select.select([theirs], [], [], 0.1)[0] == []
    list(output.lines(launch.beat(0, 0)))
    for _ in range(2):  # and then goes on by itself: the client may be suspended
        assert os.read(theirs, 1) == b"\n"


#: In place of mlx.launch, something else that starts a process; both end only if they are killed.
HELD = """
import subprocess, sys, time
from chatapp.engine import mlx_launch
mlx_launch._on_leash()
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_what_mlx_launch_started_is_killed_with_it_when_the_client_lets_go():
    leash = launch.Leash()
    held = subprocess.Popen([sys.executable, "-c", HELD], stdin=leash.theirs, stdout=subprocess.PIPE)
    os.close(leash.theirs)
    assert held.stdout is not None
    started = psutil.Process(int(held.stdout.readline()))
    leash.let_go()
    assert held.wait(60) == -signal.SIGKILL
    started.wait(60)


def test_a_process_id_is_found_behind_the_terminal_of_ssh():
    process = mlx_launch.RemoteProcess.__new__(mlx_launch.RemoteProcess)
    process._pidfile = None
    assert patient.plain_lines(process, "/tmp/tmp.W7oSuR0GZP\r\na line\r\n", True) == "a line\n"
    assert process._pidfile == "/tmp/tmp.W7oSuR0GZP"


def test_a_death_that_mpi_tells(tmp_path: Path):
    """Open MPI 5 says it in a box of its own, wrapped."""
    log = tmp_path / "log"
    box = b"-----\nprterun noticed that process rank 1 with PID 13329 on node vm exited on\nsignal 9 (Killed).\n-----\n"
    output = launch._Output(3, list)
    log.write_bytes(b"".join(output.lines(box)))
    assert launch._sentence(output, HOSTS, log) == (
        f"Rank 1 on b was ended by a signal; start the engine again. Its log {log} ends: signal 9 (Killed)."
    )


def test_lines_of_a_rank_behind_ssh():
    """Its terminal ends lines with a carriage return; a sign of life leaves no empty line in the log."""
    output = launch._Output(1, list)
    assert list(output.lines(launch.beat(0, 5).replace(b"\n", b"\r\n") + b"a line\r\n")) == [b"a line\n"]


def test_a_rank_that_was_heard_and_then_not(monkeypatch: pytest.MonkeyPatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(2, list)
    list(output.lines(launch.beat(0, 5) + launch.beat(1, 5)))
    for _ in range(int(launch.SILENCE)):
        clock[0] += 1
        list(output.lines(launch.beat(0, 5)))
        assert output.silent() is None
    clock[0] += 1
    output.wait()
    assert output.silent() == 1


def test_a_rank_that_starts_may_be_silent_for_longer(monkeypatch: pytest.MonkeyPatch):
    """ssh has to connect first."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(1, list)
    for _ in range(int(launch.STARTING)):
        clock[0] += 1
        output.wait()
    assert output.silent() is None
    clock[0] += 1
    output.wait()
    assert output.silent() == 0
    assert f"no sign of life for {launch.STARTING:.0f} seconds" in launch._sentence(output, HOSTS, Path("missing"))


def test_a_rank_that_was_stopped():
    output = launch._Output(3, list)
    list(output.lines(launch.beat(0, 9, State.LATE) + launch.beat(2, 9, State.STOPPED)))
    assert output.clear()
    assert launch._sentence(output, HOSTS, Path("missing")).startswith("Rank 2 on there was stopped by a signal;")


BEHIND = "Rank 1 on b is alive, but no longer gets on"
UNCLEAR = "The ranks are alive, but wait"


@pytest.mark.parametrize(
    ("steps", "states", "words"),
    [
        ((9, 7, 9), (State.LATE, State.ASLEEP, State.FINE), BEHIND),
        ((9, 7, 9), (State.LATE, State.LATE, State.LATE), BEHIND),
        ((7, 7, 7), (State.LATE, State.LATE, State.LATE), UNCLEAR),
        ((7, 7, 7), (State.LATE, State.ASLEEP, State.LATE), BEHIND),
        ((9, 7, 7), (State.ASLEEP, State.ASLEEP, State.LATE), BEHIND),
        ((7, 7, 7), (State.LATE, State.ASLEEP, State.ASLEEP), UNCLEAR),
    ],
)
def test_a_rank_that_is_alive_and_hangs_is_the_one_that_is_behind_or_else_sleeps(
    steps: tuple[int, ...], states: tuple[State, ...], words: str
):
    output = launch._Output(3, list)
    list(output.lines(b"".join(launch.beat(rank, step) for rank, step in enumerate(steps))))
    assert not output.lost()
    list(output.lines(b"".join(map(launch.beat, range(3), steps, states))))
    assert output.lost()
    assert not output.clear()
    assert launch._sentence(output, HOSTS, Path("missing")).startswith(words)


def test_a_rank_that_waits_for_a_slow_one_is_not_lost():
    """The slow one computes, on a machine that others keep busy."""
    output = launch._Output(2, list)
    list(output.lines(launch.beat(0, 9, State.LATE) + launch.beat(1, 8)))
    assert not output.lost()


def test_ranks_that_waited_for_a_client_that_was_held_up_are_not_lost(monkeypatch: pytest.MonkeyPatch):
    """Rank 0 could not go on while nobody read what it said; what it said of that comes before it has caught up."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(1, list)
    list(output.lines(launch.beat(0, 5)))
    clock[0] += 600
    list(output.lines(launch.beat(0, 5, State.LATE)))
    assert not output.lost()
    clock[0] += 2
    list(output.lines(launch.beat(0, 6)))
    clock[0] += 20
    assert not output.lost()
    list(output.lines(launch.beat(0, 6, State.LATE)))
    clock[0] += 2
    output.wait()
    clock[0] += 4
    assert output.lost(), "it has not caught up"


def test_a_client_that_was_held_up_does_not_take_it_for_silence(monkeypatch: pytest.MonkeyPatch):
    """An editor had the terminal for ten minutes; what the ranks said meanwhile has not been read yet."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    output = launch._Output(1, list)
    list(output.lines(launch.beat(0, 5)))
    clock[0] += 600
    output.wait()
    assert output.silent() is None


def test_the_first_to_die_is_named_and_not_those_who_followed(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("1 rank 0 on here: x: loading\n2 rank 2 on there: x: this rank ends\nterminate called\n")
    output = launch._Output(3, list)
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
    output = launch._Output(3, list)
    list(output.lines(came + b"Node with rank 1 exited with code 255\n"))
    assert launch._sentence(output, HOSTS, log).startswith(f"Rank 1 on b {words}; start the engine again.")
    assert launch._sentence(output, HOSTS, log).endswith("rank 1 on b: importing")


def test_what_is_relied_on_of_mlx_launch():
    """A new mlx may change these; then `chatapp.engine.mlx_launch` and `chatapp.launch` have to be looked at again."""
    source = inspect.getsource(mlx_launch)
    assert mlx_launch.select is not None, "select is a name of the module, which ours takes the place of"
    assert source.count("select(") == 2
    assert "select([sys.stdin.fileno()]" in source, "what every rank is given comes from descriptor 0"
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
