"""A link between two ranks: a program that passes on what either side sends, as late and as slowly as it is told.

    python -m bench.relay HOST:PORT LATENCY SPEED       seconds; bytes a second, 0 for as fast as it goes

It prints the address to connect to instead of HOST:PORT, and ends with either side or its standard input.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Between two neighbours; seconds, and bytes a second in each direction (0: as fast as it goes)."""

    latency: float
    speed: float = 0.0

    def message(self, size: float) -> float:
        """Seconds until a message of ``size`` bytes is there."""
        return self.latency + (size / self.speed if self.speed else 0.0)

    def __str__(self) -> str:
        speed = f", {self.speed / 1e6:g} MB/s" if self.speed else ""
        return f"{1e6 * self.latency:g} µs{speed}"


def relay(target: str, link: Link) -> None:
    """Stands between whoever connects first and `target`."""
    if hasattr(os, "SCHED_FIFO") and os.geteuid() == 0:  # wakes in time on a busy machine
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)
        ready, _, _ = select.select([server, sys.stdin], [], [])
        if server not in ready:
            return
        first, _ = server.accept()
    host, _, port = target.rpartition(":")
    while True:
        try:
            second = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)  # it does not listen yet
    for end in (first, second):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _pass_on(first, second, link)


def _pass_on(first: socket.socket, second: socket.socket, link: Link) -> None:
    other = {first: second, second: first}
    waiting: dict[socket.socket, deque[tuple[float, bytes]]] = {first: deque(), second: deque()}
    free = dict.fromkeys(other, 0.0)
    while True:
        due = min((queue[0][0] for queue in waiting.values() if queue), default=None)
        pause = None if due is None else max(0.0, due - time.perf_counter())
        ready, _, _ = select.select([*other, sys.stdin], [], [], pause)
        if sys.stdin in ready:
            return
        for end in ready:
            data = end.recv(1 << 16)
            if not data:
                return
            sent = max(time.perf_counter(), free[end]) + (len(data) / link.speed if link.speed else 0.0)
            free[end] = sent
            waiting[end].append((sent + link.latency, data))
        now = time.perf_counter()
        for end, queue in waiting.items():
            while queue and queue[0][0] <= now:
                other[end].sendall(queue.popleft()[1])


def one_way(link: Link, times: int = 50) -> float:
    """Seconds that a byte really takes over a relay: half of a median round trip."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "bench.relay", target, str(link.latency), str(link.speed)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            host, _, port = process.stdout.readline().strip().rpartition(":")
            with socket.create_connection((host, int(port))) as near, server.accept()[0] as far:
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_echo, args=(far, times), daemon=True).start()
                trips = [_round_trip(near) for _ in range(times)]
            process.kill()
    return statistics.median(trips) / 2


def _echo(end: socket.socket, times: int) -> None:
    for _ in range(times):
        end.sendall(end.recv(1))


def _round_trip(end: socket.socket) -> float:
    began = time.perf_counter()
    end.sendall(b"x")
    end.recv(1)
    return time.perf_counter() - began


if __name__ == "__main__":
    relay(sys.argv[1], Link(float(sys.argv[2]), float(sys.argv[3])))
