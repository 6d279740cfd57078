"""Layers saved aside and brought back, and places to which a few tokens can be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.layers import Layer


@dataclass(frozen=True)
class Saved:
    """Layers as they were at one moment. The arrays are shared with the live layers until those are written to.

    Attributes:
        layers: The layers; None in place of one that is to be taken from a longer cache over the same tokens.
        length: Tokens read then.
        nbytes: Bytes of what is saved, counted in full although some may still be shared.
    """

    layers: tuple[Layer | None, ...]
    length: int
    nbytes: int

    @property
    def whole(self) -> bool:
        """Whether it can be restored by itself."""
        return None not in self.layers

    def completed_by(self, longer: Sequence[Layer | None], keep: int) -> bool:
        """Whether the layers that were left out can be had, with K ``keep``, from a longer cache of the same tokens."""
        pairs = zip(self.layers, longer, strict=True)
        missing = [source for layer, source in pairs if layer is None]
        if None in missing:
            return False
        parts = [(part, part.offset - self.length) for part in kv.flat(missing)]
        return all(kv.layer_can_trim(part, back) and part.can_keep(keep, back) for part, back in parts)

    @classmethod
    def of(cls, layers: Sequence[Layer | None], length: int) -> Saved:
        """What certain layers, of which nobody else knows, hold after ``length`` tokens."""
        return cls(tuple(layers), length, sum(kv.layer_bytes(layer) for layer in layers if layer is not None))


def save(layers: Sequence[Layer], length: int, thin: bool = False) -> Saved:
    """Saves layers aside without copying an array; what they put by to go back to is left out.

    Args:
        layers: The live layers.
        length: How many tokens they have read.
        thin: Leave out layers that can be had from what they become when they read on.
    """
    return Saved.of([None if thin and kv.recoverable(layer) else kv.without_past(layer) for layer in layers], length)


def restore(saved: Saved, longer: Sequence[Layer | None] | None = None) -> list[Layer]:
    """Live layers in the state that was saved, leaving ``saved`` as it is.

    Args:
        saved: What `save` returned.
        longer: Where a thinned save takes its missing layers from (`Saved.completed_by`). It is left as it is.
    """
    layers: list[Layer] = []
    for at, layer in enumerate(saved.layers):
        made = kv.copied(layer if layer is not None else (longer or ())[at], kv.alias)
        if layer is None and not kv.trim([made], (kv.offset([made]) or 0) - saved.length):
            raise ValueError("the longer cache does not go back that far")
        layers.append(made)
    return layers


@dataclass(frozen=True)
class Mark:
    """A place to go back to within a few tokens (`mark`, `rollback`)."""

    saved: Saved


def mark(layers: Sequence[Layer], length: int, ahead: int) -> Mark:
    """Marks a place that `rollback` can return to after at most ``ahead`` more tokens.

    Costs nothing for layers that can be trimmed back; a single token written to the model's own sliding window, or
    over a full ring that puts nothing by, copies that layer's buffer once.

    Args:
        layers: The live layers.
        length: How many tokens they have read.
        ahead: How many tokens may be read before `rollback`, at most 256.
    """
    kept = tuple(None if kv.room_to_read(layer) >= ahead else kv.copied(layer, kv.alias) for layer in layers)
    return Mark(Saved(kept, length, 0))


def rollback(layers: list[Layer], place: Mark, read: int, keep: int = 0) -> int:
    """Goes back to a mark, or to ``keep`` tokens behind it where every layer can.

    Args:
        layers: The live layers; changed in place.
        place: From `mark`.
        read: How many tokens were read since.
        keep: How many of them should stay.

    Returns:
        How many of them did stay: ``keep`` or 0; in the latter case the caller has the model read them again.
    """
    if kv.trim(layers, read - keep):
        return keep
    for at, layer in enumerate(place.saved.layers):
        if layer is not None:
            layers[at] = kv.copied(layer, kv.alias)
        elif not kv.trim([layers[at]], read):
            raise ValueError("more tokens were read than the mark had room for")
    return 0
