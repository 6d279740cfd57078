"""The cache of one full-attention layer: the first K tokens and the latest C-K, whatever path led there.

The token at position p attends to {0 … K-1} ∪ {max(K, p-(C-K)+1) … p} and to nothing else. Positions are absolute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_map

from chatapp.engine.cache import past as archive
from chatapp.engine.cache.past import Columns, Past, Segment

#: Dropped columns are put by so many at a time, and the latest so many can always be gone back to.
BLOCK = 256


class RotatingLayer:
    """Keys and values of one attention layer, as mlx-lm's models use a cache.

    The buffer holds *columns*, one for each token that is still held. The first ``keep`` columns never move. While the
    buffer is *linear* the others follow in order of position; once it is full, single tokens are written over the
    oldest column (a ring that begins at ``keep``). A chunk of several tokens is appended behind the columns that its
    first token sees, so that the buffer is up to a chunk longer until the next single token.

    Attributes:
        max_size: C, in tokens.
        keep: K, in tokens, less than C.
        offset: Tokens read so far: the position of the next one.
        dropped: How many tokens behind the kept ones are not held any more.
        keys, values: The buffers; None before the first token.
        spare: Bytes of dropped columns that are put by to go back to, besides those of the first C tokens, which all
            are; None: nothing is put by.
        past: What was put by. It is not part of `nbytes`.
    """

    step = 256

    def __init__(self, max_size: int, keep: int) -> None:
        if not 0 <= keep < max_size:
            raise ValueError(f"keep {keep} is not below max_size {max_size}")
        self.max_size = max_size
        self.keep = keep
        self.offset = 0
        self.dropped = 0
        self.keys: Columns | None = None
        self.values: Columns | None = None
        self.spare: int | None = None
        self.past: Past = ()
        self._next = 0  # the column that the next single token is written to

    # --- what mlx-lm's models call -----------------------------------------------------------------------------

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Columns, Columns]:
        """Appends a chunk and returns everything that the chunk's tokens may attend to.

        Args:
            keys: (batch, heads, n, head_dim).
            values: (batch, heads, n, value head_dim).

        Returns:
            Keys and values, in the order that `make_mask` describes.
        """
        n = keys.shape[2]
        new = self._encode(keys), self._encode(values)
        if self.held + n <= self.max_size:
            self._append(new, n)
        elif n == 1 and self.held == self.max_size:
            self._overwrite(new)
        else:
            self._concatenate(new, n)
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[Columns, Columns]:
        """The columns in use, as the last `update_and_fetch` returned them."""
        held = self.held
        if held == self._capacity():
            return self.keys, self.values
        if isinstance(self.keys, mx.array):
            return self.keys[..., :held, :], cast("mx.array", self.values)[..., :held, :]
        return cast("tuple[Columns, Columns]", tree_map(lambda part: part[..., :held, :], (self.keys, self.values)))

    def make_mask(self, n: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:
        """The mask for a chunk of ``n`` tokens that is about to be appended.

        Args:
            n: Tokens in the chunk.
            window_size: A narrower window of the model's own, in tokens.
            return_array: Never answer "causal".

        Returns:
            None (everything is visible), "causal", or a boolean array (n, columns after the chunk).
        """
        if n == 1 and window_size is None:
            return None
        fits = self.dropped == 0 and self.offset + n <= self.max_size
        if fits and window_size is None and not return_array:
            return "causal"
        columns = mx.array(self._positions_after(n))[None]
        rows = mx.arange(self.offset, self.offset + n)[:, None]
        recent = columns > rows - (self.max_size - self.keep)
        mask = (columns <= rows) & ((columns < self.keep) | recent)
        if window_size is not None:
            mask = mask & (columns > rows - window_size)
        return mask

    @property
    def state(self) -> tuple[Columns | None, Columns | None]:
        """What `mx.eval` needs to bring this layer up to date."""
        return self.keys, self.values

    def empty(self) -> bool:
        return self.keys is None

    def size(self) -> int:
        """How many tokens are held."""
        return self.held

    @property
    def nbytes(self) -> int:
        return nbytes((self.keys, self.values))

    def is_trimmable(self) -> bool:
        """Whether `trim` can go back to any token read so far."""
        return self.can_trim(self.offset)

    def trim(self, n: int) -> int:
        """Forgets the last ``n`` tokens.

        Returns:
            ``n``; or 0, with nothing done, where tokens are missing that the next one would attend to.
        """
        if n <= 0 or not self.can_trim(n):
            return 0
        stop, needed = self.offset - n, self._needed(self.offset - n)
        if needed < self.first and self.dropped:
            self._bring_back(needed, stop)
        else:
            self._straighten()
            self.offset = stop
            self._next -= n
        self.past = archive.before(self.past, min(self.first, stop))
        return n

    # --- what chatapp asks -------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many columns are in use."""
        return self.offset - self.dropped

    @property
    def first(self) -> int:
        """The position of the oldest column behind the kept ones."""
        return self.keep + self.dropped

    def can_trim(self, n: int) -> bool:
        """Whether everything that a token at ``offset - n`` attends to is held or put by."""
        stop = self.offset - n
        if not 0 <= stop <= self.offset:
            return False
        return self.dropped == 0 or archive.covers(self.past, self._needed(stop), min(stop, self.first))

    def nearest(self, stop: int) -> int:
        """The last position up to ``stop`` that `trim` can go back to."""
        ends = {min(stop, segment.stop) for segment in self.past if segment.start < stop} | {min(stop, self.keep), stop}
        return next(end for end in sorted(ends, reverse=True) if self.can_trim(self.offset - end))

    def inherit(self, other: RotatingLayer, shared: int) -> None:
        """Takes over, for going back, what another layer has of the tokens that both have read.

        Args:
            other: Of the same layer of the model; left as it is.
            shared: How many first tokens are the same.
        """
        stop = min(shared, self.first, other.offset)
        self.spare = other.spare
        self.past = ()
        if self.dropped == 0 or other.keys is None or other.keep != self.keep:
            return
        self.past = archive.before(other.past, stop)
        start = max(other.first, self.past[-1].stop if self.past else 0)
        if start < stop:
            column = start - other.dropped
            self.past = (*self.past, Segment.of(*other.straight(), column, start, stop))

    def can_keep(self, keep: int, n: int = 0) -> bool:
        """Whether K may become ``keep`` once the last ``n`` tokens are forgotten.

        It may while every token saw all before it. From position C on, what a token saw depended on K, and so do its
        keys and values in all layers but the first, even where every column is still held (behind a long chunk).
        """
        return keep == self.keep or self.offset - n < self.max_size

    def set_keep(self, keep: int) -> None:
        """Changes K.

        Raises:
            ValueError: Tokens were read already that saw fewer than all before them.
        """
        if not self.can_keep(keep):
            raise ValueError(f"keep cannot change from {self.keep} to {keep} at {self.offset} tokens")
        self.keep = keep

    def positions(self) -> list[int]:
        """The absolute position of each column that `keys_and_values` returns."""
        if self.dropped == 0:
            return list(range(self.held))
        recent = list(range(self.keep + self.dropped, self.offset))
        turned = self._next - self.keep if self._next < self.held else 0
        return [*range(self.keep), *recent[len(recent) - turned :], *recent[: len(recent) - turned]]

    def straight(self) -> tuple[Columns, Columns]:
        """The columns in the order of positions, as new arrays where they are not in that order."""
        self._straighten()
        return self.keys_and_values()

    def fill(self, keys: Columns, values: Columns, offset: int) -> None:
        """Takes over columns as another layer's `straight` returned them.

        Args:
            keys: Keys.
            values: Values.
            offset: That layer's.
        """
        self.keys, self.values = (tuple(part) if isinstance(part, list) else part for part in (keys, values))
        self.offset = offset
        self._next = self._capacity()
        self.dropped = offset - self._next

    # --- storage -----------------------------------------------------------------------------------------------

    def _encode(self, new: mx.array) -> Columns:
        """How a chunk is stored; a quantized layer packs it."""
        return new

    def _map(self, change: Callable[..., mx.array], *others: tuple[Columns, Columns]) -> None:
        """Changes every array of keys and values by the same function."""
        self.keys, self.values = cast("tuple[Columns, Columns]", tree_map(change, (self.keys, self.values), *others))

    def _write(self, new: tuple[Columns, Columns], start: int, stop: int) -> None:
        for buffers, parts in zip((self.keys, self.values), new, strict=True):
            if isinstance(parts, mx.array):
                cast("mx.array", buffers)[..., start:stop, :] = parts
            else:
                for buffer, part in zip(cast("Columns", buffers), parts, strict=True):
                    buffer[..., start:stop, :] = part

    def _append(self, new: tuple[Columns, Columns], n: int) -> None:
        """Writes a chunk behind the linear columns, growing the buffer in steps, never beyond C."""
        start, stop = self._next, self._next + n
        capacity = self._capacity()
        if self.keys is None or stop > capacity:
            size = min(-(-stop // self.step) * self.step, self.max_size)

            def grown(part: mx.array, buffer: mx.array | None = None) -> mx.array:
                room = mx.zeros((*part.shape[:2], size - start, part.shape[3]), part.dtype)
                return room if buffer is None else mx.concatenate([buffer[..., :start, :], room], axis=2)

            if self.keys is None:
                self.keys, self.values = cast("tuple[Columns, Columns]", tree_map(grown, new))
            else:
                self._map(lambda buffer, part: grown(part, buffer), new)
        self._write(new, start, stop)
        self.offset += n
        self._next = stop

    def _overwrite(self, new: tuple[Columns, Columns]) -> None:
        """Writes one token over the oldest column of a full buffer."""
        if self._capacity() > self.max_size:
            self._map(lambda buffer: mx.contiguous(buffer[..., : self.max_size, :]))
        if self._next == self.max_size:
            self._next = self.keep
        self._put_away(self._next, self.max_size, 1)
        self._write(new, self._next, self._next + 1)
        self.offset += 1
        self.dropped += 1
        self._next += 1

    def _concatenate(self, new: tuple[Columns, Columns], n: int) -> None:
        """Puts a chunk behind the C-1 columns that its first token sees beside itself."""
        self._straighten()
        excess = max(0, self.held - (self.max_size - 1))
        if self.keys is None:
            self.keys, self.values = new
        elif excess == 0:
            self.keys, self.values = archive.joined([self._cut(0, self.held), new])
        else:
            self._put_away(self.keep, self.held, excess)
            recent = self._cut(self.keep + excess, self.held)
            self.keys, self.values = archive.joined([self._cut(0, self.keep), recent, new])
        self.dropped += excess
        self.offset += n
        self._next = self.held

    def _put_away(self, column: int, end: int, count: int) -> None:
        """Puts by the ``count`` oldest columns, and some after them, before they are dropped.

        Args:
            column: Where the oldest one is.
            end: One past the last column that follows it in order of position.
            count: How many will be dropped.
        """
        if self.spare is None:
            return
        start = max(self.first, self.past[-1].stop if self.past else 0)
        stop = self.first + max(count, min(BLOCK, end - column))
        if self.first + count <= start:
            return
        segment = Segment.of(self.keys, self.values, column + start - self.first, start, stop)
        self.past = archive.thinned((*self.past, segment), self.max_size, self.first - BLOCK, self.spare)

    def _bring_back(self, needed: int, stop: int) -> None:
        """Rebuilds the columns that the token at ``stop`` sees out of what is held and what was put by."""
        self._straighten()
        parts = [self._cut(0, min(self.keep, stop)), *self._put_by(needed, min(stop, self.first))]
        if stop > self.first:
            parts.append(self._cut(self.keep, self.held - (self.offset - stop)))
        self.keys, self.values = archive.joined(parts)
        self.offset = stop
        self.dropped = needed - self.keep
        self._next = self.held

    def _put_by(self, start: int, stop: int) -> list[tuple[Columns, Columns]]:
        return [(part.keys, part.values) for part in archive.between(self.past, start, stop)]

    def _cut(self, start: int, stop: int) -> tuple[Columns, Columns]:
        return tree_map(lambda buffer: buffer[..., start:stop, :], (self.keys, self.values))

    def _needed(self, stop: int) -> int:
        """The oldest position behind the kept ones that the token at ``stop`` attends to."""
        return max(self.keep, stop - (self.max_size - self.keep) + 1)

    def _straighten(self) -> None:
        """Brings a turned ring into the order of positions."""
        at, held, keep = self._next, self.held, self.keep
        if at == held or self.keys is None:
            return

        def straight(buffer: mx.array) -> mx.array:
            return mx.concatenate([buffer[..., :keep, :], buffer[..., at:held, :], buffer[..., keep:at, :]], axis=2)

        self._map(straight)
        self._next = held

    def _capacity(self) -> int:
        if self.keys is None:
            return 0
        return (self.keys if isinstance(self.keys, mx.array) else self.keys[0]).shape[2]

    def _positions_after(self, n: int) -> list[int]:
        """The positions of the columns once a chunk of ``n`` tokens is appended."""
        after = RotatingLayer(self.max_size, self.keep)
        after.offset, after.dropped, after._next = self.offset, self.dropped, self._next
        held = self.held
        if held + n <= self.max_size:
            after._next += n
        elif n == 1 and held == self.max_size:
            after.dropped += 1
            after._next = (self.keep if self._next == self.max_size else self._next) + 1
        else:
            after.dropped += max(0, held - (self.max_size - 1))
            after._next = self.offset + n - after.dropped
        after.offset += n
        return after.positions()


def nbytes(tree: Any) -> int:
    """Bytes of all arrays in nested lists, tuples and dicts; other values count nothing."""
    if isinstance(tree, mx.array):
        return tree.nbytes
    if isinstance(tree, dict):
        return sum(nbytes(value) for value in cast("dict[Any, Any]", tree).values())
    if isinstance(tree, (list, tuple)):
        return sum(nbytes(value) for value in cast("list[Any]", tree))
    return 0
