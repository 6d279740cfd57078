"""One request's way back to the client: its events, its progress, and whether it was cancelled."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from chatapp.engine.ranks import Ranks
from chatapp.engine.transport import Client
from chatapp.errors import Interrupted
from chatapp.models.progress import Step
from chatapp.protocol import AnyEvent, Progress

if TYPE_CHECKING:
    import mlx.core as mx


class Reply:
    """What a request's handler needs of the outside world.

    Attributes:
        request: The request's number.
        ranks: The processes that carry the request out together.
    """

    def __init__(self, request: int, client: Client, ranks: Ranks) -> None:
        self.request = request
        self.ranks = ranks
        self._client = client
        self._carried: deque[mx.array] = deque()
        self._carries = False
        self._stopped = False

    def send(self, event: AnyEvent) -> None:
        """Sends one of this request's events; only rank 0 has a client to send it to."""
        if self.ranks.rank == 0:
            self._client.send(event)

    def cancelled(self) -> bool:
        """Whether the client wants this request to stop; all ranks call it at the same step."""
        self.ranks.repeated()
        if not self._carries:
            return self.ranks.agree(self._client.cancelled(self.request))
        if self._carried:
            carried: Any = self._carried.popleft().tolist()
            self._stopped = self._stopped or bool(carried[-1])
        return self._stopped

    def same(self, ids: mx.array) -> mx.array:
        """Rank 0's values of drawn ids, on every rank, without evaluating them.

        With several ranks a cancel travels in the same collective: from now on `cancelled` answers from there, once
        for each call of this. So a token costs the ranks one meeting, and a cancel counts one token later.
        """
        if self.ranks.size == 1:
            return ids
        import mlx.core as mx

        self._carries = True
        stop = mx.array([int(self._client.cancelled(self.request))], ids.dtype)
        carried = self.ranks.same(mx.concatenate([ids.flatten(), stop]))
        self._carried.append(carried)
        return carried[:-1].reshape(ids.shape)

    def progress(self, step: Step) -> None:
        """Reports how far a download, a conversion or a load is.

        Raises:
            Interrupted: The request was cancelled.
        """
        if self._client.cancelled(self.request):
            raise Interrupted("Stopped as you asked; what was downloaded so far is kept.")
        self.send(Progress(self.request, step.stage, step.done, step.total, step.unit, step.file))
