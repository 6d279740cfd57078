"""Which processes belong to an engine, and whether any of them is left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

#: Far beyond what it takes for processes to end, in seconds; those that nobody ends would stay for ever.
PATIENCE = 60.0


def family(pid: int) -> list[psutil.Process]:
    """A process and everything that it started."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def ranks_of(processes: list[psutil.Process]) -> dict[int, psutil.Process]:
    """The engine's ranks among some processes, by number."""
    found: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "chatapp.engine" in line and "--rank" in line:
            found[int(line[line.index("--rank") + 1])] = process
    return found


def keeper_of(rank: psutil.Process) -> psutil.Process:
    """The process that keeps a rank."""
    keeper = rank.parent()
    assert keeper is not None
    assert "chatapp.engine.keeper" in keeper.cmdline()
    return keeper


def meets(rank: psutil.Process) -> bool:
    """Whether a rank has begun to look for the others: MLX's ring then listens to them."""
    try:
        return any(connection.status == psutil.CONN_LISTEN for connection in rank.net_connections("tcp"))
    except psutil.Error:
        return False


def of_this_test() -> list[psutil.Process]:
    """All processes that were started with this test's folders, whoever their parents are now."""
    folder = os.environ["CHATAPP_DATA_DIR"]
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("CHATAPP_DATA_DIR") == folder and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # it has ended, or is another user's
            continue
    return found


def assert_none_left() -> float:
    """Waits until no process of this test is left; returns how long that took, in seconds."""
    began = time.monotonic()
    while (left := of_this_test()) and time.monotonic() - began < PATIENCE:
        time.sleep(0.05)
    assert not left, [(process.pid, process.cmdline()) for process in left]
    return time.monotonic() - began


def hook(folder: Path, code: str) -> str:
    """Has every Python that is started with the returned ``PYTHONPATH`` run some code first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return str(folder)
