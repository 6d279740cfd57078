"""When frames are drawn. The one module that relies on how Textual paces them (tests/ui/test_frames.py).

Textual draws a screen from an interval timer that leaves out the beats it misses: after a frame that took longer than
a beat, the next one waited for up to two more. A page of heat takes about as long as a beat, so a key that came just
behind it was seen 40 ms later and not 17. Here a frame is drawn when it is wanted, one beat after the last one began.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TypeVar

from textual.screen import UPDATE_PERIOD, Screen
from textual.timer import Timer

Result = TypeVar("Result")

#: Seconds between the end of a frame and the next one, however long it took: what was typed is served in between.
BREATH = UPDATE_PERIOD / 4


class FrameTimer(Timer):
    """Ticks while it is not paused, at the earliest one interval after the last tick began."""

    def begin(self) -> FrameTimer:
        """Starts the timer's task."""
        self._start()
        return self

    async def _run(self) -> None:
        due = 0.0
        while True:
            await self._active.wait()
            await asyncio.sleep(max(0.0, due - monotonic()))
            if not self._active.is_set():
                continue
            begin = monotonic()
            await self._tick(next_timer=begin, count=0)
            due = max(begin + self._interval, monotonic() + BREATH)


class PacedScreen(Screen[Result]):
    """A screen whose frames come when they are wanted."""

    _frames: FrameTimer | None = None

    @property
    def _update_timer(self) -> Timer:
        if self._frames is None:
            timer = FrameTimer(self, UPDATE_PERIOD, name="frames", callback=self._on_timer_update, pause=True)
            self._frames = timer.begin()
            self._timers.add(timer)
        return self._frames
