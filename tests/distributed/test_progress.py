"""For how long a rank may take, by a clock that the test sets."""

from __future__ import annotations

import tempfile

import pytest

from chatapp.engine import progress as module
from chatapp.engine.progress import BYTES, REPEATED, WAITING, WORKING, Progress
from chatapp.launch import STARTING


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def patience(progress: Progress, clock: list[float]) -> float:
    """Seconds until it counts as late, to the next whole one."""
    began = clock[0]
    while not progress.late:
        clock[0] += 1
    return clock[0] - began - 1


def test_starting_may_take_long_and_so_may_meeting(clock: list[float]):
    progress = Progress()
    progress.start()
    assert patience(progress, clock) == STARTING
    progress.reach()
    assert patience(progress, clock) == STARTING


def test_the_keeper_sees_what_the_rank_writes():
    with tempfile.TemporaryFile() as file:
        file.truncate(BYTES)
        rank, keeper = Progress(file.fileno()), Progress(file.fileno())
        keeper.start()
        assert (keeper.step, keeper.late) == (0, False)
        rank.reach()
        rank.reach()
        assert keeper.step == 2


def test_waiting_is_short_and_work_may_be_long(clock: list[float]):
    progress = Progress()
    progress.wait()
    assert patience(progress, clock) == WAITING
    progress.begin()
    assert patience(progress, clock) == WORKING
    progress.reach()
    assert patience(progress, clock) == WORKING
    progress.expect(1000.0)
    assert patience(progress, clock) == 1000
    progress.begin()
    assert patience(progress, clock) == 1000
    progress.expect(1.0)
    assert patience(progress, clock) == WORKING


@pytest.mark.parametrize(("took", "may_take"), [(0.25, REPEATED), (15.0, 120.0)])
def test_steps_that_follow_each_other_go_by_the_longest(clock: list[float], took: float, may_take: float):
    progress = Progress()
    progress.begin()
    progress.repeat()
    clock[0] += took
    progress.repeat()
    clock[0] += took / 2
    progress.repeat()
    assert patience(progress, clock) == may_take
    progress.begin()
    assert patience(progress, clock) == WORKING, "what is read next may be longer"
