"""Checkpoints of one conversation's cache, under a byte budget: dense near its end, sparse further back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache import saved as aside
from chatapp.engine.cache.layers import Layer
from chatapp.engine.cache.saved import Saved

#: Where a checkpoint was taken: the end of the system message, the start of a reply (but for the prompt's last token),
#: its end, on the way through a long text, or where the conversation was left for another branch.
Kind = Literal["system", "start", "end", "way", "left"]

#: Never dropped while it lies on the way to where the conversation is.
_PROTECTED: Kind = "system"


@dataclass(eq=False)
class Checkpoint:
    """The layers' state after certain tokens.

    Attributes:
        kind: Where it was taken; of several at one place, the protected one.
        tokens: The ids read up to there: it is valid for prompts that begin with them, and for no others.
        saved: The state.
        used: When it was last taken or restored, on the ladder's own clock.
    """

    kind: Kind
    tokens: array[int]
    saved: Saved
    used: int

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        return self.saved.nbytes + self.tokens.itemsize * len(self.tokens)


@dataclass(frozen=True)
class Rung:
    """A way to rewind.

    Attributes:
        reach: How many tokens of the prompt are in the cache afterwards.
        checkpoint: What is restored.
        longer: Where a thin checkpoint takes the layers from that hold every token.
    """

    reach: int
    checkpoint: Checkpoint
    longer: Sequence[Layer | None] | None = None


class Ladder:
    """The checkpoints.

    Attributes:
        budget: In bytes. What `_must_stay` names stays even beyond it.
        capacity: C, in tokens: where rotation begins.
    """

    def __init__(self, budget: int, capacity: int) -> None:
        self.budget = budget
        self.capacity = capacity
        self._rungs: list[Checkpoint] = []
        self._clock = 0

    def __len__(self) -> int:
        return len(self._rungs)

    def __iter__(self):  # noqa: ANN204 - the list's own iterator
        return iter(self._rungs)

    @property
    def nbytes(self) -> int:
        return sum(rung.nbytes for rung in self._rungs)

    def add(self, kind: Kind, tokens: Sequence[int], saved: Saved) -> None:
        """Adds a checkpoint at ``tokens`` and drops others where the budget asks for it."""
        there = self.at(tokens)
        if there is not None and not (saved.whole and not there.saved.whole):
            self._touch(there)
            there.kind = kind if kind == _PROTECTED else there.kind
            return
        if there is not None:
            self._rungs.remove(there)
            kind = there.kind if there.kind == _PROTECTED else kind
        self._rungs.append(Checkpoint(kind, array("i", tokens), saved, 0))
        self._touch(self._rungs[-1])
        self._thin(tokens)

    def at(self, tokens: Sequence[int]) -> Checkpoint | None:
        """The checkpoint at exactly these tokens."""
        same = (
            rung for rung in self._rungs if rung.length == len(tokens) and common(rung.tokens, tokens) == len(tokens)
        )
        return next(same, None)

    def behind(self, tokens: Sequence[int]) -> list[Checkpoint]:
        """Those on the way to ``tokens``, shortest first."""
        on_way = [rung for rung in self._rungs if common(rung.tokens, tokens) == rung.length]
        return sorted(on_way, key=lambda rung: rung.length)

    def best(self, ids: Sequence[int], limit: int, keep: int, live: Sequence[Layer], held: int) -> Rung | None:
        """The checkpoint from which most of a prompt can be kept.

        Args:
            ids: The prompt.
            limit: Keep at most so many tokens.
            keep: K that the prompt asks for.
            live: The live layers, from which a thin checkpoint can be completed.
            held: How many tokens of the prompt the live layers agree with.
        """
        shared = {id(rung): min(common(rung.tokens, ids), limit) for rung in self._rungs}
        longer: list[tuple[int, Sequence[Layer | None]]] = [(held, live)]
        longer += [(shared[id(rung)], rung.saved.layers) for rung in self._rungs if rung.saved.whole]
        best: Rung | None = None
        for rung in self._rungs:
            found = _reach(rung, shared[id(rung)], keep, longer)
            if found is not None and found.reach > (best.reach if best else 0):
                best = found
        return best

    def worth_saving(self, tokens: Sequence[int], budget: int) -> list[Checkpoint]:
        """Those on the way to ``tokens`` that fit a budget: the latest, those that must stay, and others as they thin.

        Args:
            tokens: Where the conversation is. A checkpoint right there tells nothing that the live layers do not.
            budget: In bytes.
        """
        way = [rung for rung in self.behind(tokens) if rung.length < len(tokens)]
        while sum(rung.nbytes for rung in way) > budget:
            sparse = self._sparsest(way[:-1], len(tokens))
            if sparse is None:
                break
            way.remove(sparse)
        return way

    def restored(self, rung: Rung) -> list[Layer]:
        """Live layers at ``rung.reach`` tokens."""
        self._touch(rung.checkpoint)
        layers = aside.restore(rung.checkpoint.saved, rung.longer)
        if not kv.trim(layers, rung.checkpoint.length - rung.reach):
            raise ValueError("the checkpoint cannot be trimmed that far")
        return layers

    def clear(self) -> None:
        self._rungs.clear()

    def _touch(self, rung: Checkpoint) -> None:
        self._clock += 1
        rung.used = self._clock

    def _thin(self, tokens: Sequence[int]) -> None:
        """Drops checkpoints until the budget holds: other branches first, then where they are densest for their age."""
        while self.nbytes > self.budget:
            way = self.behind(tokens)
            aside = [rung for rung in self._rungs if rung not in way]
            if aside:
                self._rungs.remove(min(aside, key=lambda rung: rung.used))
                continue
            sparse = self._sparsest(way, len(tokens))
            if sparse is None:
                return
            self._rungs.remove(sparse)

    def _sparsest(self, way: Sequence[Checkpoint], end: int) -> Checkpoint | None:
        """Of the checkpoints that may go, the one whose gap would be smallest for its distance from the end."""
        stay = self._must_stay(way, end)
        gaps: list[tuple[float, int]] = []
        for at, rung in enumerate(way):
            if rung not in stay:
                before = way[at - 1].length if at else 0
                after = way[at + 1].length if at + 1 < len(way) else end + 1
                gaps.append(((after - before) / (end + 1 - before), at))
        return way[min(gaps)[1]] if gaps else None

    def _must_stay(self, way: Sequence[Checkpoint], end: int) -> list[Checkpoint]:
        """The end of the system message and, once rotation begins, the last point before it."""
        stay = [rung for rung in way if rung.kind == _PROTECTED]
        early = [rung for rung in way if rung.length < self.capacity]
        return [*stay, *early[-1:]] if end >= self.capacity - 1 else stay


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common prefix."""
    n = min(len(a), len(b))
    low = 0
    # Whole blocks are compared by slices, which run in C.
    while low < n and list(a[low : low + 256]) == list(b[low : low + 256]):
        low += 256
    low = min(low, n)
    while low < n and a[low] == b[low]:
        low += 1
    return low


def _reach(
    rung: Checkpoint, shared: int, keep: int, longer: Sequence[tuple[int, Sequence[Layer | None]]]
) -> Rung | None:
    """How far a checkpoint serves a prompt that shares ``shared`` tokens with it."""
    present = [layer for layer in rung.saved.layers if layer is not None]
    if rung.saved.whole:
        back = rung.length - shared
        return Rung(shared, rung, None) if kv.can_trim(present, back) and kv.can_keep(present, keep, back) else None
    if not kv.can_keep(present, keep):
        return None
    if shared < rung.length:
        return None
    for length, layers in longer:
        if length >= rung.length and rung.saved.completed_by(layers, keep):
            return Rung(rung.length, rung, layers)
    return None
