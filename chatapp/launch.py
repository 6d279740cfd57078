"""How an engine is started over several ranks by mlx.launch, and how the client knows that all of them are alive.

    hosts = Hosts.from_file(path) or Hosts.here(3)       who takes part
    hosts.command(socket)                                 what to run
    leash = Leash()                                       its standard input
    await watch(process, hosts, log, leash.begin)         returns when a rank has died or gone silent, with a sentence

What mlx.launch's ranks print comes out of its standard output, one line after another; `chatapp.engine.keeper` has
the ranks' side of the signs of life in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from chatapp.hostfile import HERE, read_hosts, unreachable
from chatapp.text import visible

#: Without a sign of life for so long, in seconds, the other side counts as gone.
SILENCE = 10.0

#: Until a rank's first sign of life, and then for each rank to import MLX and to find the others, in seconds.
STARTING = 120.0

#: Exit code of a rank that ends because others have; so that the first to die can be told from those who followed.
LEFT = 75

#: mlx.launch ends the ranks that are left by SIGTERM.
_FOLLOWED = (LEFT, -15)
_AFTER_DEATH = 0.5
_AFTER_HANG = 2.0
_SECOND = 1.0

#: After this program was held up (an editor has its terminal, or it was suspended), the ranks have so many seconds to
#: get on: rank 0 may have waited for somebody to read what it says.
_CATCHING_UP = 5.0

_BEAT = re.compile(rb"\x01(\d+) (\d+) ([0-3])\x02")
_EXIT = re.compile(r"Node with rank (\d+) (?:exited with code (-?\d+)|was killed)")
_MPI_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on")  # "signal 9" is the next line
_PIDFILE = re.compile(r"\S*/tmp\.\w+")  # mlx.launch has each rank print where it keeps its process id
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_SSH_FAILED = 255

#: Below those that systems give to connections of any program, which might take one before the ranks do.
_PORTS = (20000, 32000)


class State(IntEnum):
    """How a rank is."""

    FINE = 0
    #: It computes, for longer than the present step may take. So does a rank that waits for another in a collective.
    LATE = 1
    #: The present step takes longer than it may, and it computes nothing.
    ASLEEP = 2
    #: The process was stopped by a signal.
    STOPPED = 3


def beat(rank: int, step: int, state: State = State.FINE) -> bytes:
    """A rank's sign of life, as a line.

    Args:
        rank: Its number.
        step: How far its main thread has come (`chatapp.engine.progress.Progress.step`).
        state: How it is.
    """
    return b"\x01%d %d %d\x02\n" % (rank, step, state)


@dataclass(frozen=True)
class Hosts:
    """The machines that run the ranks.

    Attributes:
        names: By rank, as ssh knows them; rank 0 is on this machine.
        options: For mlx.launch.
    """

    names: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def here(cls, ranks: int) -> Hosts:
        """Several ranks on this machine."""
        threads = max(1, (os.cpu_count() or 1) // ranks)
        share = [f"--env={name}={threads}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ]
        return cls((HERE,) * ranks, ("-n", str(ranks), *share))

    @classmethod
    def from_file(cls, path: Path) -> Hosts:
        """The hosts of an mlx.launch hostfile.

        Raises:
            UsageError: It cannot be used.
        """
        return cls(read_hosts(path), ("--hostfile", str(path.resolve())))

    @property
    def _only_here(self) -> bool:
        return all(name == HERE for name in self.names)

    def command(self, socket_path: str) -> list[str]:
        """The command line that starts an engine over the hosts, which then connects to a socket on this machine."""
        port = _free_ports(4 * len(self.names))
        return [
            *(sys.executable, "-m", "chatapp.engine.mlx_launch", *self.options),
            *("--starting-port", str(port), "--nccl-port", str(port)),
            "--mpi-arg=--stdin all",  # else mpirun gives the signs of life to rank 0 alone
            # What mlx.launch leaves behind goes to a folder of its own; MLX has its compiled kernels in the usual one.
            *(("--env", f"TMPDIR={tempfile.gettempdir()}") if self._only_here else ()),
            *("--", sys.executable, "-m", "chatapp.engine.keeper", "--connect", socket_path),
        ]


class Leash:
    """Holds an engine of several ranks: when the client lets go, by its end at the latest, the ranks end.

    Attributes:
        theirs: The descriptor to be mlx.launch's standard input; the caller closes it once mlx.launch has it.
    """

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def begin(self) -> None:
        """All ranks were heard: from now on mlx.launch's process gives them signs of life, and they expect some.

        Earlier ones would come back as an echo of ssh's terminal, which mlx.launch takes for the line that says where a
        rank's process id is kept.
        """
        with contextlib.suppress(BrokenPipeError):  # it has ended, as `watch` is about to see
            os.write(self._ours, b"\n")

    def let_go(self) -> None:
        """Ends the ranks; once."""
        os.close(self._ours)


async def watch(process: asyncio.subprocess.Process, hosts: Hosts, log: Path, all_heard: Callable[[], object]) -> str:
    """Keeps the ranks' output in the log, until a rank is lost or all have ended.

    Args:
        process: mlx.launch, its output piped.
        hosts: Who takes part.
        log: File that what the ranks print is added to.
        all_heard: Called when every rank has given a sign of life.

    Returns:
        What happened, as a sentence that ends with the last words of whoever was lost.
    """
    output = _Output(len(hosts.names), all_heard)
    asking = asyncio.create_task(unreachable(hosts.names))
    try:
        with log.open("ab") as file:
            # Under MPI the ranks go on writing when mlx.launch itself has been killed.
            while not output.lost() and process.returncode is None and await _more(process, output, file):
                if asking.done() and asking.result() and not output.complete:
                    return asking.result()
            # Who was first is clear when the others have told their ends as well, or where they wait.
            until = time.monotonic() + (_AFTER_DEATH if output.exits else _AFTER_HANG)
            while not output.clear() and time.monotonic() < until and await _more(process, output, file):
                pass
        return (not output.complete and await asking) or _sentence(output, hosts, log)
    finally:
        asking.cancel()


async def _more(process: asyncio.subprocess.Process, output: _Output, file: BinaryIO) -> bool:
    """Takes what was printed, waiting a moment for it; false at the end of it."""
    assert process.stdout is not None
    try:
        data = await asyncio.wait_for(process.stdout.read(1 << 16), 0.2)
    except TimeoutError:
        output.wait()
        return True
    for line in output.lines(data):
        file.write(line)
    file.flush()
    return bool(data)


class _Output:
    """What mlx.launch printed: signs of life, ends of ranks, and lines for the log."""

    def __init__(self, ranks: int, all_heard: Callable[[], object]) -> None:
        self.exits: list[tuple[int, int | None]] = []
        self.stopped: int | None = None
        self._silences = [0.0] * ranks
        self._steps = [0] * ranks
        self._heard: set[int] = set()
        self._all_heard = all_heard
        self._states = [State.FINE] * ranks
        self._looked = time.monotonic()
        self._held_up = 0.0
        self._partial = b""

    def lines(self, data: bytes) -> Iterable[bytes]:
        """Takes some output and gives the lines of it that are for the log."""
        self.wait()
        whole, newline, self._partial = (self._partial + data).rpartition(b"\n")
        if not data:
            whole, self._partial = self._partial, b""
        for line in whole.split(b"\n") if whole or newline else ():
            beats = [tuple(map(int, found)) for found in _BEAT.findall(line)]
            for rank, step, state in beats:
                self._note_beat(rank, step, State(state))
            rest = _BEAT.sub(b"", line).rstrip(b"\r")  # ssh gives the ranks a terminal, which ends lines its own way
            self._note_exits(rest.decode("utf-8", "replace"))
            if rest or not beats:
                yield rest + b"\n"

    def lost(self) -> bool:
        """Whether a rank has ended, was stopped, has gone silent or stuck."""
        hanging = State.ASLEEP in self._states or all(state is State.LATE for state in self._states)
        hanging = hanging and time.monotonic() - self._held_up > _CATCHING_UP
        return hanging or bool(self.exits) or self.clear()

    def clear(self) -> bool:
        """Whether it is known which rank was lost, without hearing of the others."""
        return self.stopped is not None or self.silent() is not None

    def silent(self) -> int | None:
        """The rank that has been silent for too long, if one has."""
        silences = enumerate(self._silences)
        return next((rank for rank, seconds in silences if seconds > self.patience(rank)), None)

    def patience(self, rank: int) -> float:
        """For how long a rank may be silent, in seconds."""
        return SILENCE if self.heard(rank) else STARTING

    def heard(self, rank: int) -> bool:
        """Whether a rank has ever given a sign of life."""
        return rank in self._heard

    @property
    def complete(self) -> bool:
        """Whether every rank has."""
        return len(self._heard) == len(self._steps)

    def stuck(self) -> int | None:
        """The rank that the others wait for, if that is clear."""
        least = min(self._steps)
        behind = [rank for rank, step in enumerate(self._steps) if step == least]
        if len(behind) > 1:
            behind = [rank for rank in behind if self._states[rank] is State.ASLEEP]
        return behind[0] if len(behind) == 1 else None

    def wait(self) -> None:
        """Counts the time since the last look as silence; a second at most, for this program may have been held up."""
        now = time.monotonic()
        if now - self._looked > _CATCHING_UP:
            self._held_up = now
        passed = min(now - self._looked, _SECOND)
        self._looked = now
        self._silences = [seconds + passed for seconds in self._silences]

    def _note_beat(self, rank: int, step: int, state: State) -> None:
        if rank >= len(self._steps):
            return
        self._steps[rank] = step
        self._silences[rank] = 0.0
        self._states[rank] = state
        if state is State.STOPPED and self.stopped is None:
            self.stopped = rank
        if rank not in self._heard:
            self._heard.add(rank)
            if self.complete:
                self._all_heard()

    def _note_exits(self, line: str) -> None:
        for rank, code in _EXIT.findall(line):
            if code != "0":
                self.exits.append((int(rank), int(code) if code else None))
        self.exits += [(int(rank), None) for rank in _MPI_SIGNAL.findall(line)]


def _sentence(output: _Output, hosts: Hosts, log: Path) -> str:
    rank: int | None
    if output.exits:
        rank, code = next((end for end in output.exits if end[1] not in _FOLLOWED), output.exits[0])
        how = _how(code, output.heard(rank))
    elif (rank := output.stopped) is not None:
        how = "was stopped by a signal"
    elif (rank := output.silent()) is not None:
        how = f"has given no sign of life for {output.patience(rank):.0f} seconds"
    elif output.lost():
        rank, how = output.stuck(), "is alive, but no longer gets on"
    else:
        return f"The engine ended; start it again. {_last_words(log, None)}"
    if rank is None:
        return f"The ranks are alive, but wait for each other; start the engine again. {_last_words(log, None)}"
    name = hosts.names[rank] if rank < len(hosts.names) else "an unknown host"
    return f"Rank {rank} on {name} {how}; start the engine again. {_last_words(log, rank)}"


def _how(code: int | None, heard: bool) -> str:
    if code == -9:
        return "was killed (by a person, or by the system for want of memory)"
    if code is None or code < 0:
        return "was ended by a signal"
    if code == _SSH_FAILED and heard:  # what ssh ends with where its command was ended by a signal, too
        return "was killed, or its connection broke"
    if code == _SSH_FAILED:
        return "could not be reached by ssh"
    return f"ended with code {code}"


def _last_words(log: Path, rank: int | None) -> str:
    """The last line of the log that a rank wrote, or else the last one at all."""
    try:
        text = log.read_bytes()[-65536:].decode("utf-8", "replace")
    except OSError:
        text = ""
    lines = [_ESCAPE.sub("", line).strip() for line in text.split("\n")]
    lines = [line for line in lines if line.strip("-") and not _EXIT.search(line) and not _PIDFILE.fullmatch(line)]
    own = [line for line in lines if f"rank {rank} on " in line]
    if not lines:
        return f"Its log {log} is empty."
    return f"Its log {log} ends: {visible((own or lines)[-1][:300])}"


def _free_ports(count: int) -> int:
    """The first of some neighbouring ports that nobody listens on here; other machines are hoped to be alike."""
    while True:
        first = random.randrange(*_PORTS)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
        return first
