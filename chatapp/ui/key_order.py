"""Keys and pastes act in the order in which they came.

Textual sends a key to the queue of the widget that has the keyboard, and looks for bindings when the key has come back
to the app through the queues of all that it stands in. Meanwhile the next key is already under way: letters typed right
behind Backspace or Enter came before it, and a key behind one that opens a dialog missed the dialog. Here a key starts
when the one before has gone all its way, and what that set off (``Changed`` of a text, ``Submitted`` of a field) too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from textual import events
from textual.app import App, ScreenStackError
from textual.dom import DOMNode

#: Seconds that a key waits at most for the one before: an action may take long, and the way may end in a widget that
#: goes away.
PATIENCE: Final = 0.25

#: What a person typed or pasted.
Typed = events.Key | events.Paste


class KeyOrder:
    """Lets an app's keys and pastes through one by one."""

    def __init__(self, app: App[Any], serve: Callable[[events.Event], Awaitable[None]]) -> None:
        """Makes the order.

        Args:
            app: Whose keys they are.
            serve: Sends a key on its way, as Textual does.
        """
        self._app = app
        self._serve = serve
        self._waiting: deque[Typed] = deque()
        self._under_way: Typed | None = None
        self._patience: asyncio.TimerHandle | None = None

    async def take(self, event: Typed) -> None:
        """Takes a key or a paste that has just come; called by the app."""
        self._waiting.append(event)
        if self._under_way is None:
            await self._next()

    async def _next(self) -> None:
        if not self._waiting:
            return
        event = self._under_way = self._waiting.popleft()
        self._patience = asyncio.get_running_loop().call_later(PATIENCE, self._app.call_later, self._served, event)
        start = self._holder()
        await self._serve(event)
        # Twice: behind the key itself, and behind the messages that it set off.
        _climb(start, lambda: _climb(self._holder(), partial(self._served, event)))

    async def _served(self, event: Typed) -> None:
        if event is not self._under_way:
            return  # it has arrived after all, when patience had run out
        self._under_way = None
        if self._patience is not None:
            self._patience.cancel()
        await self._next()

    def _holder(self) -> DOMNode:
        """What gets keys now."""
        try:
            return self._app.focused or self._app.screen
        except ScreenStackError:  # the app ends
            return self._app


def _climb(start: DOMNode, then: Callable[[], object]) -> None:
    """Runs something when all queues from a widget's up to the app's have served what is in them now, in this order."""
    step = then if start.parent is None else partial(_climb, start.parent, then)
    closed = not start.call_later(step)
    if closed and start.parent is not None:
        step()
