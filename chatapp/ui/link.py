"""The UI's hold on the engine: starts it, loads models, knows what state it is in, starts it again when it died.

No Textual here: the screen reads `EngineLink.status` on its clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from chatapp.client import EngineClient, EngineLost
from chatapp.errors import ChatappError
from chatapp.protocol import Cancel, Fetch, Fetched, Leave, Load, Loaded, Progress

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
        self._opening: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def open(self, model: str) -> None:
        """Starts an engine (if none runs) and loads a model, in the background; `ready` waits for it."""
        if self._opening and not self._opening.done():
            self._opening.cancel()
        self._settled.clear()
        self.status = EngineStatus("starting" if self._client is None else "loading", model)
        self._opening = asyncio.create_task(self._open(model), name=f"load {model}")

    def restart(self) -> None:
        """Ends the engine, if it still runs, and starts another one with the same model."""
        client, self._client = self._client, None
        model = self.status.model
        self.open(model)
        if client is not None:
            closing = asyncio.create_task(client.close(), name="close engine")
            closing.add_done_callback(_forget)

    async def ready(self) -> tuple[EngineClient, Loaded]:
        """Waits until a model is loaded.

        Raises:
            NotReady: The engine or the model did not come up, or none was ever started.
        """
        while self.status.phase in ("starting", "loading"):
            await self._settled.wait()
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
        self._settle(EngineStatus("lost", self.status.model, message=str(error)))

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
            async with contextlib.aclosing(self._client.request(request)) as events:
                async for event in events:
                    if isinstance(event, Progress):
                        self.status = replace(self.status, progress=event)
                    elif isinstance(event, Loaded):
                        given = {name: getattr(request, name) for name in ("keep", "kv_bits", "adapter")}
                        self._settle(EngineStatus("ready", model, loaded=event, given=given))
        except EngineLost as error:
            self.lost(error, self._client)
        except ChatappError as error:
            self._settle(EngineStatus("failed", model, message=str(error)))

    def _settle(self, status: EngineStatus) -> None:
        self.status = status
        self._settled.set()


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # an engine that would not close has been killed by its client
