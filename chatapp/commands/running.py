"""An engine for one command: started, loaded with its progress on stderr, stopped by Ctrl+C, ended afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from chatapp.client import Engine
from chatapp.errors import Interrupted
from chatapp.launch import Hosts
from chatapp.protocol import AnyEvent, AnyRequest, Cancel, Load, Loaded
from chatapp.protocol import Progress as ProgressEvent
from chatapp.text import visible

_STAGES = {
    "resolve": "looking up",
    "download": "downloading",
    "verify": "checking",
    "convert": "converting",
    "load": "loading",
}


class Running:
    """An engine with a model.

    Attributes:
        engine: The engine.
        load: What was asked for.
        loaded: Facts of the model.
        interrupted: Ctrl+C was pressed; the request at hand ends as cancelled.
    """

    def __init__(self, engine: Engine, load: Load, loaded: Loaded) -> None:
        self.engine = engine
        self.load = load
        self.loaded = loaded
        self.interrupted = False

    async def events(self, make: Callable[[int], AnyRequest]) -> AsyncGenerator[AnyEvent, None]:
        """Sends the request that ``make`` builds from its number and yields its events.

        The first Ctrl+C cancels the request, which then ends with what it has; a second one ends the command.
        """
        number = self.engine.next_request()
        with _on_interrupt(lambda: self._interrupt(number)):
            async with contextlib.aclosing(self.engine.request(make(number))) as events:
                async for event in events:
                    yield event

    def _interrupt(self, number: int) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.engine.post(Cancel(self.engine.next_request(), target=number))


@contextlib.asynccontextmanager
async def running(load: Callable[[int], Load], hosts: Hosts | None = None) -> AsyncGenerator[Running]:
    """Starts an engine, over several hosts if given, loads what ``load`` asks for, and ends the engine in the end.

    Raises:
        ChatappError: The model could not be loaded, or the engine ended.
    """
    engine = await Engine.start(hosts=hosts)
    try:
        request = load(engine.next_request())
        yield Running(engine, request, await _load(engine, request))
    finally:
        await engine.close()


def run_until_done(main: Coroutine[Any, Any, int]) -> int:
    """Runs a command's coroutine; Ctrl+C outside `Running.events` ends it at once.

    Raises:
        Interrupted: It was ended by Ctrl+C.
    """
    try:
        return asyncio.run(main)
    except KeyboardInterrupt:
        raise Interrupted from None


async def _load(engine: Engine, request: Load) -> Loaded:
    loaded: Loaded | None = None
    with LoadProgress() as progress:
        async with contextlib.aclosing(engine.request(request)) as events:
            async for event in events:
                if isinstance(event, ProgressEvent):
                    progress.show(event)
                elif isinstance(event, Loaded):
                    loaded = event
    assert loaded is not None, "a load that has not failed ends with Loaded"
    if loaded.note:
        print(f"chatapp: {visible(loaded.note)}", file=sys.stderr)
    return loaded


class LoadProgress(contextlib.AbstractContextManager["LoadProgress"]):
    """Bars on stderr, one for each stage; nothing at all where stderr is no terminal. They vanish at the end."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> LoadProgress:
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def show(self, event: ProgressEvent) -> None:
        """Moves the bar of the event's stage."""
        words = _STAGES.get(event.stage, event.stage)
        task = self._tasks.get(event.stage)
        if task is None:
            task = self._tasks[event.stage] = self._bars.add_task(words, total=None)
        description = f"{words} {visible(event.file)}" if event.file else words
        self._bars.update(task, completed=event.done, total=event.total or None, description=description)


@contextlib.contextmanager
def _on_interrupt(handler: Callable[[], None]) -> Generator[None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
