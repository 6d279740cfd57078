"""Figures of the transcript widget: opening, appending, scrolling and keys with 0, 8k and 64k tokens of history.

    python -m bench.transcript [--tokens 0 8192 65536] [--json]

What is measured is one synchronous step each (no timers, no terminal): the work that a key, a frame or a tick of the
stream has to wait for. Times are CPU time of the process in milliseconds (so that other programs do not count): median
and 95th percentile. Ratios are to the smallest history. A jump in a long history lays out rows that nobody saw before;
in a short one it comes back to rows that are ready.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable

from textual.app import App, ComposeResult
from textual.pilot import Pilot

from chatapp.tokens import Alternative, Token
from chatapp.ui.heat import Heat
from chatapp.ui.transcript import MessageView, Transcript

SIZE = (120, 40)
TEXT = "the cache keeps what was read and forgets the rest of it because memory is finite and models are not"
WORDS = TEXT.split()
CODE = ("\n\n", "```", "python", "\n", "def", " f", "(x", "):", "\n", "   ", " return", " x", "\n", "```", "\n\n")


def prose(rng: random.Random, words: int) -> list[str]:
    """Pieces of Markdown, about one token each."""
    pieces: list[str] = []
    while len(pieces) < words:
        kind = rng.random()
        if kind < 0.1:
            pieces += CODE
        elif kind < 0.25:
            pieces += ["\n", "-", " **", rng.choice(WORDS), "**", " and", " `", rng.choice(WORDS), "`"]
        else:
            pieces += [" " + rng.choice(WORDS) for _ in range(rng.randint(8, 40))] + [".", "\n\n"]
    return pieces[:words]


def records(rng: random.Random, pieces: list[str], first: int = 0) -> list[Token]:
    """Token records with random doubt and ten alternatives each."""
    result: list[Token] = []
    for index, piece in enumerate(pieces, first):
        doubt = rng.expovariate(2)
        top = tuple(Alternative(rank, " word", -0.1 * (rank + 1)) for rank in range(10))
        result.append(Token(index, index, piece, doubt, doubt, doubt, doubt, top=top))
    return result


def conversation(tokens: int) -> list[MessageView]:
    """Alternating messages of about 400 tokens."""
    rng = random.Random(tokens)
    views = [MessageView(f"first{number}", "user", "a short message") for number in range(8)]
    while tokens > 0:
        size = min(tokens, 400)
        tokens -= size
        pieces = prose(rng, size)
        if len(views) % 2:
            views.append(
                MessageView(f"m{len(views)}", "assistant", "".join(pieces), records(rng, pieces), "bench", "stop")
            )
        else:
            views.append(MessageView(f"m{len(views)}", "user", "".join(pieces)))
    return views


class Host(App[None]):
    """Nothing but the transcript."""

    def compose(self) -> ComposeResult:
        yield Transcript()


def timed(action: Callable[[], object]) -> float:
    start = time.process_time()
    action()
    return (time.process_time() - start) * 1000


def summary(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {"p50": statistics.median(ordered), "p95": ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]}


Figures = dict[str, dict[str, float]]


async def measure(tokens: int, heat: Heat) -> Figures:
    """All steps on a history of so many tokens."""
    rng = random.Random(1)
    app = Host()
    async with app.run_test(size=SIZE) as pilot:
        transcript = app.query_one(Transcript)
        transcript.heat = heat
        await pilot.pause()
        views = conversation(tokens)
        figures = opening(transcript, views)
        transcript.set_messages([*views, MessageView("live", "assistant", "", model="bench", streaming=True)])
        await pilot.pause()
        figures |= await streaming(transcript, pilot, rng)
        return figures | cursors(transcript) | scrolling(transcript, rng)


def paint(transcript: Transcript) -> None:
    transcript.render_lines(transcript.size.region)


def opening(transcript: Transcript, views: list[MessageView]) -> Figures:
    def opened() -> None:
        transcript.set_messages(views)
        paint(transcript)

    figures = {"open": summary([timed(opened)])}
    slices: list[float] = []
    while not transcript.settled:
        slices.append(timed(transcript.measure_some))
    return figures | {"idle slice": summary(slices or [0.0]), "lay out all": summary([sum(slices)])}


async def streaming(transcript: Transcript, pilot: Pilot[None], rng: random.Random) -> Figures:
    ticks: list[float] = []
    at = 0
    for _ in range(300):
        batch = records(rng, prose(rng, 7), at)
        at += len(batch)

        def tick(batch: list[Token] = batch) -> None:
            transcript.append_tokens("live", batch)
            paint(transcript)

        ticks.append(timed(tick))
        if len(ticks) % 10 == 0:
            await pilot.pause()
    return {"stream tick (7 tokens)": summary(ticks)}


def cursors(transcript: Transcript) -> Figures:
    transcript.focus_message("live")
    transcript.enter_tokens()
    steps = {"token key": (transcript.move_token, 1, 100), "message key": (transcript.move_message, -1, 20)}
    return {
        name: summary([timed(lambda move=move, by=by: (move(by), paint(transcript))) for _ in range(count)])
        for name, (move, by, count) in steps.items()
    }


def scrolling(transcript: Transcript, rng: random.Random) -> Figures:
    def jump(y: int) -> None:
        transcript.scroll_to(y=y, animate=False, force=True)
        paint(transcript)

    height = max(1, transcript.virtual_size.height)
    jumps = [timed(lambda: jump(rng.randrange(height))) for _ in range(100)]
    jump(0)
    lines = [timed(lambda: jump(transcript.scroll_offset.y + 1)) for _ in range(100)]
    return {"jump to anywhere, frame": summary(jumps), "scroll a line, frame": summary(lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[0, 8192, 65536])
    parser.add_argument("--heat", type=Heat, choices=list(Heat), default=Heat.BOTH)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    results = {tokens: asyncio.run(measure(tokens, arguments.heat)) for tokens in arguments.tokens}
    if arguments.json:
        print(json.dumps(results))
        return
    base = results[arguments.tokens[0]]
    for name in base:
        print(name)
        for tokens, figures in results.items():
            value, start = figures[name], base[name]
            ratio = f"{value['p50'] / start['p50']:6.2f}×" if start["p50"] > 0 else "      –"
            print(f"  {tokens:>7,} tokens   p50 {value['p50']:8.2f} ms   p95 {value['p95']:8.2f} ms   {ratio}")


if __name__ == "__main__":
    main()
