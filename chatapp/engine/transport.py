"""The engine's end of the socket: a plain thread reads it, so that a cancel is seen while the main thread computes.

MLX is used on the main thread only. The reading thread touches nothing but its queue and the set of cancelled
requests; when the socket closes it counts every request as cancelled, and ends the process itself if the main thread
has not done so within a second (a single MLX call may take longer than that).
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from typing import BinaryIO, Protocol

import msgspec

from chatapp import protocol
from chatapp.protocol import AnyEvent, Cancel

log = logging.getLogger(__name__)

#: How long the main thread has to end by itself after the client has gone.
GRACE_SECONDS = 1.0


class Client(Protocol):
    """The client as the engine's loop sees it: requests come out of `receive`, events go in through `send`."""

    def receive(self, timeout: float | None) -> bytes | None:
        """The next request's frame body; empty once the client has gone, None if none came within ``timeout`` s."""
        ...

    def cancelled(self, request: int) -> bool:
        """Whether the client has cancelled a request, or has gone."""
        ...

    def send(self, event: AnyEvent) -> None:
        """Sends an event; drops it if the client has gone."""
        ...


class NoClient:
    """What a rank other than 0 has in a client's place: it learns everything from rank 0."""

    def receive(self, timeout: float | None) -> bytes | None:
        return None

    def cancelled(self, request: int) -> bool:
        return False

    def send(self, event: AnyEvent) -> None:
        pass


class Connection:
    """A client at the other end of a socket; see `Client` for what each method does."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._gone = threading.Event()

    @classmethod
    def connect(cls, path: str) -> Connection:
        """Connects to the client that listens at ``path`` and starts to read.

        Raises:
            OSError: Nobody listens there (any more).
        """
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.connect(path)
        connection = cls(peer)
        threading.Thread(target=connection._read, name="socket", daemon=True).start()
        return connection

    def receive(self, timeout: float | None) -> bytes | None:
        if self._gone.is_set():
            return b""
        try:
            return self._bodies.get(timeout=timeout)
        except queue.Empty:
            return None

    def cancelled(self, request: int) -> bool:
        return self._gone.is_set() or request in self._cancelled

    def send(self, event: AnyEvent) -> None:
        try:
            self._peer.sendall(protocol.frame(event))
        except OSError:
            self._gone.set()

    def _read(self) -> None:
        try:
            with self._peer.makefile("rb") as stream:
                while body := _next_body(stream):
                    self._sort(body)
        except (OSError, ValueError, msgspec.DecodeError):
            log.exception("the socket failed")
        self._gone.set()
        self._bodies.put(b"")
        # The main thread ends the process before this wakes up, unless it is deep in one long computation.
        threading.Event().wait(GRACE_SECONDS)
        os._exit(0)

    def _sort(self, body: bytes) -> None:
        request = protocol.decode_request(body)
        if isinstance(request, Cancel):
            self._cancelled.add(request.target)
        else:
            self._bodies.put(body)


def _next_body(stream: BinaryIO) -> bytes:
    """One frame's body; empty at the end of the stream."""
    header = stream.read(4)
    if len(header) < 4:
        return b""
    length = protocol.body_length(header)
    body = stream.read(length)
    return body if len(body) == length else b""
