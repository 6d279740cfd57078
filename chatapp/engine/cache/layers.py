"""The list of layer caches that a model is called with: made, rewound, saved aside, multiplied.

This module and `rotating` are the only ones that rely on the inside of mlx-lm's caches. What they rely on is named by
the tests in ``tests/cache/test_assumptions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import cache as stock

from chatapp.engine.cache.rotating import QuantizedRotatingLayer, RotatingLayer, nbytes
from chatapp.errors import ChatappError

#: One layer's cache: ours, or the model's own kind.
Layer = Any

#: Caches that hold every token, which ours take the place of.
_UNBOUNDED = (stock.KVCache, stock.ConcatenateKVCache)

#: Errors by which mlx and mlx-lm refuse keys and values that are packed.
_REFUSALS = (ValueError, TypeError, AttributeError, IndexError)


def make(model: nn.Module, max_size: int, keep: int, kv_bits: int | None = None) -> list[Layer]:
    """Makes an empty cache for a model, with C and K in force wherever it attends to all earlier tokens.

    The model's own sliding-window and recurrent caches are left as they are.

    Args:
        model: An mlx-lm model.
        max_size: C, in tokens.
        keep: K, in tokens, below C.
        kv_bits: Quantize keys and values to so many bits.
    """

    def bounded(layer: Layer) -> Layer:
        if isinstance(layer, stock.CacheList):
            return stock.CacheList(*(bounded(part) for part in layer.caches))
        if not isinstance(layer, _UNBOUNDED):
            return layer
        if kv_bits is None:
            return RotatingLayer(max_size, keep)
        return QuantizedRotatingLayer(max_size, keep, kv_bits)

    return [bounded(layer) for layer in stock.make_prompt_cache(model)]


def check_quantizable(model: nn.Module, kv_bits: int) -> None:
    """Runs two tokens through a quantized cache, so that a model that cannot have one is refused at the start.

    Raises:
        ChatappError: It cannot; with the reason.
    """
    layers = make(model, 16, 4, kv_bits)
    if not any(isinstance(part, QuantizedRotatingLayer) for part in flat(layers)):
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


def flat(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Every single cache, those inside a `CacheList` too."""
    for layer in layers:
        if isinstance(layer, stock.CacheList):
            yield from flat(layer.caches)
        else:
            yield layer


def offset(layers: Sequence[Layer]) -> int | None:
    """How many tokens the layers have read; None where no layer counts (purely recurrent models)."""
    for layer in flat(layers):
        if hasattr(layer, "offset"):
            return int(layer.offset)
    return None


def size_in_bytes(layers: Sequence[Layer]) -> int:
    """Bytes of all buffers, unused room included."""
    return sum(layer.nbytes for layer in flat(layers) if not layer.empty())


def arrays(layers: Sequence[Layer]) -> list[mx.array]:
    """Every array of the layers, for `mx.eval`."""
    found: list[mx.array] = []

    def collect(value: mx.array) -> mx.array:
        found.append(value)
        return value

    for layer in layers:
        _copy(layer, collect)
    return found


def trimmable(layers: Sequence[Layer]) -> int:
    """How many of the last tokens can be forgotten such that the next answer is exact."""
    return min((_trimmable(layer) for layer in flat(layers)), default=0)


def trim(layers: Sequence[Layer], n: int) -> bool:
    """Forgets the last ``n`` tokens in every layer, or does nothing at all.

    Returns:
        Whether it was done.

    Raises:
        ChatappError: A layer that said it could trim did not: the cache is unusable.
    """
    if n == 0:
        return True
    if n > trimmable(layers):
        return False
    if any(layer.trim(n) != n for layer in flat(layers)):
        raise ChatappError("The model's cache did not go back as far as it said. Send the message again.")
    return True


def bounded(layers: Sequence[Layer]) -> bool:
    """Whether some layer drops tokens once C are held."""
    return any(isinstance(layer, RotatingLayer) for layer in flat(layers))


def complete(layers: Sequence[Layer]) -> bool:
    """Whether every layer of ours still holds every token it has read (always true without such layers)."""
    return all(layer.dropped == 0 for layer in flat(layers) if isinstance(layer, RotatingLayer))


def prefix_of_longer(layers: Sequence[Layer]) -> bool:
    """Whether these layers can be had from any longer cache over the same tokens by trimming."""
    return all(_holds_all(layer) for layer in layers)


def can_keep(layers: Sequence[Layer], keep: int) -> bool:
    """Whether `set_keep` would succeed."""
    return all(layer.keep == keep or layer.dropped == 0 for layer in flat(layers) if isinstance(layer, RotatingLayer))


def set_keep(layers: Sequence[Layer], keep: int) -> bool:
    """Changes K in all layers of ours, or in none.

    Returns:
        Whether ``keep`` is in force now.
    """
    if not can_keep(layers, keep):
        return False
    for layer in flat(layers):
        if isinstance(layer, RotatingLayer):
            layer.set_keep(keep)
    return True


def positions(layer: Layer) -> list[int] | None:
    """The absolute position of each column that a layer's attention sees.

    Returns:
        None for a cache without such columns (recurrent), or one whose order is not known.
    """
    if isinstance(layer, RotatingLayer):
        return layer.positions()
    if isinstance(layer, stock.RotatingKVCache):
        if layer.keep or layer.keys is None:
            return None
        held = min(layer.offset, layer.keys.shape[2])
        first = layer.offset - held
        turned = layer._idx if layer._idx < held else 0  # pyright: ignore[reportPrivateUsage]
        recent = list(range(first, layer.offset))
        return [*recent[held - turned :], *recent[: held - turned]]
    if isinstance(layer, _UNBOUNDED):
        return list(range(layer.offset))
    return None


# --- saved aside ---------------------------------------------------------------------------------------------------


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

    @classmethod
    def of(cls, layers: Sequence[Layer | None], length: int) -> Saved:
        """What certain layers, of which nobody else knows, hold after ``length`` tokens."""
        return cls(tuple(layers), length, sum(_nbytes(layer) for layer in layers if layer is not None))


def save(layers: Sequence[Layer], length: int, thin: bool = False) -> Saved:
    """Saves layers aside without copying an array.

    Args:
        layers: The live layers.
        length: How many tokens they have read.
        thin: Leave out layers that hold every token: their state is a prefix of any longer one.
    """
    return Saved.of([None if thin and _holds_all(layer) else _copy(layer, _alias) for layer in layers], length)


def restore(saved: Saved, longer: Sequence[Layer | None] | None = None) -> list[Layer]:
    """Live layers in the state that was saved, leaving ``saved`` as it is.

    Args:
        saved: What `save` returned.
        longer: Where a thinned save takes its missing layers from: a cache over at least ``saved.length`` tokens
            which agree up to there. It is left as it is.
    """
    layers: list[Layer] = []
    for at, layer in enumerate(saved.layers):
        source = layer if layer is not None else (longer or ())[at]
        made = _copy(source, _alias)
        if layer is None and not trim([made], offset([made]) - saved.length):  # pyright: ignore[reportOptionalOperand]
            raise ValueError("the longer cache does not hold every token")
        layers.append(made)
    return layers


@dataclass(frozen=True)
class Mark:
    """A place to go back to within a few tokens (`mark`, `rollback`)."""

    saved: Saved


def mark(layers: Sequence[Layer], length: int, ahead: int) -> Mark:
    """Marks a place that `rollback` can return to after at most ``ahead`` more tokens.

    Costs nothing for layers that can be trimmed back and for chunks; single tokens written over a full ring, or to
    the model's own sliding window, copy that layer's buffer once.

    Args:
        layers: The live layers.
        length: How many tokens they have read.
        ahead: How many tokens may be read before `rollback`.
    """
    kept = tuple(None if _room(layer) >= ahead else _copy(layer, _alias) for layer in layers)
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
    if trim(layers, read - keep):
        return keep
    for at, layer in enumerate(place.saved.layers):
        if layer is not None:
            layers[at] = _copy(layer, _alias)
        elif not trim([layers[at]], read):
            raise ValueError("more tokens were read than the mark had room for")
    return 0


# --- several sequences ---------------------------------------------------------------------------------------------


def expand(layers: Sequence[Layer], n: int) -> list[Layer]:
    """A cache for ``n`` sequences that begin with the tokens of this one. ``layers`` are left as they are."""
    return [_copy(layer, lambda array: mx.repeat(array, n, axis=0) if array.ndim else array) for layer in layers]


def select(layers: Sequence[Layer], rows: int | Sequence[int]) -> list[Layer]:
    """The cache of one sequence, or of some, out of several. ``layers`` are left as they are.

    Args:
        layers: A cache with a batch.
        rows: Which; one number gives a batch of one.
    """
    index = mx.array([rows] if isinstance(rows, int) else list(rows))
    return [_copy(layer, lambda array: array[index] if array.ndim else array) for layer in layers]


# --- as mlx-lm saves them ------------------------------------------------------------------------------------------


def savable(layers: Sequence[Layer]) -> bool:
    """Whether mlx-lm can write these layers to a file and read them again."""
    return all(isinstance(layer, RotatingLayer) or hasattr(stock, type(layer).__name__) for layer in flat(layers))


def to_stock(layers: Sequence[Layer]) -> list[Layer]:
    """Layers as mlx-lm's own classes, for its ``save_prompt_cache``."""

    def converted(layer: Layer) -> Layer:
        if isinstance(layer, stock.CacheList):
            return stock.CacheList(*(converted(part) for part in layer.caches))
        if not isinstance(layer, RotatingLayer):
            return layer
        twin = _copy(layer, _alias)
        keys, values = twin.ordered()
        if isinstance(twin, QuantizedRotatingLayer):
            state = (keys, values, twin.offset, twin.group_size, twin.bits)
            return stock.QuantizedKVCache.from_state(state)
        return stock.RotatingKVCache.from_state((keys, values, twin.offset, twin.keep, twin.max_size, twin.held))

    return [converted(layer) for layer in layers]


def from_stock(template: Sequence[Layer], loaded: Sequence[Layer]) -> list[Layer]:
    """The layers that `to_stock` was given.

    Args:
        template: As `make` makes them for the same model, C, K and bits; left as they are.
        loaded: As mlx-lm's ``load_prompt_cache`` returns them.

    Raises:
        ValueError: They are not of the same kinds.
    """

    def converted(like: Layer, layer: Layer) -> Layer:
        if isinstance(like, stock.CacheList) and isinstance(layer, stock.CacheList):
            parts = zip(like.caches, layer.caches, strict=True)
            return stock.CacheList(*(converted(*pair) for pair in parts))
        if not isinstance(like, RotatingLayer):
            if type(like) is not type(layer):
                raise ValueError(f"a {type(layer).__name__} in place of a {type(like).__name__}")
            return layer
        quantized = isinstance(like, QuantizedRotatingLayer)
        wanted: type[Any] = stock.QuantizedKVCache if quantized else stock.RotatingKVCache
        if type(layer) is not wanted:
            raise ValueError(f"a {type(layer).__name__} in place of a {wanted.__name__}")
        made = _copy(like, _alias)
        if quantized:
            made.group_size = layer.group_size
        made.fill(layer.keys, layer.values, layer.offset)
        return made

    return [converted(like, layer) for like, layer in zip(template, loaded, strict=True)]


# --- inside --------------------------------------------------------------------------------------------------------


def _alias(array: mx.array) -> mx.array:
    """Another object for the same array: a slice assignment changes an array under every holder of its object."""
    return array[...]


def _copy(layer: Layer, each: Any) -> Layer:
    """A cache of the same class and state, with every array passed through ``each``."""
    twin = object.__new__(type(layer))
    twin.__dict__.update({name: _map(value, each) for name, value in vars(layer).items()})
    return twin


def _map(value: Any, each: Any) -> Any:
    if isinstance(value, mx.array):
        return each(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, each) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, each) for key, item in value.items()}
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    return _copy(value, each)


def _nbytes(layer: Layer) -> int:
    return sum(nbytes(list(vars(part).values())) for part in flat([layer]))


def _holds_all(layer: Layer) -> bool:
    return all(isinstance(part, RotatingLayer) and part.dropped == 0 for part in flat([layer]))


def _trimmable(layer: Layer) -> int:
    """How many tokens one cache can forget such that what remains is what it was."""
    if isinstance(layer, RotatingLayer):
        return layer.trimmable
    if isinstance(layer, stock.ChunkedKVCache) and layer.start_position:
        return 0
    return layer.offset if layer.is_trimmable() and hasattr(layer, "offset") else 0


def _room(layer: Layer) -> int:
    """How many tokens can be read and then be trimmed again."""
    rooms: list[int] = []
    for part in flat([layer]):
        if isinstance(part, RotatingLayer):
            rooms.append(part.max_size - part.offset if part.dropped == 0 else 0)
        elif isinstance(part, stock.RotatingKVCache):
            rooms.append(part.max_size - 1 - part.offset)
        else:
            rooms.append(2**62 if isinstance(part, _UNBOUNDED) else 0)
    return min(rooms, default=0)
