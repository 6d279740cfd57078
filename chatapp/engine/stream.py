"""Token records on their way to the client: sent at once by a slow model, a few at a time by a quick one."""

from __future__ import annotations

import time

from chatapp.engine.reply import Reply
from chatapp.protocol import Tokens
from chatapp.tokens import Token

#: The shortest time between two events, in seconds: a screen draws at 30 Hz, so nobody could see more of them.
_INTERVAL = 1 / 60


class TokenStream:
    """Collects one candidate's records and sends them."""

    def __init__(self, reply: Reply, candidate: int = 0) -> None:
        self._reply = reply
        self._candidate = candidate
        self._held: list[Token] = []
        self._sent = 0.0

    def add(self, token: Token) -> None:
        """Takes a record; sends what is held unless the last event was a moment ago."""
        self._held.append(token)
        if time.perf_counter() - self._sent >= _INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Sends what is held."""
        if self._held:
            self._reply.send(Tokens(self._reply.request, tuple(self._held), self._candidate))
            self._held.clear()
        self._sent = time.perf_counter()
