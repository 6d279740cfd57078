"""The UI's hold on the engine: starts it, loads models, knows what state it is in, starts it again when it died.

No Textual here: the screen reads `EngineLink.status` on its clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from chatapp.client import EngineClient, EngineLost, RequestFailed
from chatapp.errors import ChatappError
from chatapp.protocol import Cancel, Fetch, Fetched, Leave, Load, Loaded, Progress
from chatapp.ui.changes import Said

Phase = Literal["off", "starting", "loading", "ready", "failed", "lost"]

#: Starts an engine; returns as soon as its process is spawned.
Starter = Callable[[], Awaitable[EngineClient]]

#: Makes the `Load` for a model from its request number and name, with the person's settings in it.
Loader = Callable[[int, str], Load]


class NotReady(ChatappError):  # noqa: N818 - it is a state, not an error of the program
    """The engine cannot take a request now; the sentence says why and which key helps."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "engine")


@dataclass(frozen=True)
class EngineStatus:
    """What the engine is doing.

    Attributes:
        phase: "failed" is an engine that runs but could not load the model; "lost" is one that ended.
        model: Name of the model that is loaded, or that was asked for.
        progress: How far a download or a load is.
        loaded: Facts of the loaded model.
        given: What of the options it was loaded with shapes replies: ``keep``, ``kv_bits``, ``adapter``.
        message: For "failed" and "lost", one sentence for people.
    """

    phase: Phase = "off"
    model: str = ""
    progress: Progress | None = None
    loaded: Loaded | None = None
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    message: str = ""

    @property
    def can_be_stopped(self) -> bool:
        """It waits for a download or a conversion; a load itself goes on to its end."""
        return self.phase == "loading" and self.progress is not None and self.progress.stage != "load"


class EngineLink:
    """One engine for the whole program; several conversations may use it.

    Attributes:
        status: What it is doing now. A new object whenever something changed.
    """

    def __init__(self, start: Starter, load: Loader) -> None:
        self.status = EngineStatus()
        self._start = start
        self._make_load = load
        self._client: EngineClient | None = None
        self._settled = asyncio.Event()
        self._in_use: EngineStatus | None = None  # of the model that was loaded last
        self._refused: str = ""  # why the model that was asked for last is not the one in use
        self._told: list[Said] = []
        self._opening: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._loading = 0  # the request that is under way, or 0

    def open(self, model: str) -> None:
        """Starts an engine (if none runs) and loads a model, in the background; `ready` waits for it.

        Where it cannot be loaded, the model that was in use goes on, or is loaded again.
        """
        self._refused = ""
        self._load(model)

    def _load(self, model: str) -> None:
        if self._opening and not self._opening.done():
            self._opening.cancel()
        self._settled.clear()
        self.status = EngineStatus("starting" if self._client is None else "loading", model)
        self._opening = asyncio.create_task(self._open(model), name=f"load {model}")

    def stop(self) -> bool:
        """Stops the download or conversion that a load waits for. False if there is none."""
        if self._client is None or not self._loading or not self.status.can_be_stopped:
            return False
        self._client.post(Cancel(self._client.next_request(), target=self._loading))
        return True

    def restart(self) -> None:
        """Ends the engine, if it still runs, and starts another one with the same model."""
        client, self._client = self._client, None
        self.open(self.status.model)
        if client is not None:
            closing = asyncio.create_task(client.close(), name="close engine")
            closing.add_done_callback(_forget)

    async def ready(self) -> tuple[EngineClient, Loaded]:
        """Waits until a model is loaded.

        Raises:
            NotReady: The engine or the model did not come up, or none was ever started.
        """
        waited = False
        while self.status.phase in ("starting", "loading"):
            await self._settled.wait()
            waited = True
        if waited and self._refused:  # what was asked for is not to be answered by another model unasked
            raise NotReady(self._refused)
        if self._client is None or self.status.loaded is None or self.status.phase != "ready":
            raise NotReady(self.status.message or "No model is loaded: F4 chooses one.")
        return self._client, self.status.loaded

    @property
    def client(self) -> EngineClient | None:
        """The engine, if it is ready to take requests."""
        return self._client if self.status.phase == "ready" else None

    def lost(self, error: EngineLost, client: EngineClient | None) -> None:
        """A request met the end of the engine that it was sent to; nothing if another one has taken its place."""
        if self.status.phase == "lost" or client is not self._client:
            return
        self._client = None
        # What is started again is what worked last, not a model that the engine died of.
        model = self._in_use.model if self._in_use is not None else self.status.model
        self._settle(EngineStatus("lost", model, message=str(error)))

    def take_told(self) -> list[Said]:
        """What the person should hear since the last call."""
        told, self._told = self._told, []
        return told

    def check(self) -> None:
        """Notices an engine that ended while nothing was asked of it."""
        client = self._client
        if client is not None and not client.alive and self.status.phase == "ready":
            self.lost(EngineLost("The engine ended."), client)
            self._asking = asyncio.create_task(self._ask_why(client), name="why did the engine end")

    async def _ask_why(self, client: EngineClient) -> None:
        """An engine that ended tells its last words to whoever asks something of it."""
        try:
            await client.ask(Leave(client.next_request(), ""))
        except EngineLost as error:
            if self.status.phase == "lost":
                self.status = replace(self.status, message=str(error))

    async def close(self) -> None:
        """Ends the engine."""
        if self._opening:
            self._opening.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def fetch(self, model: str) -> AsyncGenerator[Progress, None]:
        """Downloads a model in an engine of its own, so that chatting goes on; leaving the loop stops it.

        Raises:
            ChatappError: It could not be fetched; the sentence says why.
        """
        client = await self._start()
        try:
            request = Fetch(client.next_request(), model)
            async with contextlib.aclosing(client.request(request)) as events:
                try:
                    async for event in events:
                        if isinstance(event, Progress):
                            yield event
                        elif isinstance(event, Fetched):
                            return
                finally:
                    client.post(Cancel(client.next_request(), target=request.request))
        finally:
            await client.close()

    async def _open(self, model: str) -> None:
        try:
            if self._client is None or not self._client.alive:
                self._client = await self._start()
                await self._client.hello()
                self.status = replace(self.status, phase="loading")
            request = self._make_load(self._client.next_request(), model)
            self._loading = request.request
            async with contextlib.aclosing(self._client.request(request)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        self.status = replace(self.status, progress=event)
                    elif isinstance(event, Loaded):
                        given = {name: getattr(request, name) for name in ("keep", "kv_bits", "adapter")}
                        self._in_use = EngineStatus("ready", model, loaded=event, given=given)
                        self._settle(self._in_use)
        except EngineLost as error:
            self.lost(error, self._client)
        except ChatappError as error:
            self._go_on_without(model, error)

    def _go_on_without(self, model: str, error: ChatappError) -> None:
        """A model could not be loaded: the one that was in use stays, or is loaded again if the engine gave it up."""
        before, self._in_use = self._in_use, None
        kept = isinstance(error, RequestFailed) and error.kept
        if error.kind == "cancelled":
            error = ChatappError(f"The download of {model} was stopped; what is there is used when it starts again.")
        if before is None or (before.model == model and not kept):
            self._settle(EngineStatus("failed", model, message=str(error)))
            return
        stays = f"{before.model} stays in use." if kept else f"{before.model} is loaded again."
        self._refused = f"{error} {stays}"
        self._told.append(Said(self._refused, "error"))
        if kept:
            self._in_use = before
            self._settle(before)
        else:
            self._opening = None  # it is this task, which ends here
            self._load(before.model)

    def _settle(self, status: EngineStatus) -> None:
        self.status = status
        self._settled.set()


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # an engine that would not close has been killed by its client
