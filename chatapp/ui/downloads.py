"""Models that are being downloaded, each in an engine of its own, while chatting goes on. No Textual here."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from chatapp.errors import ChatappError
from chatapp.protocol import Progress
from chatapp.ui.changes import Said
from chatapp.ui.link import EngineLink


@dataclass
class Download:
    """One model on its way; ``progress`` is None until the engine has told of some."""

    name: str
    task: asyncio.Task[None]
    progress: Progress | None = None


class Downloads:
    """The downloads that run, and what they have to tell.

    Attributes:
        running: By the model's name.
        told: How downloads ended; whoever shows it clears it.
    """

    def __init__(self, link: EngineLink) -> None:
        self.running: dict[str, Download] = {}
        self.told: list[Said] = []
        self._link = link

    def start(self, name: str) -> None:
        """Begins a download; one that runs goes on."""
        if name not in self.running:
            self.running[name] = Download(name, asyncio.create_task(self._run(name), name=f"download {name}"))

    def stop(self, name: str) -> bool:
        """Ends a download; what is there is used when it is started again. False if none runs."""
        download = self.running.get(name)
        return download is not None and download.task.cancel()

    async def close(self) -> None:
        """Ends all downloads."""
        tasks = [download.task for download in self.running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str) -> None:
        try:
            async with contextlib.aclosing(self._link.fetch(name)) as events:
                async for progress in events:
                    self.running[name].progress = progress
            self.told.append(Said(f"{name} is here; F4 loads it."))
        except ChatappError as error:
            self.told.append(Said(str(error), "error"))
        except asyncio.CancelledError:
            self.told.append(Said(f"The download of {name} was stopped; what is there is used when it starts again."))
            raise
        finally:
            del self.running[name]
