"""Columns that a rotating layer does not attend to any more, kept so that it can go back to where it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

#: Keys or values: (batch, heads, columns, head_dim), or the three parts of a quantized such array.
Columns = Any


@dataclass(frozen=True, eq=False)
class Segment:
    """The columns of the positions from ``start`` up to ``stop``. Never written to, so it may be shared.

    Attributes:
        start, stop: Positions.
        keys, values: Their columns.
        nbytes: Bytes of both.
    """

    start: int
    stop: int
    keys: Columns
    values: Columns
    nbytes: int

    @classmethod
    def of(cls, keys: Columns, values: Columns, column: int, start: int, stop: int) -> Segment:
        """Copies columns out of a layer's buffers, so that it does not hold on to those.

        Args:
            keys: A buffer.
            values: A buffer.
            column: The first column to take.
            start: That column's position.
            stop: One past the last position to take.
        """
        end = column + stop - start
        taken = tree_map(lambda buffer: mx.contiguous(buffer[..., column:end, :]), (keys, values))
        arrays = cast("list[mx.array]", [array for _, array in tree_flatten(taken)])
        mx.async_eval(arrays)  # lazily, they would hold on to the buffers after all
        return cls(start, stop, taken[0], taken[1], sum(array.nbytes for array in arrays))

    def between(self, start: int, stop: int) -> Segment:
        """The part of it that lies between two positions."""
        start, stop = max(start, self.start), min(stop, self.stop)
        if (start, stop) == (self.start, self.stop):
            return self
        first, last = start - self.start, stop - self.start
        keys, values = tree_map(lambda array: array[..., first:last, :], (self.keys, self.values))
        return Segment(start, stop, keys, values, self.nbytes)


Past = tuple[Segment, ...]


def before(past: Past, stop: int) -> Past:
    """What lies before a position."""
    return tuple(segment.between(0, stop) for segment in past if segment.start < stop)


def between(past: Past, start: int, stop: int) -> Past:
    """What lies between two positions; nothing where they are the wrong way round."""
    if start >= stop:
        return ()
    return tuple(segment.between(start, stop) for segment in past if segment.start < stop and segment.stop > start)


def covers(past: Past, start: int, stop: int) -> bool:
    """Whether every position between two is there."""
    for segment in past:
        if segment.start <= start < segment.stop:
            start = segment.stop
    return start >= stop


def thinned(past: Past, head: int, recent: int, budget: int) -> Past:
    """Drops the oldest segments until a budget holds.

    Args:
        past: Segments in order.
        head: Those that begin before this position stay.
        recent: So do those that end behind this one.
        budget: Bytes of all that begin at ``head`` or later.
    """
    weight = sum(segment.nbytes for segment in past if segment.start >= head)
    left: list[Segment] = []
    for segment in past:
        if segment.start >= head and segment.stop <= recent and weight > budget:
            weight -= segment.nbytes
        else:
            left.append(segment)
    return tuple(left)


def joined(parts: Sequence[tuple[Columns, Columns]]) -> tuple[Columns, Columns]:
    """Keys and values of several runs of columns, one behind the other."""
    first, rest = parts[0], parts[1:]
    return tree_map(lambda *arrays: mx.concatenate(list(arrays), axis=2), first, *rest)
