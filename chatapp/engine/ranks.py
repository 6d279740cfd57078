"""The one place that knows whether several processes decode together.

Every rank runs the same loop; rank 0 alone talks to the client. What only rank 0 can know (the next request, a cancel,
the id it sampled) goes to the others through these calls, which all ranks make at the same step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import mlx.core as mx


class Ranks(Protocol):
    """The processes that run one model together."""

    @property
    def rank(self) -> int:
        """This process's number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def share(self, data: bytes) -> bytes:
        """Rank 0's bytes, on every rank; the other ranks' argument is ignored."""
        ...

    def agree(self, flag: bool) -> bool:
        """Rank 0's flag, on every rank."""
        ...

    def same(self, array: mx.array) -> mx.array:
        """Rank 0's values of a small integer array (sampled ids), on every rank, without evaluating it."""
        ...


class Alone:
    """One process: everything is already agreed."""

    rank = 0
    size = 1

    def share(self, data: bytes) -> bytes:
        return data

    def agree(self, flag: bool) -> bool:
        return flag

    def same(self, array: mx.array) -> mx.array:
        return array
