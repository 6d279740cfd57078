"""One request's way back to the client: its events, its progress, and whether it was cancelled."""

from __future__ import annotations

from chatapp.engine.ranks import Ranks
from chatapp.engine.transport import Connection
from chatapp.errors import Interrupted
from chatapp.models.progress import Step
from chatapp.protocol import AnyEvent, Progress


class Reply:
    """What a request's handler needs of the outside world.

    Attributes:
        request: The request's number.
        ranks: The processes that carry the request out together.
    """

    def __init__(self, request: int, connection: Connection, ranks: Ranks) -> None:
        self.request = request
        self.ranks = ranks
        self._connection = connection

    def send(self, event: AnyEvent) -> None:
        """Sends one of this request's events; only rank 0 has a client to send it to."""
        if self.ranks.rank == 0:
            self._connection.send(event)

    def cancelled(self) -> bool:
        """Whether the client wants this request to stop; all ranks call it at the same step."""
        return self.ranks.agree(self._connection.cancelled(self.request))

    def progress(self, step: Step) -> None:
        """Reports how far a download, a conversion or a load is.

        Raises:
            Interrupted: The request was cancelled.
        """
        if self._connection.cancelled(self.request):
            raise Interrupted("Stopped as you asked; what was downloaded so far is kept.")
        self.send(Progress(self.request, step.stage, step.done, step.total, step.unit, step.file))
