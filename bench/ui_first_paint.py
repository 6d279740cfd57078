"""Wall time of a process that paints once and leaves: chatapp over an empty Textual app, taken in turns."""

from __future__ import annotations

import os
import pty
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
_EMPTY = """
import os, sys, time
from textual.app import App
class Empty(App):
    def on_mount(self): self.call_after_refresh(self._painted)
    def _painted(self): self.call_later(self.exit)
Empty().run()
"""

# Painted: leave before the chat is imported and the engine starts.
_OURS = """
import sys
from chatapp.ui.app import ChatApp
async def painted(self): self.call_later(self.exit)
ChatApp._begin = painted
from chatapp.cli import main
sys.exit(main([]))
"""

# The chat is painted and takes keys; the engine has been spawned and is ended again.
_USABLE = """
import sys
from chatapp.ui.app import ChatApp
begin = ChatApp._begin
async def begun(self):
    await begin(self)
    self.chat_screen.call_after_refresh(self.exit)
ChatApp._begin = begun
from chatapp.client import Engine
async def close(self): self._process.kill()
Engine.close = close
from chatapp.cli import main
sys.exit(main([]))
"""


def paint(runs: int = 7) -> dict[str, float]:
    """Medians in milliseconds, by program."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            **{f"CHATAPP_{kind}_DIR": f"{folder}/{kind}" for kind in ("DATA", "CONFIG", "CACHE")},
            # As after any first start: all three have their bytecode, whatever is set here.
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "PYTHONDONTWRITEBYTECODE": "",
        }
        programs = {"empty": _EMPTY, "painted": _OURS, "usable": _USABLE}
        times: dict[str, list[float]] = {name: [] for name in programs}
        for round_ in range(runs + 1):
            for name, code in programs.items():
                elapsed = _in_terminal(code, environment)
                if round_:
                    times[name].append(elapsed)
    found = {name: statistics.median(values) for name, values in times.items()}
    print("first paint and exit, ms (in brackets: over an empty Textual app)")
    for name, value in found.items():
        print(f"  {name:<10} {value:6.0f}   ({value / found['empty']:.2f}x)", flush=True)
    return found


def _in_terminal(code: str, environment: dict[str, str]) -> float:
    master, slave = pty.openpty()
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=ROOT
    )
    os.close(slave)
    while process.poll() is None:
        try:
            os.read(master, 65536)
        except OSError:
            break
    process.wait()
    elapsed = 1000 * (time.perf_counter() - begin)
    os.close(master)
    if process.returncode:
        raise SystemExit(f"the measured program failed with {process.returncode}")
    return elapsed
