"""Figures of the terminal UI, each beside what it is compared with.

    python -m bench.ui                 all
    python -m bench.ui paint           time to first paint over that of an empty Textual app
    python -m bench.ui chat            with 0, 8k and 64k tokens of history: opening, scrolling, keys, processor
    python -m bench.ui chat --tokens 0 64000 --keys 200

The engine is a scripted one (tests/ui/fake_engine.py) in the same process, so that only the UI is measured and its
load includes that of the script. Times are in milliseconds, by the clock and ("cpu") of the processor, which other
programs do not lengthen. A key's is the time from its arrival until the frame that shows it has been handed to the
terminal, while nothing else happens and while 200 tokens arrive in a second. Each history is measured in a process of
its own. Prints the figures and writes them to ``bench/results/ui.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from textual import events

from bench.ui_first_paint import paint
from chatapp.conversation.store import Store
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine, pieces, token

RESULTS = Path(__file__).parent / "results" / "ui.json"
RATE = 200
HISTORIES = (0, 8_000, 64_000)
SIZE = (120, 40)
FRAMES = 60
OPENED = 9
#: Two frames of the screen's clock: what the 95th percentile of a key has to stay under.
TWO_FRAMES = 2 * 1000 / 30
WORDS = ("the", "model", "is", "not", "sure", "of", "**this**", "word,", "`code`", "and", "goes", "on.\n\n")

Figures = dict[str, float]


def text(tokens: int) -> str:
    """A reply of so many tokens."""
    return " ".join(WORDS[i % len(WORDS)] for i in range(tokens))


def conversation(folder: Path, tokens: int) -> str:
    """A saved conversation with so many tokens of replies."""
    session = Store(folder).new("fake-model")
    session.add_message("user", "Tell me.")
    for _ in range(tokens // 1000):
        writer = session.begin_reply(model="fake-model")
        writer.append([token(i, piece) for i, piece in enumerate(pieces(text(1000)))])
        writer.finish("stop")
        session.add_message("user", "Tell me more.")
    session.close()
    return session.id


class Took(NamedTuple):
    """Milliseconds of something, by the clock and of the processor."""

    clock: float
    cpu: float


async def painted(s: Stage, act: Callable[[], object], done: Callable[[], bool] = lambda: True) -> Took:
    """From an act until it is done and the frame that shows it has been handed to the terminal."""
    shown = asyncio.Event()
    begin, used = time.perf_counter(), time.process_time()
    act()
    while not done():
        await asyncio.sleep(0)
    s.app.call_after_refresh(shown.set)
    await shown.wait()
    return Took(1000 * (time.perf_counter() - begin), 1000 * (time.process_time() - used))


async def keys(s: Stage, count: int) -> list[Took]:
    """Letters typed into the prompt, one after the other."""
    area = s.screen.prompt.area
    s.screen.focus_prompt()
    area.show_text("")
    times: list[Took] = []
    gaps = random.Random(count)  # an even gap would keep step with the stream's frames
    for number in range(1, count + 1):
        typed = partial(s.app.post_message, events.Key("x", "x"))
        times.append(await painted(s, typed, lambda number=number: len(area.text) == number))
        await asyncio.sleep(gaps.uniform(0.02, 0.06))
    return times


def spread(name: str, times: list[Took]) -> Figures:
    found: Figures = {}
    for kind in Took._fields:
        values = [getattr(took, kind) for took in times]
        label = name if kind == "clock" else f"{name}, {kind}"
        found |= {f"{label} p50": statistics.median(values), f"{label} p95": statistics.quantiles(values, n=20)[-1]}
    return found


async def measured(history: int, count: int) -> Figures:
    """Everything about one length of history."""
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("DATA", "CONFIG", "CACHE"):
            os.environ[f"CHATAPP_{kind}_DIR"] = f"{folder}/{kind}"
        id = conversation(Path(folder) / "chats", history)
        engine = FakeEngine(lambda request, candidate: text(100_000), rate=RATE)
        async with stage(Path(folder) / "chats", engine, size=SIZE) as s:
            found = await opening(s, id)
            await s.until(lambda: s.screen.transcript.settled)
            found |= spread("key at rest", await keys(s, count))
            if history:
                found |= await scrolling(s)
            s.screen.focus_prompt()
            s.screen.prompt.area.show_text("go")
            await s.press("enter")
            await s.until(lambda: made(s) > 20)
            found |= spread("key while streaming", await keys(s, count))
            found |= await load(s)
            s.workspace.chat.stop()
            await s.settled()
    return found


async def opening(s: Stage, id: str) -> Figures:
    """From a new conversation to a saved one; the median of some times."""

    def leave() -> None:
        s.workspace.new()
        s.screen.show_chat()

    def show() -> None:
        s.workspace.open(id)
        s.screen.show_chat()

    times: list[Took] = []
    for _ in range(OPENED):
        await painted(s, leave)
        await asyncio.sleep(0.1)
        times.append(await painted(s, show))
    return {
        "open": statistics.median(took.clock for took in times),
        "open, cpu": statistics.median(took.cpu for took in times),
    }


async def scrolling(s: Stage) -> Figures:
    """Pages up from the end, turns of the wheel, and to the beginning and back; every frame shows something else."""
    transcript = s.screen.transcript
    s.screen.focus_transcript()
    pages: list[Took] = []
    while len(pages) < FRAMES:
        if transcript.scroll_offset.y == 0:
            transcript.follow()
            await painted(s, transcript.refresh)
        pages.append(await painted(s, lambda: transcript.scroll_page_up(animate=False)))
    ends = (transcript.first_message, transcript.follow)
    jumps = [await painted(s, ends[number % 2]) for number in range(FRAMES)]
    wheel = [await painted(s, lambda: transcript.scroll_up(animate=False)) for _ in range(FRAMES)]
    transcript.follow()
    return spread("page up", pages) | spread("wheel", wheel) | spread("to an end", jumps)


async def load(s: Stage, seconds: float = 5.0) -> Figures:
    """Share of one core that this process takes while tokens arrive and nobody types."""
    before, begin, used = made(s), time.perf_counter(), processor()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - begin
    return {"processor share": (processor() - used) / elapsed, "tokens a second": (made(s) - before) / elapsed}


def made(s: Stage) -> int:
    return s.workspace.chat.reply.made if s.workspace.chat.reply else 0


def processor() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def chat(histories: list[int], count: int) -> dict[str, Figures]:
    """Figures by history; ratios to the smallest history, and of keys while streaming to keys at rest."""
    found: dict[str, Figures] = {}
    for history in histories:
        command = [sys.executable, "-m", "bench.ui", "--one", str(history), "--keys", str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent)
        if done.returncode:
            raise SystemExit(done.stderr)
        figures = found[str(history)] = json.loads(done.stdout.splitlines()[-1])
        print(f"\n{history:,} tokens of history (in brackets: over the shortest one)")
        for name, value in figures.items():
            base = next(other[name] for other in found.values() if name in other)
            print(f"  {name:<32} {value:8.2f}   ({value / base:.2f}x)")
        for part in ("p50", "p95"):
            ratio = figures[f"key while streaming {part}"] / figures[f"key at rest {part}"]
            print(f"  key {part}, streaming over at rest: {ratio:.2f}x")
        share = figures["key while streaming p95"] / TWO_FRAMES
        print(f"  key p95 while streaming over two frames of 30 Hz: {share:.2f}x", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["paint", "chat", []], help="which figures; all by default")
    parser.add_argument("--tokens", type=int, nargs="+", default=list(HISTORIES))
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(asyncio.run(measured(arguments.one, arguments.keys))))
        return
    result: dict[str, object] = {}
    if not arguments.parts or "paint" in arguments.parts:
        result["paint"] = paint()
    if not arguments.parts or "chat" in arguments.parts:
        result["chat"] = chat(arguments.tokens, arguments.keys)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=1))
    print(f"\nwritten to {RESULTS}")


if __name__ == "__main__":
    main()
