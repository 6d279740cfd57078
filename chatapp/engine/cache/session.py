"""The cache of one conversation: which tokens it holds, and how it is brought to another prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import psutil

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache import saved as aside
from chatapp.engine.cache.ladder import Kind, Ladder, Rung, common
from chatapp.engine.cache.layers import Layer
from chatapp.engine.cache.saved import Mark
from chatapp.errors import UsageError
from chatapp.protocol import Method

#: The smallest C that leaves room for K = 4 and a window.
MIN_KV_SIZE = 8

#: K at least, where it is not set: the first tokens take up attention that has nowhere else to go.
MIN_KEEP = 4

#: The share of the machine's memory that one conversation's checkpoints may take.
_CHECKPOINT_SHARE = 1 / 12

#: Where fewer tokens than this are left behind, going back to them is not worth a checkpoint.
_LEFT = 16

#: On the way through a long text or reply, a checkpoint every so many tokens where trimming cannot serve.
_WAY = 1024


@dataclass(frozen=True)
class CacheLimits:
    """What a cache may hold.

    Attributes:
        max_kv_size: C, in tokens.
        keep: K, in tokens, at most C/2; None covers the system message.
        kv_bits: Quantize keys and values to so many bits.
        checkpoint_bytes: Budget of one conversation for going back: half of it for checkpoints, half for columns that
            are not attended to any more. None takes a twelfth of the machine's memory.
        way: Tokens between checkpoints on the way through a long text or reply.

    Raises:
        UsageError: A number is out of range.
    """

    max_kv_size: int
    keep: int | None = None
    kv_bits: int | None = None
    checkpoint_bytes: int | None = None
    way: int = _WAY

    def __post_init__(self) -> None:
        if self.max_kv_size < MIN_KV_SIZE:
            raise UsageError(f"max-kv-size must be at least {MIN_KV_SIZE} tokens, not {self.max_kv_size}.")
        if self.keep is not None and not 0 <= self.keep <= self.max_kv_size // 2:
            raise UsageError(f"keep must be from 0 to half of max-kv-size ({self.max_kv_size // 2}), not {self.keep}.")
        if self.kv_bits is not None and self.kv_bits not in (2, 3, 4, 5, 6, 8):
            raise UsageError(f"kv-bits must be 2, 3, 4, 5, 6 or 8, not {self.kv_bits}.")

    @property
    def going_back(self) -> int:
        """Bytes of one conversation's budget for going back."""
        return default_checkpoint_bytes() if self.checkpoint_bytes is None else self.checkpoint_bytes

    def kept(self, system_end: int) -> int:
        """K in force for a prompt whose system message ends at ``system_end``."""
        if self.keep is not None:
            return self.keep
        return min(max(system_end, MIN_KEEP), self.max_kv_size // 2)


@dataclass(frozen=True)
class Plan:
    """How a prompt comes into the cache.

    Attributes:
        reused: How many of its tokens are kept.
        prefilled: How many are read; at least one.
        method: How the reused part is kept.
    """

    reused: int
    prefilled: int
    method: Method


class SessionCache:
    """Keys, values and states of one conversation, and the checkpoints to rewind it by.

    Attributes:
        model: The mlx-lm model that reads into it.
        limits: C, K and budgets.
        layers: What the model's call takes as ``cache``. The list stays the same object.
        ladder: The checkpoints.
        keep: K in force, in tokens.
        system_end: Where the prompt's system message ends.
        least: Of a number here, the smallest on all ranks, where they have other layers than this one; they must read
            in the same chunks and go back alike.
    """

    def __init__(self, model: nn.Module, limits: CacheLimits, least: Callable[[int], int] = int) -> None:
        self.model = model
        self.limits = limits
        self.least = least
        self.keep = limits.kept(0)
        budget = limits.going_back
        self.ladder = Ladder(budget // 2, limits.max_kv_size)
        self._spare = budget - budget // 2
        self.layers: list[Layer] = self.fresh()
        self._tokens: list[int] = []
        self.system_end = 0
        self._from_disk = False

    @property
    def tokens(self) -> list[int]:
        """Ids inside the cache, in order; their number is the layers' offset. Not to be changed."""
        return self._tokens

    @property
    def nbytes(self) -> int:
        """Bytes of the live layers and of all that is kept for going back."""
        return kv.size_in_bytes(self.layers) + kv.past_bytes(self.layers) + self.ladder.nbytes

    def forecast(self, ids: Sequence[int], keep: int = 0, most: int | None = None) -> Plan:
        """What `prepare` would do; changes nothing.

        Args:
            ids: The whole prompt, at least one token.
            keep: Where its system message ends.
            most: Keep at most so many of its tokens.
        """
        return self._route(ids, keep, most)[0]

    def prepare(self, ids: Sequence[int], keep: int = 0, most: int | None = None) -> Plan:
        """Rewinds: afterwards `tokens` are ``ids[:plan.reused]``, and the rest is to be read.

        Args:
            ids: The whole prompt, at least one token.
            keep: Where its system message ends; K covers it, within limits.
            most: Keep at most so many of its tokens.
        """
        plan, rung = self._route(ids, keep, most)
        self._leave(ids)
        if rung is not None:
            self._restore(rung, ids)
        elif plan.reused == 0:
            self.reset()
        elif not kv.trim(self.layers, len(self._tokens) - plan.reused):
            raise ValueError("the live cache cannot be trimmed as planned")
        self.keep = self.limits.kept(keep)
        if not kv.set_keep(self.layers, self.keep):
            raise ValueError("the rewound cache has another K than was planned")
        self._tokens = list(ids[: plan.reused])
        self.system_end = keep
        self._from_disk = False
        return plan

    def prefill(
        self,
        ids: Sequence[int],
        step: int = 512,
        cancelled: Callable[[], bool] = lambda: False,
        logits: Callable[[mx.array], None] | None = None,
    ) -> Iterator[int]:
        """Has the model read ids in chunks, taking checkpoints on the way.

        Args:
            ids: What follows `tokens`.
            step: Longest chunk, in tokens.
            cancelled: Asked before each chunk; when true, reading ends there.
            logits: Given each chunk's logits, shape (1, n, vocabulary), in order.

        Yields:
            How many of ``ids`` were read so far, after each chunk. What was read is in `tokens`.
        """
        done = 0
        while done < len(ids) and not cancelled():
            chunk = list(ids[done : done + self._chunk(step)])
            try:
                out = self.model(mx.array([chunk]), cache=self.layers)
                if logits is not None:
                    logits(out)
                mx.eval(kv.arrays(self.layers))
            except BaseException:
                self.reset()  # some layers may have read the chunk and some not
                raise
            self.read(chunk)
            mx.clear_cache()
            done += len(chunk)
            yield done

    def read(self, ids: Sequence[int]) -> None:
        """Appends ids that the model was just run on to the record, and takes a checkpoint where one is due."""
        before = len(self._tokens)
        self._tokens.extend(ids)
        here, way = len(self._tokens), self.limits.way
        if here == self.system_end:
            self.checkpoint("system")
        elif here == self._last_before_rotation or here // way > before // way:
            self.checkpoint("way")

    def checkpoint(self, kind: Kind) -> None:
        """Takes a checkpoint here, unless trimming serves as well."""
        if self._tokens and not kv.prefix_of_longer(self.layers):
            self._save(kind)

    def reset(self) -> None:
        """Empties the live cache; the checkpoints stay."""
        self.layers[:] = self.fresh()
        self._tokens = []

    def forget(self) -> None:
        """Empties the live cache and gives up the checkpoints."""
        self.reset()
        self.ladder.clear()

    def fresh(self) -> list[Layer]:
        """Empty layers for this cache."""
        return kv.make(self.model, self.limits.max_kv_size, self.keep, self.limits.kv_bits, self._spare)

    def mark(self, ahead: int) -> tuple[Mark, int]:
        """Marks this place, to which `rollback` can return after at most ``ahead`` (up to 256) more tokens."""
        return aside.mark(self.layers, len(self._tokens), ahead), len(self._tokens)

    def rollback(self, place: tuple[Mark, int], keep: int = 0) -> int:
        """Goes back to ``keep`` tokens behind a mark.

        Returns:
            ``keep``; or 0 where that is impossible: the cache is then at the mark, and the caller reads them again.
        """
        mark, length = place
        read = len(self._tokens) - length
        if not self.least(kv.can_trim(self.layers, read - keep)):
            keep = 0
        kept = aside.rollback(self.layers, mark, read, keep)
        del self._tokens[length + kept :]
        return kept

    def adopt(self, layers: Sequence[Layer], ids: Sequence[int]) -> None:
        """Takes over layers that began as this cache's (`layers.expand`, `layers.select`) and read ``ids`` since."""
        kv.inherit(layers, self.layers, len(self._tokens))
        self.layers[:] = layers
        self.read(ids)

    def loaded(self, layers: Sequence[Layer], ids: Sequence[int], system_end: int) -> None:
        """Takes over what a file held; the next `prepare` says so."""
        self.layers[:] = layers
        self._tokens = list(ids)
        self.system_end = system_end
        self.keep = self.limits.kept(system_end)
        self.checkpoint("end")
        self._from_disk = True

    def _route(self, ids: Sequence[int], system_end: int, most: int | None) -> tuple[Plan, Rung | None]:
        if not ids:
            raise ValueError("a prompt needs at least one token")
        limit = len(ids) - 1  # one is left to feed: its logits give the next token
        limit = limit if most is None else min(limit, most)
        keep = self.limits.kept(system_end)
        held = min(common(self._tokens, ids), limit) if self._sound() else 0
        live = kv.nearest(self.layers, len(self._tokens), held, keep) if held else 0
        rung = self.ladder.best(ids, limit, keep, self.layers, held)
        if rung is not None and rung.reach > live:
            return Plan(rung.reach, len(ids) - rung.reach, self._method("checkpoint")), rung
        if live == 0:
            return Plan(0, len(ids), "cold"), None
        return Plan(live, len(ids) - live, self._method("trim")), None

    def _method(self, method: Method) -> Method:
        return "disk" if self._from_disk else method

    def _sound(self) -> bool:
        """Whether every layer that counts has read as many tokens as the record has."""
        return all(layer.offset == len(self._tokens) for layer in kv.flat(self.layers) if hasattr(layer, "offset"))

    @property
    def _last_before_rotation(self) -> int:
        """The most tokens after which K can still be any: the next one is the last that sees all before it."""
        return self.limits.max_kv_size - 1

    def _chunk(self, step: int) -> int:
        """The longest chunk from here that ends where a checkpoint may be wanted, on whichever rank."""
        here = len(self._tokens)
        ends = [self.system_end]
        if not self.least(kv.prefix_of_longer(self.layers)):
            ends.append(self._last_before_rotation)
        return min([step, *(end - here for end in ends if end > here)])

    def _save(self, kind: Kind) -> None:
        self.ladder.add(kind, self._tokens, aside.save(self.layers, len(self._tokens), thin=True))

    def _restore(self, rung: Rung, ids: Sequence[int]) -> None:
        restored = self.ladder.restored(rung)
        if self._sound():
            kv.inherit(restored, self.layers, min(common(self._tokens, ids), rung.reach))
        self.layers[:] = restored

    def _leave(self, ids: Sequence[int]) -> None:
        """Saves the branch that a prompt leaves, so that coming back to it reads nothing again."""
        if len(self._tokens) - common(self._tokens, ids) < _LEFT or not self._sound():
            return
        saved = aside.save(self.layers, len(self._tokens))
        if saved.nbytes <= self.ladder.budget:
            self.ladder.add("left", self._tokens, saved)


def default_checkpoint_bytes() -> int:
    """A twelfth of this machine's memory."""
    return int(psutil.virtual_memory().total * _CHECKPOINT_SHARE)
