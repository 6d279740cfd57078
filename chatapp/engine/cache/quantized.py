"""A rotating layer whose keys and values are quantized."""

from __future__ import annotations

import mlx.core as mx

from chatapp.engine.cache.past import Columns
from chatapp.engine.cache.rotating import RotatingLayer
from chatapp.errors import ChatappError


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
