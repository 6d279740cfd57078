"""What a cold start would answer, computed without chatapp: one forward pass over all tokens.

Full-attention layers get the mask of the set {0 … K-1} ∪ {max(K, p-(C-K)+1) … p} written out; sliding-window layers
that of their window; recurrent layers run mlx-lm's own empty cache once over all tokens.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache, make_prompt_cache


class Masked:
    """Stands in for a cache: no memory, a given mask, positions from 0."""

    offset = 0

    def __init__(self, mask: np.ndarray) -> None:
        self.mask = mx.array(mask)

    def make_mask(self, *_args: Any, **_kwargs: Any) -> mx.array:
        return self.mask

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        return keys, values


def visible(n: int, capacity: int, keep: int) -> np.ndarray:
    """Row p, column q: whether the token at p attends to the one at q, shape (n, n)."""
    seen = np.zeros((n, n), bool)
    for p in range(n):
        seen[p, : min(keep, p + 1)] = True
        seen[p, max(keep, p - (capacity - keep) + 1) : p + 1] = True
    return seen


def cold_caches(model: Any, n: int, capacity: int, keep: int) -> list[Any]:
    """A cache for one pass over ``n`` tokens."""

    def cold(layer: Any) -> Any:
        if isinstance(layer, CacheList):
            return CacheList(*(cold(part) for part in layer.caches))
        if isinstance(layer, RotatingKVCache):
            return Masked(visible(n, layer.max_size, 0))
        if isinstance(layer, KVCache):
            return Masked(visible(n, capacity, keep))
        assert isinstance(layer, ArraysCache)
        return layer

    return [cold(layer) for layer in make_prompt_cache(model)]


def logprobs(logits: mx.array) -> np.ndarray:
    """Log-softmax in float64, shape (n, vocabulary)."""
    z = np.array(logits.astype(mx.float32)).astype(np.float64).reshape(-1, logits.shape[-1])
    top = z.max(-1, keepdims=True)
    return z - top - np.log(np.exp(z - top).sum(-1, keepdims=True))


def cold_logprobs(model: Any, ids: list[int], capacity: int, keep: int) -> np.ndarray:
    """Next-token log-probabilities after each of ``ids``, shape (n, vocabulary), in nats."""
    return logprobs(model(mx.array([ids]), cache=cold_caches(model, len(ids), capacity, keep)))


def assert_same(actual: np.ndarray, expected: np.ndarray, tolerance: float = 1e-4) -> None:
    """Log-probabilities agree, and so does the likeliest token where it is likelier than the tolerance tells."""
    assert actual.shape == expected.shape
    worst = float(np.abs(actual - expected).max())
    assert worst < tolerance, f"off by {worst:.2e}"
    ours, theirs = actual.argmax(-1), expected.argmax(-1)
    rows = np.arange(len(expected))
    clear = expected[rows, theirs] - expected[rows, ours] > tolerance
    assert not clear.any(), f"another likeliest token at rows {np.nonzero(clear)[0].tolist()}"
