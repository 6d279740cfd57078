"""What ranks agree on, by three processes that meet over MLX's ring."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from chatapp.launch import Hosts

RANKS = 3


@pytest.fixture(scope="module")
def found() -> list[dict[str, object]]:
    """What each rank got, by rank."""
    command = Hosts.here(RANKS).command("")
    script = [sys.executable, "-m", "tests.distributed.meetings"]
    with subprocess.Popen(
        [*command[: command.index("--") + 1], *script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as launched:
        assert launched.stdout is not None
        assert launched.stderr is not None
        lines, errors = launched.stdout.read(), launched.stderr.read()
    rows = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    assert len(rows) == RANKS, errors
    return sorted(rows, key=lambda row: row["rank"])


@pytest.mark.parametrize(
    ("what", "everywhere"),
    [
        ("here", RANKS),
        ("share", bytes(range(256)).hex()),
        ("agree", [True, False]),
        ("alike", [True, False]),
        ("least", 98),
        ("same", [4_000_000_000]),
        ("total", [1.5, 3.0]),
        ("requests", ["a request", ""]),
        ("failed early", ["usage", "This rank cannot."]),
        ("cancelled", ["cancelled", "Stopped."]),
        ("afterwards", 1),
    ],
)
def test_every_rank_has_the_same(found: list[dict[str, object]], what: str, everywhere: object):
    assert [row[what] for row in found] == [everywhere] * RANKS


def test_a_task_takes_as_long_as_it_takes_on_each_rank(found: list[dict[str, object]]):
    assert [row["together"] for row in found] == [3, 13, 23]


def test_a_rank_that_fails_is_named(found: list[dict[str, object]]):
    for row in found:
        kind, sentence = row["failed"]  # pyright: ignore
        assert kind == "usage"
        assert sentence.startswith("On ")
        assert sentence.endswith("(rank 1): This rank cannot.")
