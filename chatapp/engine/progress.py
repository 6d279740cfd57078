"""How far the main thread of a rank has come, so that a rank that is alive and yet hangs is noticed.

The numbers lie in memory that the rank shares with its keeper (`chatapp.engine.keeper`), which can read them whatever
the rank does.

How long a step may take cannot be known beforehand: reading a chunk of a prompt takes a large model on a slow machine
minutes. So waiting for requests has a short limit, anything in a request a long one, and where steps follow each other
(chunks of a prompt, tokens) the next one is given a multiple of the longest so far.
"""

from __future__ import annotations

import mmap
import time

from chatapp.launch import STARTING

#: Between two meetings of waiting ranks, in seconds: more than the silence after which a rank counts as gone, so that
#: a rank that was stopped is called silent and not stuck.
WAITING = 15.0

#: For anything in a request whose like was not measured yet, in seconds.
WORKING = 60.0

#: For a step of many, in seconds, at least; else so many times the longest one so far.
REPEATED = 20.0
_TIMES = 8.0

#: Of the shared memory: the number of the step, the time by which the next one is due, and how long it may take.
BYTES = 24


class Progress:
    """Written by the main thread of a rank, read by its keeper."""

    def __init__(self, descriptor: int = -1) -> None:
        """Makes or joins the shared memory.

        Args:
            descriptor: A file of at least `BYTES` that the rank and its keeper have open; by default memory of this
                process alone.
        """
        memory = memoryview(mmap.mmap(descriptor, BYTES))
        self._step = memory[:8].cast("q")
        self._due = memory[8:16].cast("d")
        self._shared = memory[16:].cast("d")
        self._allowed = STARTING
        self._working = WORKING
        self._measured: float | None = None
        self._longest = 0.0

    @property
    def step(self) -> int:
        """Grows whenever the main thread comes to a new place; the same number on every rank there.

        0 while it imports, 1 when it begins to look for the other ranks.
        """
        return self._step[0]

    @property
    def late(self) -> bool:
        """Whether the main thread takes longer than it may."""
        return time.monotonic() > self._due[0]

    @property
    def allowed(self) -> float:
        """How long the present step may take, in seconds."""
        return self._shared[0]

    def start(self) -> None:
        """The rank is started: it imports MLX."""
        # What is due is one number, written at once, so that nobody reads a new limit with the time of an old step.
        self._due[0] = time.monotonic() + self._allowed
        self._shared[0] = self._allowed

    def reach(self) -> None:
        """The main thread has come further."""
        self._step[0] += 1
        self.start()

    def wait(self) -> None:
        """It waits for a request."""
        self._allowed = WAITING
        self.reach()

    def begin(self) -> None:
        """It has a request to carry out."""
        self._allowed = self._working
        self._measured, self._longest = None, 0.0
        self.reach()

    def repeat(self) -> None:
        """One of many like steps is done: the next one is expected to take about as long as those before."""
        now = time.monotonic()
        if self._measured is not None:
            self._longest = max(self._longest, now - self._measured)
            self._allowed = max(REPEATED, _TIMES * self._longest)
        self._measured = now
        self.reach()

    def expect(self, seconds: float) -> None:
        """From now on a step may take so long before one has been measured, if that is more than usual."""
        self._working = self._allowed = max(WORKING, seconds)
        self.reach()
