"""Which checkpoints stay, and which prompts they are valid for."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import mlx.core as mx
from hypothesis import given, settings
from mlx_lm.models.cache import ArraysCache

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.ladder import Ladder, common
from chatapp.engine.cache.saved import Saved

STATE = 1000

#: Where rotation begins, unless a test is about it: never.
CAPACITY = 10**6


def saved(length: int) -> Saved:
    layer = ArraysCache(1)
    layer[0] = mx.zeros((1, STATE // 4))
    return Saved.of([layer], length)


def climb(ladder: Ladder, tokens: list[int], *lengths: int) -> None:
    for length in lengths:
        ladder.add("end", tokens[:length], saved(length))


@given(st.lists(st.integers(0, 1), max_size=600), st.lists(st.integers(0, 1), max_size=600), st.integers(0, 600))
@settings(deadline=None, max_examples=200)
def test_common_prefix(a: list[int], b: list[int], shared: int) -> None:
    b = a[:shared] + b
    expected = next((n for n, pair in enumerate(zip(a, b, strict=False)) if pair[0] != pair[1]), min(len(a), len(b)))
    assert common(a, b) == expected


def test_a_checkpoint_serves_only_prompts_that_begin_with_its_tokens() -> None:
    ladder = Ladder(10**9, CAPACITY)
    ladder.add("end", [1, 2, 3, 4], saved(4))
    live = [ArraysCache(1)]
    found = ladder.best([1, 2, 3, 4, 5], 4, 4, live, 0)
    assert found is not None
    assert found.reach == 4
    assert ladder.best([1, 2, 3, 9, 5], 4, 4, live, 0) is None
    assert ladder.best([1, 2, 3, 4], 3, 4, live, 0) is None


def test_old_checkpoints_become_sparse_and_recent_ones_stay_dense() -> None:
    tokens = list(range(100, 5000))
    ladder = Ladder(12 * (STATE + 4 * 4900), CAPACITY)
    climb(ladder, tokens, *range(100, 4900, 100))
    lengths = [rung.length for rung in ladder.behind(tokens)]
    gaps = [after - before for before, after in itertools.pairwise(lengths)]
    assert ladder.nbytes <= ladder.budget
    assert lengths[-1] == 4800
    assert gaps[-1] == gaps[-2] == 100
    assert sum(gaps[: len(gaps) // 2]) > 2 * sum(gaps[len(gaps) // 2 :])
    assert lengths[0] < 2400


def test_the_system_messages_end_is_never_dropped() -> None:
    tokens = list(range(3000))
    ladder = Ladder(3 * (STATE + 4 * 3000), CAPACITY)
    ladder.add("system", tokens[:20], saved(20))
    climb(ladder, tokens, *range(600, 3000, 50))
    assert "system" in {rung.kind for rung in ladder}
    assert ladder.nbytes <= ladder.budget


def test_the_last_point_before_rotation_is_never_dropped_once_it_has_begun() -> None:
    tokens = list(range(3000))
    ladder = Ladder(2 * (STATE + 4 * 3000), capacity=1000)
    for length in (400, 700, 999, 1001, *range(1100, 3000, 50)):
        climb(ladder, tokens, length)
    lengths = [rung.length for rung in ladder.behind(tokens)]
    assert lengths[0] == 999
    assert lengths[-1] == 2950
    assert [rung.length for rung in ladder.worth_saving(tokens, 1)] == [999, 2950]


def test_a_checkpoint_where_the_conversation_is_need_not_be_saved() -> None:
    tokens = list(range(60))
    ladder = Ladder(10**9, CAPACITY)
    climb(ladder, tokens, 20, 40, 60)
    assert [rung.length for rung in ladder.worth_saving(tokens, 10**9)] == [20, 40]
    assert [rung.length for rung in ladder.worth_saving(tokens, 1)] == [40]


def test_other_branches_go_first_the_longest_unused_before_others() -> None:
    trunk = list(range(100))
    one, two, three = (trunk + [mark] * 50 for mark in (1001, 1002, 1003))
    ladder = Ladder(4 * (STATE + 4 * 150), CAPACITY)
    climb(ladder, trunk, 100)
    for branch in (one, two, three):
        climb(ladder, branch, 150)
    for _ in range(2):
        ladder.restored(ladder.best([*one, 5], 150, 4, [ArraysCache(1)], 0))  # type: ignore[arg-type]
    climb(ladder, three, 120)
    left = [list(rung.tokens) for rung in ladder]
    assert two not in left
    assert one in left
    assert trunk in left
    assert three in left


def test_a_place_is_held_once_and_keeps_its_protection() -> None:
    tokens = list(range(50))
    ladder = Ladder(10**9, CAPACITY)
    ladder.add("system", tokens[:10], saved(10))
    ladder.add("end", tokens[:10], saved(10))
    assert [rung.kind for rung in ladder] == ["system"]


def test_bytes_are_those_of_the_arrays_and_the_ids() -> None:
    ladder = Ladder(10**9, CAPACITY)
    climb(ladder, list(range(50)), 10, 20)
    assert ladder.nbytes == 2 * STATE + 4 * 30
    assert kv.size_in_bytes([ArraysCache(1)]) == 0
