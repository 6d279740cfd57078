"""Search over many conversations: the index against ``grep -r`` over the same files.

    python bench/search.py [--conversations 10000] [--turns 5]

Prints the time to build the index from nothing, to bring it up to date when nothing and when one file changed, and the
median time of several queries (each one opens the index and looks for changed files, as a new process would), beside
the time that grep takes. The text is random English-like words with a fixed seed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from chatapp.conversation import events
from chatapp.conversation.index import Index
from chatapp.conversation.search import search

QUERIES = [
    "word7",
    "word7 word12",
    '"word3 word1"',
    "role:assistant word40",
    "entropy>5.9",
    "word1999 -word3",
    "after:2025-06 word5",
]


def main() -> None:
    """Makes the files, measures, prints."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--conversations", type=int, default=10_000)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--repeat", type=int, default=7)
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "conversations"
        folder.mkdir()
        size = make(folder, arguments.conversations, arguments.turns)
        print(f"{arguments.conversations} conversations, {2 * arguments.turns} messages each, {size / 1e6:.1f} MB")
        index = Index(folder, Path(name) / "index.sqlite")
        print(f"index from nothing        {once(index.summaries):8.2f} s")
        print(f"list, nothing changed     {median(index.summaries, arguments.repeat) * 1e3:8.1f} ms")
        touched = next(folder.iterdir())
        touched.write_bytes(touched.read_bytes() + events.encode(events.Title("new")) + b"\n")
        print(f"list, one file changed    {once(index.summaries) * 1e3:8.1f} ms")
        print(f"{'query':28} {'hits':>6} {'index ms':>9} {'grep ms':>9}")
        for query in QUERIES:
            ours = median(lambda query=query: search(folder, query, index=index), arguments.repeat)
            hits = len(search(folder, query, index=index))
            word = next((w for w in query.replace('"', " ").split() if w.startswith("word")), "peak_entropy")
            theirs = median(lambda word=word: grep(folder, word), 3)
            print(f"{query:28} {hits:6} {ours * 1e3:9.1f} {theirs * 1e3:9.1f}")


def make(folder: Path, conversations: int, turns: int) -> int:
    """Writes the files and returns their bytes."""
    chance = random.Random(7)
    words = [f"word{n}" for n in range(2000)]
    weights = [1 / (n + 1) for n in range(2000)]  # Zipf's law, as in natural text
    size = 0
    for number in range(conversations):
        stamp = f"2025-{1 + number % 12:02}-{1 + number % 28:02}T10:00:00.000Z"
        lines: list[events.Event] = [events.Opened(events.SCHEMA, f"c{number:05}", stamp, "bench")]
        parent = None
        for turn in range(2 * turns):
            reply = turn % 2 == 1
            content = " ".join(chance.choices(words, weights, k=60 if reply else 15))
            lines.append(
                events.Message(
                    f"m{turn}",
                    parent,
                    "assistant" if reply else "user",
                    content,
                    stamp,
                    "bench" if reply else "",
                    peak_entropy=chance.uniform(0, 6) if reply else None,
                )
            )
            parent = f"m{turn}"
        data = b"".join(events.encode(line) + b"\n" for line in lines)
        (folder / f"c{number:05}.jsonl").write_bytes(data)
        size += len(data)
    return size


def grep(folder: Path, word: str) -> None:
    """What a person without an index would run."""
    subprocess.run(["grep", "-rlw", word, str(folder)], stdout=subprocess.DEVNULL, check=False)


def once(task: Callable[[], object]) -> float:
    """Seconds that a task takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def median(task: Callable[[], object], repeat: int) -> float:
    """Median seconds of several runs."""
    return statistics.median(once(task) for _ in range(repeat))


if __name__ == "__main__":
    main()
