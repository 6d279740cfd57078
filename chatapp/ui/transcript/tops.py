"""Heights of consecutive things, and which of them lies at a row."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate


class Tops:
    """Prefix sums over a list of heights, made anew only from the first height that changed."""

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._tops: list[int] = [0]  # _tops[i] is right for i <= _valid
        self._valid = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        """Height of one."""
        return self._heights[index]

    def set(self, index: int, height: int) -> None:
        """Changes one height; ``index == len`` appends."""
        if index == len(self._heights):
            self._heights.append(height)
            self._tops.append(0)
        elif self._heights[index] != height:
            self._heights[index] = height
            self._valid = min(self._valid, index)

    def cut(self, count: int) -> None:
        """Keeps the first ``count`` only."""
        del self._heights[count:]
        del self._tops[count + 1 :]
        self._valid = min(self._valid, count)

    def top(self, index: int) -> int:
        """Sum of the heights before ``index``."""
        self._settle()
        return self._tops[index]

    @property
    def total(self) -> int:
        """Sum of all heights."""
        self._settle()
        return self._tops[-1]

    def find(self, row: int) -> int:
        """Index of the one that contains a row (the last one for rows beyond the end)."""
        self._settle()
        return min(bisect_right(self._tops, row) - 1, len(self._heights) - 1)

    def _settle(self) -> None:
        if self._valid < len(self._heights):
            tail = self._heights[self._valid :]
            self._tops[self._valid :] = accumulate(tail, initial=self._tops[self._valid])
            self._valid = len(self._heights)
