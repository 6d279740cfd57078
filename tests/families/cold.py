"""A cold run for every family: `tests.cache.oracle` with what some families ask of a cache besides."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, ChunkedKVCache, KVCache, RotatingKVCache, make_prompt_cache

from tests.cache import oracle


class Standin(oracle.Masked):
    """A `Masked` that lets models look at its keys, as sparse indexers and layers that share keys do."""

    start_position = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        self.keys, self.values = keys, values
        return keys, values

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        return self.keys, self.values

    def maybe_trim_front(self) -> None:
        """Chunked attention: its mask is the model's own, and nothing is dropped here."""


def logprobs(model: Any, ids: list[int], capacity: int, keep: int) -> np.ndarray:
    """Next-token log-probabilities after each of ``ids`` in one pass, shape (n, vocabulary), in nats."""

    def cold(layer: Any) -> Any:
        if isinstance(layer, CacheList):
            return CacheList(*(cold(part) for part in layer.caches))
        if isinstance(layer, RotatingKVCache):
            return Standin(oracle.visible(len(ids), layer.max_size, 0))
        if isinstance(layer, (KVCache, ChunkedKVCache)):
            return Standin(oracle.visible(len(ids), capacity, keep))
        return layer  # recurrent and compressed states: one pass over mlx-lm's own empty one

    return oracle.logprobs(model(mx.array([ids]), cache=[cold(layer) for layer in make_prompt_cache(model)]))
