"""Starts an engine: ``python -m chatapp.engine --connect SOCKET``. Only `chatapp.client` runs this.

With ``--rank`` it is one of several, started by its keeper (`chatapp.engine.keeper`); rank 0 alone connects to the
client.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from chatapp.engine.ranks import Alone
from chatapp.engine.transport import Client, Connection, NoClient

if TYPE_CHECKING:
    from chatapp.engine.ranks import Ranks

log = logging.getLogger("chatapp.engine")


def main() -> None:
    """Connects first, so that the process ends with its client even while it still imports MLX."""
    parser = argparse.ArgumentParser(prog="chatapp.engine")
    parser.add_argument("--connect", required=True, metavar="SOCKET")
    parser.add_argument("--rank", type=int, metavar="N")
    parser.add_argument("--notes", type=int, metavar="DESCRIPTOR", help="file that is shared with the keeper")
    arguments = parser.parse_args()
    rank: int | None = arguments.rank
    who = "" if rank is None else f"rank {rank} on {socket.gethostname()}: "
    logging.basicConfig(format=f"%(asctime)s {who}%(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what an interrupt stops
    client = _client(arguments.connect, rank or 0)
    if rank is None:
        _serve(client, Alone)
    else:
        _serve_as(rank, client, arguments.notes)
    _end(0)


def _client(path: str, rank: int) -> Client:
    if rank:
        return NoClient()
    try:
        return Connection.connect(path)
    except OSError as error:
        log.error("nobody listens at %s (%s)", path, error)
        sys.exit(1)


def _serve(client: Client, make_ranks: Callable[[], Ranks]) -> None:
    # The heavy imports (MLX, transformers) start here, after the fast BLAS is in place.
    from chatapp.engine.blas import use_fast_blas

    library = use_fast_blas()
    from chatapp.engine.server import Server

    Server(client, library, make_ranks()).serve()


def _serve_as(rank: int, client: Client, notes: int) -> None:
    """As one of several: whatever goes wrong here ends this process, and with it the others."""
    from chatapp.engine.keeper import WHERE
    from chatapp.launch import LEFT

    faulthandler.register(WHERE, file=notes, all_threads=False)
    threading.Thread(target=_stay_on_leash, name="leash", daemon=True).start()
    try:
        _serve(client, lambda: _group(notes))
    except Exception as error:  # the process's border: the log has it, and the client reads the log
        if "peer" in str(error):  # MLX's word for a rank that is gone
            log.error("this rank ends, another one has gone (%s)", error)
            _end(LEFT)
        log.exception("the traceback of what ended this rank")
        log.error("this rank ends: %s: %s", type(error).__name__, error)  # last, for the client shows the last line
        _end(1)


def _stay_on_leash() -> None:
    """Ends the process when its keeper is gone."""
    from chatapp.launch import LEFT

    while os.read(0, 1):
        pass
    os._exit(LEFT)


def _group(notes: int) -> Ranks:
    import mlx.core as mx

    from chatapp.engine.distributed import Group
    from chatapp.engine.progress import Progress

    progress = Progress(notes)
    progress.reach()
    log.info("looks for the other ranks")
    group = Group(mx.distributed.init(strict=True), progress)
    log.info("has found the other ranks")
    for name in ("MLX_HOSTFILE", "MLX_IBV_DEVICES"):  # temporary files of mlx.launch, which nobody else removes
        if path := os.environ.get(name):
            Path(path).unlink(missing_ok=True)
    return group


def _end(code: int) -> None:
    """Ends the process without tearing MLX's threads down, which can abort it ("terminate called")."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
