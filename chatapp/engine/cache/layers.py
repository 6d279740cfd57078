"""The list of layer caches that a model is called with: made, rewound, saved aside, multiplied.

This module and `rotating` are the only ones that rely on the inside of mlx-lm's caches. What they rely on is named by
the tests in ``tests/cache/test_assumptions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import cache as stock

from chatapp.engine.cache import past as archive
from chatapp.engine.cache.past import Columns, Past, Segment
from chatapp.engine.cache.quantized import QuantizedRotatingLayer
from chatapp.engine.cache.rotating import BLOCK, RotatingLayer, nbytes
from chatapp.errors import ChatappError

#: One layer's cache: ours, or the model's own kind.
Layer = Any

#: Caches that hold every token, which ours take the place of.
_UNBOUNDED = (stock.KVCache, stock.ConcatenateKVCache)


def make(
    model: nn.Module, max_size: int, keep: int, kv_bits: int | None = None, spare: int | None = None
) -> list[Layer]:
    """Makes an empty cache for a model, with C and K in force wherever it attends to all earlier tokens.

    The model's own sliding-window and recurrent caches are left as they are.

    Args:
        model: An mlx-lm model.
        max_size: C, in tokens.
        keep: K, in tokens, below C.
        kv_bits: Quantize keys and values to so many bits.
        spare: Bytes of columns that are not attended to any more but put by to go back to; None: none are.
    """

    def bounded(layer: Layer) -> Layer:
        if isinstance(layer, stock.CacheList):
            return stock.CacheList(*(bounded(part) for part in layer.caches))
        if not isinstance(layer, _UNBOUNDED):
            return layer
        if kv_bits is None:
            return RotatingLayer(max_size, keep)
        return QuantizedRotatingLayer(max_size, keep, kv_bits)

    layers = [bounded(layer) for layer in stock.make_prompt_cache(model)]
    rotating = [layer for layer in flat(layers) if isinstance(layer, RotatingLayer)]
    for layer in rotating:
        layer.spare = None if spare is None else spare // len(rotating)
    return layers


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
        copied(layer, collect)
    return found


def past_bytes(layers: Sequence[Layer]) -> int:
    """Bytes of the columns that are put by to go back to."""
    rotating = (layer for layer in flat(layers) if isinstance(layer, RotatingLayer))
    return sum(segment.nbytes for layer in rotating for segment in layer.past)


def can_trim(layers: Sequence[Layer], n: int) -> bool:
    """Whether the last ``n`` tokens can be forgotten such that the next answer is exact."""
    return all(layer_can_trim(layer, n) for layer in flat(layers))


def nearest(layers: Sequence[Layer], length: int, limit: int, keep: int) -> int:
    """The last position up to ``limit`` to which `trim` can go back such that K may be ``keep`` there; 0 for none.

    Args:
        layers: The live layers.
        length: How many tokens they have read.
        limit: A position up to ``length``.
        keep: K that is wanted.
    """
    rotating = [layer for layer in flat(layers) if isinstance(layer, RotatingLayer)]
    tries = {limit}
    for layer in rotating:
        # The last one is where the first tokens are all held, so that any K can be had.
        tries |= {layer.nearest(limit), min(limit, layer.max_size - 1)}
    serve = (stop for stop in sorted(tries, reverse=True) if can_keep(layers, keep, length - stop))
    return next((stop for stop in serve if can_trim(layers, length - stop)), 0)


def trim(layers: Sequence[Layer], n: int) -> bool:
    """Forgets the last ``n`` tokens in every layer, or does nothing at all.

    Returns:
        Whether it was done.

    Raises:
        ChatappError: A layer that said it could trim did not: the cache is unusable.
    """
    if n == 0:
        return True
    if not can_trim(layers, n):
        return False
    if any(layer.trim(n) != n for layer in flat(layers)):
        raise ChatappError("The model's cache did not go back as far as it said. Send the message again.")
    return True


def inherit(layers: Sequence[Layer], others: Sequence[Layer], shared: int) -> None:
    """Takes over from other layers of the same model what they put by of the first ``shared`` tokens."""
    for layer, other in zip(flat(layers), flat(others), strict=True):
        if isinstance(layer, RotatingLayer):
            layer.inherit(other, shared)


def prefix_of_longer(layers: Sequence[Layer]) -> bool:
    """Whether these layers can be had, by trimming, from what they become when they read on."""
    return all(recoverable(layer) for layer in layers)


def can_keep(layers: Sequence[Layer], keep: int, n: int = 0) -> bool:
    """Whether `set_keep` would succeed once the last ``n`` tokens are forgotten."""
    return all(layer.can_keep(keep, n) for layer in flat(layers) if isinstance(layer, RotatingLayer))


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


# --- several sequences ---------------------------------------------------------------------------------------------


def expand(layers: Sequence[Layer], n: int) -> list[Layer]:
    """A cache for ``n`` sequences that begin with the tokens of this one. ``layers`` are left as they are.

    It puts nothing by to go back to: that is made good when one sequence is taken over (`inherit`).
    """
    batch = [copied(layer, lambda array: mx.repeat(array, n, axis=0) if array.ndim else array) for layer in layers]
    for layer in flat(batch):
        if isinstance(layer, RotatingLayer):
            layer.past, layer.spare = (), None
    return batch


def select(layers: Sequence[Layer], rows: int | Sequence[int]) -> list[Layer]:
    """The cache of one sequence, or of some, out of several. ``layers`` are left as they are.

    Args:
        layers: A cache with a batch.
        rows: Which; one number gives a batch of one.
    """
    index = mx.array([rows] if isinstance(rows, int) else list(rows))
    return [copied(layer, lambda array: array[index] if array.ndim else array) for layer in layers]


# --- as mlx-lm saves them ------------------------------------------------------------------------------------------


def savable(layers: Sequence[Layer]) -> bool:
    """Whether mlx-lm can write these layers to a file and read them again."""
    return all(isinstance(layer, RotatingLayer) or hasattr(stock, type(layer).__name__) for layer in flat(layers))


def to_stock(layers: Sequence[Layer]) -> list[Layer]:
    """Layers as mlx-lm's own classes, for its ``save_prompt_cache``; what they put by is left out (`past_to_stock`)."""

    def converted(layer: Layer) -> Layer:
        if isinstance(layer, stock.CacheList):
            return stock.CacheList(*(converted(part) for part in layer.caches))
        if not isinstance(layer, RotatingLayer):
            return layer
        twin = copied(layer, alias)
        keys, values = twin.straight()
        if isinstance(twin, QuantizedRotatingLayer):
            state = (keys, values, twin.offset, twin.group_size, twin.bits)
            return stock.QuantizedKVCache.from_state(state)
        state = (keys, values, twin.offset, twin.keep, twin.max_size, keys.shape[2])
        return stock.RotatingKVCache.from_state(state)

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
        made = copied(like, alias)
        if quantized:
            made.group_size = layer.group_size
        made.fill(layer.keys, layer.values, layer.offset)
        return made

    return [converted(like, layer) for like, layer in zip(template, loaded, strict=True)]


#: For each layer of ours, the positions of the segments that it put by: first, and one past the last.
Places = tuple[tuple[tuple[int, int], ...], ...]


def worth_saving(layers: Sequence[Layer]) -> list[Past]:
    """Of what each layer of ours put by: the columns of the first C tokens, and of the latest others half a window."""

    def chosen(layer: RotatingLayer) -> Past:
        recent = max(layer.max_size, layer.first - (layer.max_size - layer.keep) // 2)
        return archive.before(layer.past, layer.max_size) + archive.between(layer.past, recent, layer.first)

    return [chosen(layer) for layer in flat(layers) if isinstance(layer, RotatingLayer)]


def past_to_stock(pasts: Sequence[Past]) -> tuple[Places, list[Layer]]:
    """Columns that were put by, as one cache of mlx-lm's for each layer that has some."""
    places = tuple(tuple((segment.start, segment.stop) for segment in past) for past in pasts)
    return places, [_plain(*archive.joined([(part.keys, part.values) for part in past])) for past in pasts if past]


def _plain(keys: Columns, values: Columns) -> Layer:
    if isinstance(keys, mx.array):
        return stock.KVCache.from_state((keys, values, keys.shape[2]))
    return stock.QuantizedKVCache.from_state((keys, values, keys[0].shape[2], 0, 0))  # its bits are the live layer's


def past_from_stock(layers: Sequence[Layer], places: Places, loaded: Sequence[Layer]) -> None:
    """Gives layers what `past_to_stock` was given.

    Args:
        layers: Live layers.
        places: As `past_to_stock` returned them.
        loaded: Its caches, as mlx-lm's ``load_prompt_cache`` returns them.

    Raises:
        ValueError: They do not fit together.
    """
    rest = iter(loaded)
    rotating = [layer for layer in flat(layers) if isinstance(layer, RotatingLayer)]
    for layer, own in zip(rotating, places, strict=True):
        if not own:
            continue
        source, column, past = next(rest), 0, []
        keys, values = (tuple(part) if isinstance(part, list) else part for part in (source.keys, source.values))
        for start, stop in own:
            past.append(Segment.of(keys, values, column, start, stop))
            column += stop - start
        layer.past = tuple(past)
    if next(rest, None) is not None:
        raise ValueError("more columns than places for them")


# --- one layer --------------------------------------------------------------------------------------------------------


def alias(array: mx.array) -> mx.array:
    """Another object for the same array: a slice assignment changes an array under every holder of its object."""
    return array[...]


def copied(layer: Layer, each: Any) -> Layer:
    """A cache of the same class and state, with every array passed through ``each``."""
    twin = object.__new__(type(layer))
    twin.__dict__.update({name: _map(value, each) for name, value in vars(layer).items()})
    return twin


def _map(value: Any, each: Any) -> Any:
    if isinstance(value, mx.array):
        return each(value)
    if isinstance(value, Segment):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, each) for item in value)
    if isinstance(value, dict):
        return {key: _map(item, each) for key, item in value.items()}
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    return copied(value, each)


def layer_bytes(layer: Layer) -> int:
    return sum(nbytes(list(vars(part).values())) for part in flat([layer]))


def without_past(layer: Layer) -> Layer:
    twin = copied(layer, alias)
    for part in flat([twin]):
        if isinstance(part, RotatingLayer):
            part.past = ()
    return twin


def recoverable(layer: Layer) -> bool:
    """Whether a layer drops nothing, or puts by what it drops."""
    parts = list(flat([layer]))
    return all(isinstance(part, RotatingLayer) and (part.dropped == 0 or part.spare is not None) for part in parts)


def layer_can_trim(layer: Layer, n: int) -> bool:
    """Whether one cache can forget ``n`` tokens such that what remains is what it was."""
    if n <= 0:
        return n == 0
    if isinstance(layer, RotatingLayer):
        return layer.can_trim(n)
    if isinstance(layer, stock.ChunkedKVCache) and layer.start_position:
        return False
    return bool(layer.is_trimmable()) and n <= getattr(layer, "offset", 0)


def room_to_read(layer: Layer) -> int:
    """How many tokens can be read and then be trimmed again."""
    rooms: list[int] = []
    for part in flat([layer]):
        if isinstance(part, RotatingLayer):
            room = part.max_size - part.offset if part.dropped == 0 else 0
            rooms.append(room if part.spare is None else BLOCK)
        elif isinstance(part, stock.RotatingKVCache):
            rooms.append(part.max_size - 1 - part.offset)
        else:
            rooms.append(2**62 if isinstance(part, _UNBOUNDED) else 0)
    return min(rooms, default=0)
