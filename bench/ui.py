"""Figures of the terminal UI, each beside what it is compared with.

    python bench/ui.py            all
    python bench/ui.py paint      time to first paint over that of an empty Textual app
    python bench/ui.py keys       key to screen while 200 tokens/s arrive, with 0, 8k and 64k tokens of history
    python bench/ui.py cpu        share of one core that the UI process takes at 200 tokens/s
    python bench/ui.py open       opening a conversation of 64k tokens; scrolling it

The engine is a scripted one (tests/ui/fake_engine.py), so that only the UI is measured. Times are in milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.ui.app.stage import Stage, stage  # noqa: E402
from tests.ui.fake_engine import FakeEngine, token  # noqa: E402

RATE = 200
HISTORIES = (0, 8_000, 64_000)
WORDS = ("the", "model", "is", "not", "sure", "of", "**this**", "word,", "`code`", "and", "goes", "on.\n\n")


def text(tokens: int) -> str:
    """A reply of about so many tokens."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(tokens))


# -- first paint ------------------------------------------------------------------------------------------------------

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


def paint(runs: int = 7) -> None:
    """Wall time of a process that paints once and leaves, ours over an empty app's, taken in turns."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            **{f"CHATAPP_{kind}_DIR": f"{folder}/{kind}" for kind in ("DATA", "CONFIG", "CACHE")},
        }
        programs = {"empty": _EMPTY, "painted": _OURS, "usable": _USABLE}
        times: dict[str, list[float]] = {name: [] for name in programs}
        for round_ in range(runs + 1):
            for name, code in programs.items():
                elapsed = _in_terminal(code, environment)
                if round_:
                    times[name].append(elapsed)
    empty, painted, usable = (statistics.median(times[name]) for name in programs)
    print(f"first paint and exit: empty Textual app {empty:.0f}, chatapp {painted:.0f}, ratio {painted / empty:.2f}")
    print(f"chat takes keys, and exit: {usable:.0f}, ratio {usable / empty:.2f}")


def _in_terminal(code: str, environment: dict[str, str]) -> float:
    import pty

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


# -- keys -------------------------------------------------------------------------------------------------------------


@contextmanager
def private_folders() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("DATA", "CONFIG", "CACHE"):
            os.environ[f"CHATAPP_{kind}_DIR"] = f"{folder}/{kind}"
        yield Path(folder) / "chats"


def conversation(store_folder: Path, tokens: int) -> str | None:
    """A saved conversation with so many tokens of replies; None for none."""
    if not tokens:
        return None
    from chatapp.conversation.store import Store
    from tests.ui.fake_engine import pieces

    session = Store(store_folder).new("fake-model")
    for _ in range(tokens // 1000):
        session.add_message("user", "Tell me more.")
        writer = session.begin_reply(model="fake-model")
        writer.append([token(i, piece) for i, piece in enumerate(pieces(text(1000)))])
        writer.finish("stop")
    session.close()
    return session.id


async def one_key(s: Stage) -> float:
    """From a key's arrival until the screen that shows it has been handed to the terminal."""
    area = s.screen.prompt.area
    before = len(area.text)
    begin = time.perf_counter()
    s.app.post_message(_key("x"))
    while len(area.text) == before:
        await asyncio.sleep(0)
    painted = asyncio.Event()
    s.app.call_after_refresh(painted.set)
    await painted.wait()
    return 1000 * (time.perf_counter() - begin)


def _key(character: str) -> object:
    from textual import events

    return events.Key(character, character)


async def keys_at(history: int, streaming: bool, keys: int) -> tuple[float, float]:
    with private_folders() as folder:
        id = conversation(folder, history)
        engine = FakeEngine(lambda request, candidate: text(100_000), rate=RATE)
        async with stage(folder, engine, size=(120, 40), open_id=id) as s:
            await asyncio.sleep(1.0)
            if streaming:
                s.screen.prompt.area.show_text("go")
                await s.press("enter")
                await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.made > 20)
            times: list[float] = []
            for _ in range(keys):
                times.append(await one_key(s))
                await asyncio.sleep(0.02)
            s.workspace.chat.stop()
    return statistics.median(times), statistics.quantiles(times, n=20)[-1]


def keys(count: int = 100) -> None:
    for history in HISTORIES:
        for streaming in (False, True):
            p50, p95 = asyncio.run(keys_at(history, streaming, count))
            state = f"{RATE} tok/s" if streaming else "at rest"
            print(f"key to screen, {history:>6,} tokens of history, {state:<9}: p50 {p50:5.1f}  p95 {p95:5.1f}")


# -- load on the processor --------------------------------------------------------------------------------------------


async def share(history: int, seconds: float = 5.0) -> float:
    with private_folders() as folder:
        id = conversation(folder, history)
        engine = FakeEngine(lambda request, candidate: text(100_000), rate=RATE)
        async with stage(folder, engine, size=(120, 40), open_id=id) as s:
            s.screen.prompt.area.show_text("go")
            await s.press("enter")
            await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.made > 20)
            made = s.workspace.chat.reply.made if s.workspace.chat.reply else 0
            begin, used = time.perf_counter(), _processor()
            await asyncio.sleep(seconds)
            elapsed, used = time.perf_counter() - begin, _processor() - used
            rate = ((s.workspace.chat.reply.made if s.workspace.chat.reply else 0) - made) / elapsed
            s.workspace.chat.stop()
    print(f"processor share, {history:>6,} tokens of history, {rate:.0f} tok/s arriving: {100 * used / elapsed:.0f} %")
    return used / elapsed


def _processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def cpu() -> None:
    for history in HISTORIES:
        asyncio.run(share(history))


# -- opening and scrolling --------------------------------------------------------------------------------------------


async def opening(history: int) -> None:
    with private_folders() as folder:
        id = conversation(folder, history)
        assert id is not None
        async with stage(folder, FakeEngine(), size=(120, 40)) as s:
            begin = time.perf_counter()
            s.workspace.open(id)
            s.screen.show_chat()
            painted = asyncio.Event()
            s.app.call_after_refresh(painted.set)
            await painted.wait()
            opened = 1000 * (time.perf_counter() - begin)
            frames: list[float] = []
            s.screen.focus_transcript()
            for _ in range(60):
                begin = time.perf_counter()
                s.screen.transcript.scroll_page_up(animate=False)
                painted = asyncio.Event()
                s.app.call_after_refresh(painted.set)
                await painted.wait()
                frames.append(1000 * (time.perf_counter() - begin))
    p95 = statistics.quantiles(frames, n=20)[-1]
    print(f"{history:>6,} tokens: opened in {opened:.0f}; page up: p50 {statistics.median(frames):.1f}  p95 {p95:.1f}")


def open_() -> None:
    for history in HISTORIES[1:]:
        asyncio.run(opening(history))


def main() -> None:
    parts = {"paint": paint, "keys": keys, "cpu": cpu, "open": open_}
    for name in sys.argv[1:] or parts:
        if name not in parts:
            raise SystemExit(f"{name} is none of {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    main()
