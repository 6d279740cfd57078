"""Signs of life between a rank and the client, over the pipes that mlx.launch lays (through ssh, where it uses ssh).

Each rank writes a short line to its standard output every second; the client takes them out of mlx.launch's output
and knows which rank has gone silent. The line also says how far the main thread has come (`Progress`): a rank may be
alive and yet hang. The client writes an empty line every second, which mlx.launch gives to the
standard input of every rank; a rank that hears none for `SILENCE` seconds, or the end of it, ends: the client,
mlx.launch, the connection or a whole machine is gone then. Both happen on threads, so that a long computation is no
silence.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
import traceback

from chatapp.engine.progress import Progress
from chatapp.launch import LEFT, SILENCE, STARTING, beat

log = logging.getLogger(__name__)

_SECOND = 1.0


def listen() -> None:
    """Begins to listen."""
    threading.Thread(target=_listen, name="listen", daemon=True).start()


def start(rank: int, progress: Progress) -> None:
    """Begins to beat."""
    threading.Thread(target=_beat, args=(rank, progress), name="beat", daemon=True).start()


def tell(rank: int, progress: Progress) -> bool:
    """Gives one sign of life; false if nobody reads any more."""
    try:
        os.write(1, beat(rank, progress.step, progress.late))
    except OSError:
        return False
    return True


def _beat(rank: int, progress: Progress) -> None:
    pause = threading.Event()
    told = False
    while True:
        late = progress.late
        if late and not told:
            log.error("this rank no longer gets on; it is at %s", _where())
        told = late
        if not tell(rank, progress):
            return  # nobody reads any more: the other thread hears of it
        pause.wait(_SECOND)


def _where() -> str:
    """What the main thread does, innermost last."""
    ident = threading.main_thread().ident
    running = sys._current_frames()  # pyright: ignore[reportPrivateUsage]  the documented name
    frames = traceback.extract_stack(running[ident]) if ident else []
    return ", ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-3:])


def _listen() -> None:
    patience = STARTING  # the client begins when it has heard all ranks
    while True:
        ready, _, _ = select.select([0], [], [], patience)
        if not ready:
            _end(f"nothing was heard from the client for {patience:.0f} s")
        elif not os.read(0, 4096):
            _end("mlx.launch has ended")
        patience = SILENCE


def _end(reason: str) -> None:
    log.error("this rank ends: %s", reason)
    os._exit(LEFT)
