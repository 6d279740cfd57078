"""mlx.launch, run as it is but for two things: it does not keep a core busy while it waits, and finds remote processes.

Its threads ask in one ``select`` whether a rank has written something and whether the rank's standard input has room,
which it nearly always has; so they never sleep. Here the question about room waits until the first one was answered.

A rank's first line names the file that its process id is kept in, for the command that ends it and removes the file.
The terminal that ssh gives a rank ends that line by a carriage return too, which is no part of the name.

The only module that relies on the inside of mlx.launch; `tests/distributed/test_launch.py` names what it relies on.
"""

from __future__ import annotations

import select
from typing import Any

from mlx._distributed_utils import launch

#: Longest wait for output before what is to be written is looked at, in seconds.
_PATIENCE = 0.05


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


def main() -> None:
    """Runs mlx.launch with this process's arguments."""
    launch.select = patient_select  # pyright: ignore[reportPrivateImportUsage]
    launch.RemoteProcess.preprocess_output = plain_lines
    launch.main()


if __name__ == "__main__":
    main()
