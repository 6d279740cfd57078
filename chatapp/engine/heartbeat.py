"""Signs of life between a rank and the client, over the pipes that mlx.launch lays (through ssh, where it uses ssh).

Each rank writes a short line to its standard output every second; the client takes them out of mlx.launch's output
and knows which rank has gone silent. The client writes an empty line every second, which mlx.launch gives to the
standard input of every rank; a rank that hears none for `SILENCE` seconds, or the end of it, ends: the client,
mlx.launch, the connection or a whole machine is gone then. Both happen on threads, so that a long computation is no
silence.
"""

from __future__ import annotations

import logging
import os
import select
import threading

from chatapp.launch import LEFT, SILENCE, beat

log = logging.getLogger(__name__)

_SECOND = 1.0


def listen() -> None:
    """Begins to listen."""
    threading.Thread(target=_listen, name="listen", daemon=True).start()


def start(rank: int) -> None:
    """Begins to beat, once the imports are done: while a large library is loaded no other thread may run for long."""
    threading.Thread(target=_beat, args=(rank,), name="beat", daemon=True).start()


def _beat(rank: int) -> None:
    line = beat(rank)
    pause = threading.Event()
    while True:
        try:
            os.write(1, line)
        except OSError:
            return  # nobody reads any more: the other thread hears of it
        pause.wait(_SECOND)


def _listen() -> None:
    while True:
        ready, _, _ = select.select([0], [], [], SILENCE)
        if not ready:
            _end(f"nothing was heard from the client for {SILENCE:.0f} s")
        elif not os.read(0, 4096):
            _end("mlx.launch has ended")


def _end(reason: str) -> None:
    log.error("this rank ends: %s", reason)
    os._exit(LEFT)
