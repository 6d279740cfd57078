"""The cache of one full-attention layer: the first K tokens and the latest C-K, whatever path led there.

The token at position p attends to {0 … K-1} ∪ {max(K, p-(C-K)+1) … p} and to nothing else. Positions are absolute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_map

from chatapp.errors import ChatappError

#: Keys or values: (batch, heads, columns, head_dim), or the three parts of a quantized such array.
Columns = Any


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
        """Whether every token read so far is still held, so that `trim` can go back to any of them."""
        return self.dropped == 0

    def trim(self, n: int) -> int:
        """Forgets the last ``n`` tokens.

        Returns:
            ``n``; or 0, with nothing done, where tokens are missing that the next one would attend to.
        """
        if not 0 < n <= self.trimmable:
            return 0
        self._straighten()
        self.offset -= n
        self._next -= n
        return n

    # --- what chatapp asks -------------------------------------------------------------------------------------

    @property
    def held(self) -> int:
        """How many columns are in use."""
        return self.offset - self.dropped

    @property
    def trimmable(self) -> int:
        """How many tokens `trim` can forget: all while none is dropped, else as many as are held beyond need."""
        if self.dropped == 0:
            return self.offset
        return max(0, self.held - self.max_size + 1)

    def set_keep(self, keep: int) -> None:
        """Changes K.

        Raises:
            ValueError: Tokens that the other K would show are not held any more.
        """
        if keep != self.keep and self.dropped:
            raise ValueError(f"keep cannot change from {self.keep} to {keep} after {self.dropped} tokens were dropped")
        self.keep = keep

    def positions(self) -> list[int]:
        """The absolute position of each column that `keys_and_values` returns."""
        if self.dropped == 0:
            return list(range(self.held))
        recent = list(range(self.keep + self.dropped, self.offset))
        turned = self._next - self.keep if self._next < self.held else 0
        return [*range(self.keep), *recent[len(recent) - turned :], *recent[: len(recent) - turned]]

    def ordered(self) -> tuple[Columns, Columns]:
        """The columns in use in the order of positions (which they have in the buffer from now on)."""
        self._straighten()
        return self.keys_and_values()

    def fill(self, keys: Columns, values: Columns, offset: int) -> None:
        """Takes over columns as another layer's `ordered` returned them.

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
        self._write(new, self._next, self._next + 1)
        self.offset += 1
        self.dropped += 1
        self._next += 1

    def _concatenate(self, new: tuple[Columns, Columns], n: int) -> None:
        """Puts a chunk behind the C-1 columns that its first token sees beside itself."""
        self._straighten()
        excess = max(0, self.held - (self.max_size - 1))
        keep, held = self.keep, self.held

        def joined(part: mx.array, buffer: mx.array) -> mx.array:
            if excess == 0:
                return mx.concatenate([buffer[..., :held, :], part], axis=2)
            return mx.concatenate([buffer[..., :keep, :], buffer[..., keep + excess : held, :], part], axis=2)

        if self.keys is None:
            self.keys, self.values = new
        else:
            self._map(lambda buffer, part: joined(part, buffer), new)
        self.dropped += excess
        self.offset += n
        self._next = self.held

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


class QuantizedRotatingLayer(RotatingLayer):
    """A `RotatingLayer` whose columns are quantized, each token on its own along the head dimension.

    Attributes:
        bits: As `mx.quantize` takes it.
        group_size: The same; settled by the first chunk's head dimensions.
    """

    def __init__(self, max_size: int, keep: int, bits: int) -> None:
        super().__init__(max_size, keep)
        self.bits = bits
        self.group_size = 64

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[Columns, Columns]:
        if self.keys is None:
            self.group_size = _group_size(keys.shape[-1], values.shape[-1])
        return super().update_and_fetch(keys, values)

    def _encode(self, new: mx.array) -> Columns:
        return tuple(mx.quantize(new, group_size=self.group_size, bits=self.bits))


def nbytes(tree: Any) -> int:
    """Bytes of all arrays in nested lists, tuples and dicts; other values count nothing."""
    if isinstance(tree, mx.array):
        return tree.nbytes
    if isinstance(tree, dict):
        return sum(nbytes(value) for value in cast("dict[Any, Any]", tree).values())
    if isinstance(tree, (list, tuple)):
        return sum(nbytes(value) for value in cast("list[Any]", tree))
    return 0


def _group_size(*dims: int) -> int:
    for size in (64, 32):
        if all(dim % size == 0 for dim in dims):
            return size
    shown = " and ".join(str(dim) for dim in sorted(set(dims)))
    raise ChatappError(
        f"This model's cache cannot be quantized: its head dimension {shown} is not a multiple of 32. "
        "Start again without kv-bits.",
        "usage",
    )
