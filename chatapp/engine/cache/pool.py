"""The caches of several conversations under one byte budget, so that switching between them reads nothing again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import psutil

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.quantized import QuantizedRotatingLayer
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.errors import ChatappError

#: The share of the machine's memory that all conversations' caches may take.
_SHARE = 1 / 4

#: The part of a conversation's budget for going back that the draft model's cache has beside it.
_DRAFT_PART = 8


#: Errors by which mlx and mlx-lm refuse keys and values that are packed.
_REFUSALS = (ValueError, TypeError, AttributeError, IndexError)


class CachePool:
    """`SessionCache`s by conversation. What was not used for longest goes first; what is in use stays.

    Attributes:
        model: The mlx-lm model of all of them.
        limits: C, K and budgets of each.
        budget: Bytes of all together, checkpoints and the draft model's caches included.
        draft_model: Drafts for ``model``; each conversation then has a cache of it too, which goes with its own.
        least: See `SessionCache`; not for the draft model, which every rank has whole.

    Raises:
        ChatappError: ``limits.kv_bits`` asks for a quantized cache and the model cannot have one; with the reason.
    """

    def __init__(
        self,
        model: nn.Module,
        limits: CacheLimits,
        budget: int | None = None,
        draft_model: nn.Module | None = None,
        least: Callable[[int], int] = int,
    ) -> None:
        if limits.kv_bits is not None:
            check_quantizable(model, limits.kv_bits, least)
        self.model = model
        self.limits = limits
        self.budget = default_pool_bytes() if budget is None else budget
        self.draft_model = draft_model
        self.least = least
        self._caches: OrderedDict[str, SessionCache] = OrderedDict()
        self._drafts: dict[str, SessionCache] = {}

    def __contains__(self, conversation: object) -> bool:
        return conversation in self._caches

    def __len__(self) -> int:
        return len(self._caches)

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for caches in (self._caches, self._drafts) for cache in caches.values())

    def get(self, conversation: str) -> SessionCache:
        """The cache of a conversation, made if there is none; it is now the last to go.

        Args:
            conversation: Its id; an empty one gets a new cache that the pool does not hold.
        """
        if not conversation:
            return SessionCache(self.model, self.limits, self.least)
        cache = self._caches.pop(conversation, None) or SessionCache(self.model, self.limits, self.least)
        self._caches[conversation] = cache
        self.settle()
        return cache

    def draft(self, conversation: str) -> SessionCache | None:
        """The draft model's cache of a conversation, made if there is none; None without a draft model."""
        if self.draft_model is None:
            return None
        # It goes back by a few tokens far more often than far: an eighth of the budget for that is plenty.
        limits = replace(self.limits, kv_bits=None, checkpoint_bytes=self.limits.going_back // _DRAFT_PART)
        cache = self._drafts.get(conversation) or SessionCache(self.draft_model, limits)
        if conversation in self._caches:
            self._drafts[conversation] = cache
        return cache

    def drop(self, conversation: str) -> None:
        """Forgets a conversation's cache, if there is one."""
        self._caches.pop(conversation, None)
        self._drafts.pop(conversation, None)

    def settle(self) -> None:
        """Brings the caches within the budget; to be called when one has grown."""
        while len(self._caches) > 1 and self.nbytes > self.budget:
            self.drop(next(iter(self._caches)))


def default_pool_bytes() -> int:
    """A quarter of this machine's memory."""
    return int(psutil.virtual_memory().total * _SHARE)


def check_quantizable(model: nn.Module, kv_bits: int, least: Callable[[int], int] = int) -> None:
    """Runs two tokens through a quantized cache, so that a model that cannot have one is refused at the start.

    Args:
        model: An mlx-lm model.
        kv_bits: As in `CacheLimits`.
        least: Of a number here, the smallest on all ranks: they refuse it together.

    Raises:
        ChatappError: It cannot; with the reason.
    """
    layers = kv.make(model, 16, 4, kv_bits)
    if least(not any(isinstance(part, QuantizedRotatingLayer) for part in kv.flat(layers))):
        raise ChatappError(
            "This model has no full-attention cache that kv-bits could quantize. Start again without kv-bits.", "usage"
        )
    outputs: list[mx.array] = []
    reason = ""
    try:
        outputs += [model(mx.array(ids), cache=layers) for ids in ([[0, 0]], [[0]])]
    except _REFUSALS as error:
        reason = str(error) or type(error).__name__
    if not least(not reason):
        reason = reason or "on another rank"
        raise ChatappError(
            f"This model cannot work on a quantized cache ({reason}). Start again without kv-bits.", "usage"
        )
    mx.eval(outputs)
