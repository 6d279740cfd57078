"""Several processes that decode one model together, over MLX's own collectives.

A collective returns when every rank has called it, so all ranks must make the same calls in the same order. Three
rules keep that true: what only one rank knows is shared before anything depends on it; values that decide what is
called next are rank 0's (`Group.same`) or compared (`Group.alike`); and graphs are built alike everywhere, because MLX
orders the collectives of a graph by what depends on what.

There is no way back for one rank alone: an error that the other ranks do not have ends its process, the others then
lose a peer and end too, and the client starts another engine.
"""

from __future__ import annotations

import socket
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import mlx.core as mx
import msgspec

from chatapp.engine.progress import Progress
from chatapp.engine.ranks import Receive
from chatapp.errors import ChatappError, Interrupted
from chatapp.models.progress import Report, Step

T = TypeVar("T")

#: How often waiting ranks meet, in seconds. Between two meetings they sleep: a collective that waits keeps a core busy.
_PAUSE = 0.05

#: Longest sentence of a rank's failure, in bytes.
_WORDS = 1000


class _Failure(msgspec.Struct):
    """What ended a rank's task."""

    kind: str
    message: str
    host: str


class Group:
    """The ranks of one `mx.distributed` group; see `chatapp.engine.ranks.Ranks` for what each method does."""

    def __init__(self, group: mx.distributed.Group, progress: Progress) -> None:
        self._group = group
        self._progress = progress
        progress.begin()
        self.rank = group.rank()
        self.size = group.size()
        self._host = socket.gethostname()
        hosts = self.each([zlib.crc32(self._host.encode())])
        self.here = hosts.count(hosts[self.rank])

    def next_request(self, receive: Receive) -> bytes:
        while True:
            self._progress.wait()
            body: bytes | None = None
            if self.rank == 0:
                body = receive(_PAUSE)
            else:
                time.sleep(_PAUSE)
            if self.agree(body is not None):
                self._progress.begin()
                return self.share(body or b"")

    def share(self, data: bytes) -> bytes:
        length = self._rank_0s([len(data)])[0]
        if not length:
            return b""
        body: Any = self.same(mx.array(list(data) if self.rank == 0 else [0] * length, mx.uint8)).tolist()
        return bytes(body)

    def agree(self, flag: bool) -> bool:
        return bool(self._rank_0s([int(flag)])[0])

    def alike(self, numbers: Sequence[int]) -> bool:
        rows = self.each(numbers)
        return all(row == rows[0] for row in rows)

    def each(self, numbers: Sequence[int]) -> list[list[int]]:
        self._progress.reach()
        row = mx.array([list(numbers)], mx.int64)
        rows: Any = mx.distributed.all_gather(row, group=self._group).tolist()
        self._progress.reach()
        return rows

    def least(self, number: int) -> int:
        return min(row[0] for row in self.each([number]))

    def together(self, task: Callable[[Report], T], report: Report) -> T:
        failed = False

        def meet(step: Step) -> None:
            nonlocal failed
            report(step)
            failed = self._meet(busy=True, failed=False)[1]
            if failed:
                raise Interrupted

        error: ChatappError | None = None
        result: list[T] = []
        try:
            result.append(task(meet))
        except ChatappError as ended:
            error = ended
        if failed:
            error = None  # another rank's failure is what counts, and every rank knows of it
        else:
            busy = True
            while busy and not failed:
                busy, failed = self._meet(busy=False, failed=error is not None)
        if failed:
            raise self._why(error)
        return result[0]

    def same(self, array: mx.array) -> mx.array:
        self._progress.reach()
        # Multiplied rather than left out, so that the collective depends on the same things on every rank.
        return mx.distributed.all_sum(array * mx.array(int(self.rank == 0), array.dtype), group=self._group)

    def repeated(self) -> None:
        self._progress.repeat()

    def expect(self, seconds: float) -> None:
        self._progress.expect(seconds)

    def total(self, array: mx.array) -> mx.array:
        return mx.distributed.all_sum(array, group=self._group)

    def _meet(self, busy: bool, failed: bool) -> tuple[bool, bool]:
        """Whether any rank is still at its task, and whether any has failed at it."""
        rows = self.each([int(busy), int(failed)])
        return any(row[0] for row in rows), any(row[1] for row in rows)

    def _why(self, error: ChatappError | None) -> ChatappError:
        """The first rank's failure that there is, for all of them to raise."""
        words = b""
        if error is not None:
            words = msgspec.json.encode(_Failure(error.kind, str(error)[:_WORDS], self._host))
        width = max(row[0] for row in self.each([len(words)]))
        said = [bytes(row) for row in self.each(list(words.ljust(width)))]
        rank = next(rank for rank, text in enumerate(said) if text.strip())
        failure = msgspec.json.decode(said[rank], type=_Failure)
        where = f"On {failure.host} (rank {rank}): " if rank else ""
        return ChatappError(where + failure.message, failure.kind)

    def _rank_0s(self, numbers: Sequence[int]) -> list[int]:
        shared: Any = self.same(mx.array(list(numbers), mx.uint32)).tolist()
        self._progress.reach()
        return shared
