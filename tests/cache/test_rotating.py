"""One layer: which tokens it shows to which, how much it holds, and what it can forget."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.engine.cache.quantized import QuantizedRotatingLayer
from chatapp.engine.cache.rotating import RotatingLayer
from chatapp.errors import ChatappError
from tests.cache.oracle import visible

CAPACITY, KEEP = 16, 5


class Fed:
    """A layer whose keys are numbers that are never given twice, and which number stands at each position."""

    def __init__(self, layer: RotatingLayer) -> None:
        self.layer = layer
        self.numbers: list[int] = []
        self.given = 0

    def feed(self, n: int, window: int | None = None) -> list[set[int]]:
        """Feeds ``n`` tokens; returns the positions that each of them sees."""
        layer = self.layer
        del self.numbers[layer.offset :]
        new = range(self.given, self.given + n)
        self.given += n
        self.numbers += new
        column = mx.array(list(new), dtype=mx.float32).reshape(1, 1, n, 1)
        mask = layer.make_mask(n, window_size=window)
        keys, values = layer.update_and_fetch(column, -column)
        at = np.array(layer.positions())
        assert np.array(keys)[0, 0, :, 0].tolist() == [self.numbers[p] for p in at]
        assert np.array(values)[0, 0, :, 0].tolist() == [-self.numbers[p] for p in at]
        if mask is None:
            seen = np.ones((n, len(at)), bool)
        elif isinstance(mask, str):
            seen = at[None] <= np.arange(layer.offset - n, layer.offset)[:, None]
        else:
            seen = np.array(mask)
        assert seen.shape == (n, len(at))
        return [set(at[row].tolist()) for row in seen]


@given(st.lists(st.integers(1, 40), max_size=20), st.sampled_from([0, 1, KEEP, CAPACITY // 2]))
@settings(deadline=None, max_examples=150)
def test_every_token_sees_the_kept_ones_and_the_latest(chunks: list[int], keep: int) -> None:
    layer = RotatingLayer(CAPACITY, keep)
    fed = Fed(layer)
    allowed = visible(sum(chunks), CAPACITY, keep)
    for n in chunks:
        first = layer.offset
        for row, seen in enumerate(fed.feed(n)):
            assert seen == set(np.nonzero(allowed[first + row])[0].tolist())


@given(
    st.lists(st.tuples(st.integers(1, 20), st.booleans(), st.integers(0, 60)), max_size=20),
    st.sampled_from([None, 0, 100, 10**6]),
)
@settings(deadline=None, max_examples=300)
def test_after_a_trim_every_token_sees_what_it_should(moves: list[tuple[int, bool, int]], spare: int | None) -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    layer.spare = spare
    allowed = visible(500, CAPACITY, KEEP)
    for n, singly, back in moves:
        for chunk in [1] * n if singly else [n]:
            first = layer.offset
            for row, seen in enumerate(fed.feed(chunk)):
                assert seen == set(np.nonzero(allowed[first + row])[0].tolist())
        able, before = layer.can_trim(back), layer.offset
        done = layer.trim(back)
        assert done == (back if able else 0)
        assert layer.offset == before - done
        if spare == 10**6:
            assert able == (back <= before)


def test_a_narrower_window_of_the_models_own_is_honoured_in_a_turned_ring() -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    for n in (3, 1, 20, *[1] * 30, 4, 1):
        first = layer.offset
        for row, seen in enumerate(fed.feed(n, window=6)):
            p = first + row
            assert seen == set(range(max(0, p - 5), p + 1))


def test_the_buffer_is_that_of_c_after_many_tokens() -> None:
    layer = RotatingLayer(300, 7)
    fed = Fed(layer)
    fed.feed(300)
    full = layer.nbytes
    for _ in range(20):
        fed.feed(50)
        for _ in range(250):
            fed.feed(1)
        assert layer.nbytes == full
    assert layer.offset == 21 * 300
    assert full == 300 * 2 * 4


def test_a_buffer_that_a_long_chunk_stretched_shrinks_again() -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    fed.feed(15)
    fed.feed(40)
    assert layer.nbytes > CAPACITY * 2 * 4
    layer.trim(30)
    for _ in range(CAPACITY):
        fed.feed(1)
    assert layer.nbytes == CAPACITY * 2 * 4


def test_a_full_ring_can_forget_its_last_token_and_no_more() -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    fed.feed(10)
    for _ in range(40):
        fed.feed(1)
    assert layer.trim(2) == 0
    assert layer.offset == 50
    assert layer.trim(1) == 1
    assert not layer.can_trim(1)


def test_a_whole_chunk_can_be_forgotten_after_rotation() -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    for _ in range(40):
        fed.feed(1)
    fed.feed(9)
    assert layer.trim(9) == 9
    assert layer.offset == 40


def test_what_is_put_by_keeps_its_budget_and_the_first_tokens() -> None:
    layer = RotatingLayer(1000, KEEP)
    fed = Fed(layer)
    layer.spare = 2500 * 8
    for _ in range(40):
        fed.feed(250)
    for _ in range(1100):
        fed.feed(1)
    assert sum(segment.nbytes for segment in layer.past) <= (2500 + 1000 + 256) * 8
    assert layer.nbytes == 1000 * 8
    assert layer.can_trim(1500)
    assert layer.nearest(layer.offset - 1500) == layer.offset - 1500
    assert not layer.can_trim(6000)
    early = layer.nearest(layer.offset - 6000)
    assert 1000 <= early < 1300
    assert layer.trim(layer.offset - early)
    first = layer.offset
    for row, seen in enumerate(fed.feed(3)):
        assert seen == set(np.nonzero(visible(first + 3, 1000, KEEP)[first + row])[0].tolist())


def test_keep_changes_only_while_every_token_saw_all_before_it() -> None:
    layer = RotatingLayer(CAPACITY, KEEP)
    fed = Fed(layer)
    fed.feed(CAPACITY - 1)
    layer.set_keep(3)
    fed.feed(2)
    layer.set_keep(3)
    with pytest.raises(ValueError, match="keep cannot change from 3 to 4"):
        layer.set_keep(4)
    stretched = RotatingLayer(CAPACITY, KEEP)
    Fed(stretched).feed(3 * CAPACITY)
    assert stretched.dropped == 0
    assert not stretched.can_keep(4)
    assert stretched.can_keep(4, 2 * CAPACITY + 1)


def test_quantized_columns_are_those_of_each_token_alone() -> None:
    """However tokens came in, what is held of each is its own quantization."""
    rows = mx.random.normal((1, 2, 60, 32), key=mx.random.key(1))
    layer = QuantizedRotatingLayer(CAPACITY, KEEP, 8)
    at = 0
    for n in (7, 1, 1, 20, 1, 1, 1, 25, 1, 1, 1):
        keys, values = layer.update_and_fetch(rows[:, :, at : at + n], rows[:, :, at : at + n] * 2)
        at += n
        for stored, factor in ((keys, 1), (values, 2)):
            got = mx.dequantize(*stored, group_size=32, bits=8)
            alone = mx.concatenate(
                [
                    mx.dequantize(*mx.quantize(rows[:, :, p : p + 1] * factor, 32, 8), group_size=32, bits=8)
                    for p in layer.positions()
                ],
                axis=2,
            )
            assert mx.array_equal(got, alone)
    assert layer.group_size == 32


def test_a_head_dimension_that_cannot_be_quantized_is_named() -> None:
    layer = QuantizedRotatingLayer(CAPACITY, KEEP, 4)
    with pytest.raises(ChatappError, match="head dimension 24 "):
        layer.update_and_fetch(mx.zeros((1, 1, 2, 24)), mx.zeros((1, 1, 2, 24)))
