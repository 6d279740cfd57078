"""What a conversation asks of the engine besides replies; what the engine notes on the way is told to the person."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chatapp.client import EngineLost
from chatapp.errors import ChatappError
from chatapp.protocol import AnyEvent, Choose, Forecast, Leave, Note
from chatapp.ui.changes import Said
from chatapp.ui.link import EngineLink

Answer = TypeVar("Answer")


class Asking:
    """Asks for one conversation.

    Attributes:
        link: The engine.
        tell: Takes what the person should know.
    """

    def __init__(self, link: EngineLink, tell: Callable[[Said], None]) -> None:
        self.link = link
        self.tell = tell
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def at_rest(self) -> bool:
        """Nothing was asked that is not answered."""
        return not self._tasks

    def number(self) -> int | None:
        """The number of the next request; None where no engine runs."""
        return self.link.client.next_request() if self.link.client is not None else None

    async def ask(self, request: Forecast | Choose | Leave) -> AnyEvent | None:
        """The last event of the engine's answer; None where there is no engine any more.

        Who is cancelled while waiting (a forecast that another key made stale) hears the notes all the same: the engine
        gives each of them once.

        Raises:
            ChatappError: The engine refused; the sentence says why.
        """
        return await asyncio.shield(self._kept(self._ask(request)))

    async def _ask(self, request: Forecast | Choose | Leave) -> AnyEvent | None:
        client = self.link.client
        if client is None:
            return None
        last: AnyEvent | None = None
        try:
            async with contextlib.aclosing(client.request(request)) as events:
                async for last in events:
                    if isinstance(last, Note):
                        self.tell(Said(last.message, "warning"))
        except EngineLost as error:
            self.link.lost(error, client)
            return None
        return last

    async def have(self, request: Choose | Leave) -> None:
        """Has something done; a refusal is told."""
        try:
            await self.ask(request)
        except ChatappError as error:
            self.tell(Said(str(error), "warning"))

    def have_soon(self, request: Choose | Leave) -> None:
        """As `have`, without waiting; `at_rest` when it is done."""
        self._kept(self.have(request))

    def _kept(self, coroutine: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody waits for it any more where the one who asked was cancelled
