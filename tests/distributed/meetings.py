"""One rank of `test_group`: takes part in every kind of agreement and prints what it got, as one JSON line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import mlx.core as mx

from chatapp.engine.distributed import Group
from chatapp.engine.progress import Progress
from chatapp.errors import ChatappError, Interrupted, UsageError
from chatapp.models.progress import Report, Step

group = Group(mx.distributed.init(strict=True), Progress())
STEP = Step("load", 0, 0)


def task(steps: int, fails: int | None) -> Callable[[Report], int]:
    """As long on each rank as its number says; one of them may fail in the middle."""

    def run(report: Report) -> int:
        for number in range(steps):
            if group.rank == fails and number == 2:
                raise UsageError("This rank cannot.")
            report(STEP)
            time.sleep(0.01)
        return steps

    return run


def outcome(steps: int, fails: int | None = None, report: Report = lambda step: None) -> object:
    try:
        return group.together(task(steps, fails), report)
    except ChatappError as error:
        return [error.kind, str(error)]


calls = 0


def stopped(step: Step) -> None:
    """The client cancels at the third report; only rank 0 hears it."""
    global calls
    calls += 1
    if group.rank == 0 and calls == 3:
        raise Interrupted("Stopped.")


waiting = [None, None, b"a request", b""]
found = {
    "rank": group.rank,
    "here": group.here,
    "share": group.share(bytes(range(256)) if group.rank == 0 else b"").hex(),
    "agree": [group.agree(group.rank == 0), group.agree(group.rank == 1)],
    "alike": [group.alike([7, 2**40]), group.alike([7, group.rank])],
    "least": group.least(100 - group.rank),
    "same": group.same(mx.array([4_000_000_000 + group.rank], mx.uint32)).tolist(),
    "total": group.total(mx.array([0.5, float(group.rank)])).tolist(),
    "requests": [group.next_request(lambda timeout: waiting.pop(0)).decode() for _ in range(2)],
    "together": outcome(3 + 10 * group.rank),
    "failed": outcome(20, fails=1),
    "failed early": outcome(2 if group.rank else 50, fails=0),
    "cancelled": outcome(20, report=stopped),
    "afterwards": group.least(1),
}
print(json.dumps(found), flush=True)
