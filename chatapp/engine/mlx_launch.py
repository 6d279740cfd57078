"""mlx.launch, run as it is but that it ends with the client, sleeps while it waits, and finds remote processes.

mlx.launch itself goes on when its standard input ends. Here that is a pipe which the client holds the other end of
(`chatapp.launch.Leash`): when it ends, whatever the client's end was, this process and all that it started on this
machine are killed at once, and with the connections to them the keepers on other machines hear of it. While the client
holds it, mlx.launch gives the ranks a sign of life each second; a client that is suspended still holds it.

Its threads ask in one ``select`` whether a rank has written something and whether the rank's standard input has room,
which it nearly always has; so they never sleep. Here the question about room waits until the first one was answered.

A rank's first line names the file that its process id is kept in, for the command that ends it and removes the file.
The terminal that ssh gives a rank ends that line by a carriage return too, which is no part of the name.

The only module that relies on the inside of mlx.launch; `tests/distributed/test_launch.py` names what it relies on.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import Any

from mlx._distributed_utils import launch

#: Longest wait for output before what is to be written is looked at, in seconds.
_PATIENCE = 0.05

_SECOND = 1.0


def patient_select(read: list[Any], write: list[Any], error: list[Any], timeout: float | None = None) -> Any:
    """As ``select.select`` for at most `_PATIENCE` seconds, but being able to write is no reason to return early."""
    wait = _PATIENCE if timeout is None else min(timeout, _PATIENCE)
    ready, _, _ = select.select(read, [], [], wait)
    _, room, _ = select.select([], write, [], 0)
    return ready, room, []


_preprocess = launch.RemoteProcess.preprocess_output


def plain_lines(self: launch.RemoteProcess, data: str, is_stdout: bool = False) -> str:
    """As ``RemoteProcess.preprocess_output``, for output whose lines a terminal may have ended."""
    return _preprocess(self, data.replace("\r\n", "\n"), is_stdout)


def hold(client: int, ranks: int) -> None:
    """Gives the ranks signs of life as long as the client is there, from its first byte on; then ends everything.

    Args:
        client: Descriptor that the client holds the other end of.
        ranks: Descriptor of what mlx.launch gives to every rank.
    """
    begun = False
    while True:
        ready, _, _ = select.select([client], [], [], _SECOND if begun else None)
        if ready and not os.read(client, 4096):
            os.killpg(0, signal.SIGKILL)
        begun = True
        os.write(ranks, b"\n")


def _on_leash() -> None:
    """Puts `hold` between this process's standard input and mlx.launch."""
    if os.getpgrp() != os.getpid():
        os.setpgrp()  # what is killed in the end is this process and what it started, nothing else
    client = os.dup(0)
    theirs, ours = os.pipe()
    os.dup2(theirs, 0)
    os.close(theirs)
    threading.Thread(target=hold, args=(client, ours), name="leash", daemon=True).start()


def main() -> None:
    """Runs mlx.launch with this process's arguments."""
    launch.select = patient_select  # pyright: ignore[reportPrivateImportUsage]
    launch.RemoteProcess.preprocess_output = plain_lines
    _on_leash()
    launch.main()


if __name__ == "__main__":
    main()
