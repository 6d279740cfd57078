"""The program in a real terminal: a pseudo-terminal (pexpect) whose screen is kept by an emulator (pyte).

Waits are for what stands on the screen, never for a time; the limits are far beyond what a slow machine needs.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pexpect
import psutil
import pyte

ROOT = Path(__file__).parents[2]
LIMIT = 120.0


class Terminal:
    """A running ``chatapp`` and its screen."""

    def __init__(
        self, *arguments: str, columns: int = 100, rows: int = 30, environment: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.child = pexpect.spawn(
            sys.executable,
            ["-m", "chatapp.cli", *arguments],
            dimensions=(rows, columns),
            cwd=str(ROOT),
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **(environment or {})},
            timeout=LIMIT,
        )

    @property
    def text(self) -> str:
        """The screen's lines."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self, seconds: float = 0.1) -> None:
        """Takes in what the program has written."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                data = self.child.read_nonblocking(65536, timeout=0.05)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                return
            # pyte does not know the kitty keyboard protocol's and mode queries' private markers.
            self._stream.feed(re.sub(rb"\x1b\[[<>=][0-9;]*[a-z]|\x1b\[\?[0-9;]*\$p", b"", data))

    def until(self, condition: str | Callable[[str], object]) -> str:
        """Waits until a text stands on the screen, or a condition holds for the screen's text."""
        holds = condition if callable(condition) else lambda text: condition in text
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            self.read()
            if holds(self.text):
                return self.text
        raise AssertionError(f"{condition!r} did not come about; the screen:\n{self.text}")

    def gone(self, text: str) -> str:
        """Waits until a text does not stand on the screen any more."""
        return self.until(lambda screen: text not in screen)

    def keys(self, *keys: str) -> None:
        """Presses keys, one after the other, each seen by the program as one of its own."""
        for key in keys:
            self.child.send(key)
            self.read(0.15)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def kill(self) -> None:
        """Ends the program as the system does when memory is short."""
        self.child.kill(signal.SIGKILL)
        self.child.wait()

    def engine(self) -> psutil.Process:
        """The engine's process."""
        found = [p for p in psutil.Process(self.child.pid).children(recursive=True) if "chatapp.engine" in p.cmdline()]
        assert len(found) == 1, found
        return found[0]

    def leave(self) -> int:
        """Quits by its key; returns the exit code."""
        self.child.send(CTRL_Q)
        end = time.monotonic() + LIMIT
        while self.child.isalive() and time.monotonic() < end:
            self.read()
        self.child.close()
        assert self.child.exitstatus is not None, self.text
        return self.child.exitstatus


ESCAPE, ENTER, CTRL_Q, CTRL_J, UP, LEFT = "\x1b", "\r", "\x11", "\n", "\x1b[A", "\x1b[D"
F1, F3, F5 = "\x1bOP", "\x1bOR", "\x1b[15~"
