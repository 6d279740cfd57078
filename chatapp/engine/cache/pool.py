"""The caches of several conversations under one byte budget, so that switching between them reads nothing again."""

from __future__ import annotations

from collections import OrderedDict

import mlx.nn as nn
import psutil

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.session import CacheLimits, SessionCache

#: The share of the machine's memory that all conversations' caches may take.
_SHARE = 1 / 4


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
            kv.check_quantizable(model, limits.kv_bits)
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
