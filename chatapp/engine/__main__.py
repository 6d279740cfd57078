"""Starts an engine: ``python -m chatapp.engine --connect SOCKET``. Only `chatapp.client` runs this."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from chatapp.engine.transport import Connection

log = logging.getLogger("chatapp.engine")


def main() -> None:
    """Connects first, so that the process ends with its client even while it still imports MLX."""
    parser = argparse.ArgumentParser(prog="chatapp.engine")
    parser.add_argument("--connect", required=True, metavar="SOCKET")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s", level=logging.INFO, stream=sys.stderr)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the client decides what an interrupt stops
    try:
        connection = Connection.connect(arguments.connect)
    except OSError as error:
        log.error("nobody listens at %s (%s)", arguments.connect, error)
        sys.exit(1)
    # The heavy imports (MLX, transformers) start here, after the fast BLAS is in place.
    from chatapp.engine.blas import use_fast_blas

    library = use_fast_blas()
    from chatapp.engine.server import Server

    Server(connection, library).serve()
    _end()


def _end() -> None:
    """Ends the process without tearing MLX's threads down, which can abort it ("terminate called")."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
