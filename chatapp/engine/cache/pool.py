"""The caches of several conversations under one byte budget, so that switching between them reads nothing again."""

from __future__ import annotations

from collections import OrderedDict

import mlx.core as mx
import mlx.nn as nn
import psutil

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.quantized import QuantizedRotatingLayer
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.errors import ChatappError

#: The share of the machine's memory that all conversations' caches may take.
_SHARE = 1 / 4


#: Errors by which mlx and mlx-lm refuse keys and values that are packed.
_REFUSALS = (ValueError, TypeError, AttributeError, IndexError)


class CachePool:
    """`SessionCache`s by conversation. What was not used for longest goes first; what is in use stays.

    Attributes:
        model: The mlx-lm model of all of them.
        limits: C, K and budgets of each.
        budget: Bytes of all together, checkpoints included.

    Raises:
        ChatappError: ``limits.kv_bits`` asks for a quantized cache and the model cannot have one; with the reason.
    """

    def __init__(self, model: nn.Module, limits: CacheLimits, budget: int | None = None) -> None:
        if limits.kv_bits is not None:
            check_quantizable(model, limits.kv_bits)
        self.model = model
        self.limits = limits
        self.budget = int(psutil.virtual_memory().total * _SHARE) if budget is None else budget
        self._caches: OrderedDict[str, SessionCache] = OrderedDict()

    def __contains__(self, conversation: object) -> bool:
        return conversation in self._caches

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in self._caches.values())

    def get(self, conversation: str) -> SessionCache:
        """The cache of a conversation, made if there is none; it is now the last to go.

        Args:
            conversation: Its id; an empty one gets a new cache that the pool does not hold.
        """
        if not conversation:
            return SessionCache(self.model, self.limits)
        cache = self._caches.pop(conversation, None) or SessionCache(self.model, self.limits)
        self._caches[conversation] = cache
        self.settle()
        return cache

    def drop(self, conversation: str) -> None:
        """Forgets a conversation's cache, if there is one."""
        self._caches.pop(conversation, None)

    def settle(self) -> None:
        """Brings the caches within the budget; to be called when one has grown."""
        while len(self._caches) > 1 and self.nbytes > self.budget:
            self._caches.popitem(last=False)


def check_quantizable(model: nn.Module, kv_bits: int) -> None:
    """Runs two tokens through a quantized cache, so that a model that cannot have one is refused at the start.

    Raises:
        ChatappError: It cannot; with the reason.
    """
    layers = kv.make(model, 16, 4, kv_bits)
    if not any(isinstance(part, QuantizedRotatingLayer) for part in kv.flat(layers)):
        raise ChatappError(
            "This model has no full-attention cache that kv-bits could quantize. Start again without kv-bits.", "usage"
        )
    try:
        for ids in ([[0, 0]], [[0]]):
            mx.eval(model(mx.array(ids), cache=layers))
    except _REFUSALS as error:
        raise ChatappError(
            f"This model cannot work on a quantized cache ({error}). Start again without kv-bits.", "usage"
        ) from error
