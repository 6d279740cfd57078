"""The whole app on a fake engine and real files, played by the keyboard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot

from chatapp.conversation.store import Store
from chatapp.protocol import Load
from chatapp.settings import Settings
from chatapp.ui.app import ChatApp
from chatapp.ui.link import EngineLink
from chatapp.ui.screens.chat import ChatScreen
from chatapp.ui.screens.first import FirstScreen
from chatapp.ui.workspace import Workspace
from tests.ui.fake_engine import FakeEngine


class Stage:
    """An app that runs, and what tests look at.

    Attributes:
        said: All notifications so far.
        warned: Those of them that warn or refuse.
    """

    def __init__(
        self, engine: FakeEngine, folder: Path, settings: Settings, open_id: str | None = None, early: str = ""
    ) -> None:
        self.engine = engine
        self.engines = [engine]
        self.store = Store(folder)
        self._open_id = open_id
        self._early = early
        self._settings = settings
        self.app = ChatApp(settings, self._open, "fake-model")
        self.pilot: Pilot[object]
        self.said: list[str] = []
        self.warned: list[str] = []
        self._notify, self.app.notify = self.app.notify, self._hear

    def _hear(self, message: str, **options: Any) -> None:
        self.said.append(message)
        if options.get("severity", "information") != "information":
            self.warned.append(message)
        self._notify(message, **options)

    def _open(self) -> Workspace:
        first = self.app.screen
        assert isinstance(first, FirstScreen)
        first.typed += [events.Key(character, character) for character in self._early]
        link = EngineLink(self._start, lambda number, model: Load(number, model))
        id = self._open_id
        session = self.store.open(id) if id else self.store.new("fake-model", self._settings.system)
        return Workspace(self.store, link, self._settings, session)

    async def _start(self) -> FakeEngine:
        if not self.engine.alive:
            self.engine = FakeEngine(self.engine.script)
            self.engines.append(self.engine)
        return self.engine

    @property
    def screen(self) -> ChatScreen:
        assert self.app.chat_screen is not None
        return self.app.chat_screen

    @property
    def workspace(self) -> Workspace:
        return self.screen.workspace

    @property
    def texts(self) -> list[str]:
        """The messages shown by the transcript."""
        return [entry.content for entry in self.screen.transcript.document.entries]

    def reopened(self) -> list[str]:
        """What the conversation's file says."""
        with contextlib.closing(self.store.open(self.workspace.chat.id, read_only=True)) as session:
            return [m.content for m in session.conversation.path()]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Types into what has the keyboard."""
        await self.pilot.press(*("space" if character == " " else character for character in text))

    async def say(self, text: str) -> None:
        """Sends a message and waits for the whole reply."""
        self.screen.focus_prompt()
        await self.until(lambda: self.screen.focused is self.screen.prompt.area)
        area = self.screen.prompt.area
        area.show_text(text)
        warned = len(self.warned)
        await self.press("enter")
        await self.until(lambda: area.full_text != text or len(self.warned) > warned)
        await self.settled()

    async def settled(self) -> None:
        await self.until(lambda: not self.workspace.chat.busy)
        self.screen.tick()
        await self.pilot.pause()

    async def served(self) -> None:
        """Waits until all keys, and what was posted to the app and the chat screen, is served; fails if they hang."""
        async with asyncio.timeout(60):
            while self.app._key_order._under_way is not None:
                await asyncio.sleep(0)
        for pump in (self.app, self.screen):
            reached = asyncio.Event()
            pump.call_later(reached.set)
            await asyncio.wait_for(reached.wait(), 60)

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits for something to be seen; the limit is far beyond what a slow machine takes."""
        for _ in range(600):
            if condition():
                return
            await self.pilot.pause()
            await asyncio.sleep(0.005)
        raise AssertionError(f"it did not come about; said: {self.said}; shown: {self.texts}")


@contextlib.asynccontextmanager
async def stage(
    folder: Path,
    engine: FakeEngine | None = None,
    settings: Settings | None = None,
    size: tuple[int, int] = (80, 24),
    open_id: str | None = None,
    ready: bool = True,
    early: str = "",
) -> AsyncGenerator[Stage, None]:
    """Runs the app without a terminal; ``early`` is typed before the chat is there."""
    played = Stage(engine or FakeEngine(), folder, settings or Settings(), open_id, early)
    async with played.app.run_test(size=size, notifications=True) as pilot:
        played.pilot = pilot
        await played.until(lambda: played.app.chat_screen and played.app.screen is played.app.chat_screen)
        await played.until(lambda: played.screen.focused is played.screen.prompt.area)
        if ready:
            await played.until(lambda: played.workspace.link.status.phase == "ready")
        yield played
