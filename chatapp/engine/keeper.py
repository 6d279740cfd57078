"""Keeps one rank: the small process that mlx.launch starts, which starts the rank, speaks for it and ends it in time.

A rank cannot do that for itself. MLX holds Python's lock while ranks look for each other, large libraries do while they
are loaded, and a stopped process runs no thread at all. The keeper imports nothing large, so it always answers:

- Each second it gives the client a sign of life on its standard output (`chatapp.launch.beat`), which says how far the
  rank's main thread has come, and whether it is late there (`Progress`), computing or not, or was stopped by a signal.
- mlx.launch's process writes an empty line each second to its standard input (`chatapp.engine.mlx_launch`). If none
  comes for `SILENCE` seconds, or the end of it does, the client, mlx.launch, the connection or a machine is gone; then
  the rank is ended. So it is when the keeper gets a signal to end.
- When the rank ends, the keeper ends in the same way, for mlx.launch to see.

A rank whose keeper is killed hears the end of its own standard input (`chatapp.engine.__main__`).
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import NoReturn

import psutil

from chatapp.engine.progress import BYTES, Progress
from chatapp.launch import LEFT, SILENCE, STARTING, State, beat

log = logging.getLogger("chatapp.engine.keeper")

#: Where a rank finds its number: by mlx.launch, by Open MPI, by other MPIs.
_RANK = ("MLX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")

#: Asks the rank to write down where its main thread is; for how long that is waited for, in seconds.
WHERE = signal.SIGUSR2
_WHERE_SECONDS = 1.5
_PLACE = re.compile(r'File "(.+)", line (\d+) in (.+)')

_SECOND = 1.0

#: A rank that is late and has computed for less than that in the present step, in seconds, sleeps.
_COMPUTING = 0.1

#: One that does not sleep is late when it has computed for this share of what it may take: where others keep it
#: from computing, a step takes longer by the clock.
_SHARE = 0.5

#: A rank may be stopped for so long, in seconds, before that is told: a debugger stops for a moment what it looks at.
_STOPPED = 2.0


class Keeper:
    """One rank and its two neighbours, the client and mlx.launch; see the module's docstring."""

    def __init__(self, rank: int, connect: str) -> None:
        """Starts the rank.

        Args:
            rank: Its number.
            connect: The client's socket, which rank 0 connects to.
        """
        self._rank = rank
        self._awake = _signals()
        self._notes = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this process
        self._notes.truncate(BYTES)
        self._notes.seek(BYTES)  # what the rank writes of itself comes behind the numbers
        shared = self._notes.fileno()
        self._progress = Progress(shared)
        self._progress.start()
        leash, self._leash = os.pipe()
        command = [sys.executable, "-m", "chatapp.engine", "--connect", connect]
        self._process = subprocess.Popen(
            [*command, "--rank", str(rank), "--notes", str(shared)], stdin=leash, pass_fds=[shared]
        )
        os.close(leash)
        log.info("has started this rank")
        self._stopped: float | None = None
        self._told = False
        self._busy = psutil.Process(self._process.pid)
        self._step, self._computed = 0, 0.0  # where the rank was last seen, and what it had computed until then

    def run(self) -> NoReturn:
        """Stays until the rank has ended or has to."""
        heard, patience = time.monotonic(), STARTING  # mlx.launch begins when the client has heard all ranks
        spoke = 0.0
        reading = [0, self._awake]
        while True:
            now = time.monotonic()
            if now - spoke >= _SECOND:
                self._speak()
                spoke = now
            ready, _, _ = select.select(reading, [], [], max(0.0, spoke + _SECOND - now))
            if self._awake in ready:
                self._heed(os.read(self._awake, 256))
            if 0 in ready:
                if not os.read(0, 4096):
                    self._end("mlx.launch has ended")
                heard, patience = time.monotonic(), SILENCE
            if time.monotonic() - heard > patience:
                self._end(f"nothing was heard from the client for {patience:.0f} s")

    def _speak(self) -> None:
        state = self._state()
        late = state in (State.LATE, State.ASLEEP)
        if late and not self._told:
            log.error("this rank no longer gets on; it is at %s", self._where())
        self._told = late
        try:
            os.write(1, beat(self._rank, self._progress.step, state))
        except OSError as error:
            self._end(f"nobody reads what it prints ({error.strerror})")

    def _state(self) -> State:
        try:
            times = self._busy.cpu_times()
        except psutil.ZombieProcess:
            return State.FINE  # it has just ended, which the next signal tells
        computed = times.user + times.system
        if (step := self._progress.step) != self._step:
            self._step, self._computed = step, computed
        if self._stopped is not None:
            return State.STOPPED if time.monotonic() - self._stopped >= _STOPPED else State.FINE
        if not self._progress.late:
            return State.FINE
        computed -= self._computed
        if computed < _COMPUTING:
            return State.ASLEEP
        return State.LATE if computed >= self._progress.allowed * _SHARE else State.FINE

    def _heed(self, signals: bytes) -> None:
        for number in signals:
            if number == signal.SIGCHLD:
                self._look()
            else:
                self._kill()
                _end_by(number)

    def _look(self) -> None:
        """Sees what became of the rank."""
        while True:
            pid, status = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return
            if os.WIFSTOPPED(status):
                self._stopped = time.monotonic()
            elif os.WIFCONTINUED(status):
                self._stopped = None
            elif os.WIFSIGNALED(status):
                _end_by(os.WTERMSIG(status))
            else:
                os._exit(os.WEXITSTATUS(status))

    def _where(self) -> str:
        """What the rank's main thread does, innermost last."""
        self._notes.seek(BYTES)
        self._notes.truncate()
        os.kill(self._process.pid, WHERE)
        until = time.monotonic() + _WHERE_SECONDS
        before, written = b"", b""
        while not (written and written == before) and time.monotonic() < until:
            time.sleep(0.1)
            before, written = written, os.pread(self._notes.fileno(), 1 << 16, BYTES)
        places = _PLACE.findall(written.decode("utf-8", "replace"))
        return ", ".join(f"{file}:{line} {function}" for file, line, function in places[2::-1]) or "an unknown place"

    def _end(self, reason: str) -> NoReturn:
        log.error("this rank ends: %s", reason)
        self._kill()
        os._exit(LEFT)

    def _kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)  # it is waited for nowhere else, so this is still its number


def _signals() -> int:
    """A descriptor from which the numbers of signals come: of children, and those that end this process."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what an interrupt stops
    return reading


def _end_by(number: int) -> NoReturn:
    """Ends this process by a signal, as its rank was ended."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(LEFT)  # a signal that ends nothing by itself


def main() -> None:
    """``python -m chatapp.engine.keeper --connect SOCKET``, run by mlx.launch."""
    parser = argparse.ArgumentParser(prog="chatapp.engine.keeper")
    parser.add_argument("--connect", required=True, metavar="SOCKET")
    arguments = parser.parse_args()
    rank = int(next(filter(None, map(os.environ.get, _RANK)), "0"))
    who = f"rank {rank} on {socket.gethostname()}: "
    logging.basicConfig(format=f"%(asctime)s {who}%(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    Keeper(rank, arguments.connect).run()


if __name__ == "__main__":
    main()
