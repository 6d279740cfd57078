"""What an engine needs to know of the processes that decode together with it.

Every rank runs the same loop; rank 0 alone talks to the client. What only one rank can know (the next request, a
cancel, the id it sampled, how much memory it has) goes to the others through these calls, which all ranks make in the
same order. `Alone` is one process; `chatapp.engine.distributed.Group` is several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from chatapp.models.progress import Report

if TYPE_CHECKING:
    import mlx.core as mx

T = TypeVar("T")

#: Waits for the client's next request, at most so many seconds (None: as long as it takes). Gives the request's frame
#: body, an empty one once the client has gone, and None if nothing came in time.
Receive = Callable[[float | None], bytes | None]


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

    @property
    def here(self) -> int:
        """How many of them share this machine."""
        ...

    def next_request(self, receive: Receive) -> bytes:
        """The next request's frame body, on every rank; empty once the client has gone. Only rank 0 receives."""
        ...

    def share(self, data: bytes) -> bytes:
        """Rank 0's bytes, on every rank; the other ranks' argument is ignored."""
        ...

    def agree(self, flag: bool) -> bool:
        """Rank 0's flag, on every rank."""
        ...

    def alike(self, numbers: Sequence[int]) -> bool:
        """Whether every rank gave the same numbers, each below 2**63."""
        ...

    def each(self, numbers: Sequence[int]) -> list[list[int]]:
        """Every rank's numbers, by rank, on every rank; all give equally many, each below 2**63."""
        ...

    def least(self, number: int) -> int:
        """The smallest of the ranks' numbers."""
        ...

    def together(self, task: Callable[[Report], T], report: Report) -> T:
        """Has each rank do a long task by itself, without collectives in it, and leave it with the others.

        Args:
            task: Is given a ``report`` to call a few times a second.
            report: Where this rank's progress goes; it may raise `Interrupted`.

        Raises:
            ChatappError: What ended the task, on whichever rank; it is raised on all of them.
        """
        ...

    def same(self, array: mx.array) -> mx.array:
        """Rank 0's values of a small integer array (sampled ids), on every rank, without evaluating it."""
        ...

    def repeated(self) -> None:
        """One of many like steps (a chunk of a prompt, a token) is done here: a much longer one would be a hang."""
        ...

    def expect(self, seconds: float) -> None:
        """From now on one step should take so many seconds at most, before one has been measured; all ranks call it."""
        ...

    def total(self, array: mx.array) -> mx.array:
        """The sum over the ranks of a float array, on every rank, without evaluating it."""
        ...


class Alone:
    """One process: everything is already agreed."""

    rank = 0
    size = 1
    here = 1

    def next_request(self, receive: Receive) -> bytes:
        return receive(None) or b""

    def share(self, data: bytes) -> bytes:
        return data

    def agree(self, flag: bool) -> bool:
        return flag

    def alike(self, numbers: Sequence[int]) -> bool:
        return True

    def each(self, numbers: Sequence[int]) -> list[list[int]]:
        return [list(numbers)]

    def least(self, number: int) -> int:
        return number

    def together(self, task: Callable[[Report], T], report: Report) -> T:
        return task(report)

    def same(self, array: mx.array) -> mx.array:
        return array

    def repeated(self) -> None:
        pass

    def expect(self, seconds: float) -> None:
        pass

    def total(self, array: mx.array) -> mx.array:
        return array
