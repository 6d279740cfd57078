"""Looks at attention: statistics of where the token being decoded looked, for most mlx-lm families.

mlx-lm's models call ``scaled_dot_product_attention`` by the name that their module imports from
``mlx_lm.models.base``. A `Probe` puts its own function in place of that name for the time of one model call, so a
model that is not watched runs exactly the code it always ran. This is the only module that relies on that.

The fused kernels never hand out their scores, so they are computed again for the last query alone: in float32, over
valid keys only. For one layer with A[h, k] the attention of head h to key k and s[h, k] its score before softmax
(scaled, additive masks and biases included):

    entropy       -sum_k A ln A for each head, in nats
    varentropy    variance over heads of those entropies, in nats^2
    agreement     mean over heads of 1/2 sum_k |A - mean over heads of A|, from 0 (all alike) to 1: the total variation
                  distance, which unlike a mean over keys does not shrink as the context grows
    interaction   mean over heads and keys of |s|

Where ranks share the heads (`Across`), the means are over the heads of all ranks, two collectives for a step. Where
each has some of the layers, it sums up its own, with the weights of all positions, and `Join` makes one of these.

An attention sink (a learned logit without a key) takes its share of the mass: it counts as one more outcome in the
entropy and is no key anywhere else.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models import base

from chatapp.engine import metrics
from chatapp.engine.cache import layers
from chatapp.engine.samplers.base import AttentionScores

_NAME = "scaled_dot_product_attention"

#: How many of the most attended positions are reported.
TOP = 8

#: Means over this process's heads in, means over all heads out: the same arrays unless ranks share the heads.
Across = Callable[[Sequence[mx.array]], Sequence[mx.array]]


class AttentionReading(NamedTuple):
    """One row of a `Summary` as plain numbers; ``top`` has positions and weights."""

    entropy: float
    varentropy: float
    agreement: float
    interaction: float
    layers: list[float]
    top: list[tuple[int, float]]


#: Each rank's readings of so many rows, of its own layers (none, where it has no attention layer), in; readings of all
#: layers out.
Join = Callable[[Sequence[AttentionReading], int], list[AttentionReading]]


class LayerAttention(NamedTuple):
    """Attention of the last query in one layer; all float32.

    Attributes:
        weights: A, shape ``(batch, heads, keys)``; 0 at masked keys.
        scores: s, shape ``(batch, heads, keys)``; 0 at masked keys.
        valid: Which keys are, bool, shape broadcastable to ``(batch, heads, keys)``.
        sink: The attention sink's share, shape ``(batch, heads)``; None where there is none.
        positions: Absolute position of each key in the token sequence; None where the cache does not tell.
    """

    weights: mx.array
    scores: mx.array
    valid: mx.array
    sink: mx.array | None
    positions: list[int] | None

    def entropies(self) -> mx.array:
        """Of each head, in nats, shape ``(batch, heads)``."""
        total = _surprise(self.weights).sum(axis=-1)
        return total if self.sink is None else total + _surprise(self.sink)

    def distance(self, mean: mx.array) -> mx.array:
        """Mean total variation distance of the heads from ``mean``, shape ``(batch, keys)``; shape ``(batch,)``."""
        return 0.5 * mx.abs(self.weights - mean[:, None, :]).sum(axis=-1).mean(axis=-1)

    def interaction(self) -> mx.array:
        """Shape ``(batch,)``."""
        count = mx.broadcast_to(self.valid, self.scores.shape).sum(axis=(1, 2))
        return mx.abs(self.scores).sum(axis=(1, 2)) / count


class LayerStatistics(NamedTuple):
    """One layer's statistics over its heads, each of shape ``(batch,)``; ``weights`` of shape ``(batch, keys)``."""

    entropy: mx.array
    varentropy: mx.array
    agreement: mx.array
    interaction: mx.array
    weights: mx.array


class Summary(NamedTuple):
    """Statistics of one step over all its attention layers, still in the graph.

    Attributes:
        entropy, varentropy, agreement, interaction: Means over the layers, shape ``(batch,)``.
        layers: Mean entropy over the heads of each layer, in nats, shape ``(batch, layers)``.
        top_positions: The positions attended to most, highest weight first, shape ``(batch, n)``, uint32; where layers
            are still to be joined, all positions from 0.
        top_weights: Their weights averaged over heads and layers, shape ``(batch, n)``.
    """

    entropy: mx.array
    varentropy: mx.array
    agreement: mx.array
    interaction: mx.array
    layers: mx.array
    top_positions: mx.array
    top_weights: mx.array


class Probe:
    """Watches the model calls made inside `watching`; afterwards asks for what samplers or the screen want of them.

    Attributes:
        reason: Why this model's attention cannot be read, as a sentence; empty where it can.
        join: Where ranks share the layers, makes the readings of their layers those of all layers.
    """

    def __init__(self, model: nn.Module, across: Across = lambda means: means, join: Join | None = None) -> None:
        """Prepares to watch.

        Args:
            model: An mlx-lm model.
            across: Where ranks share the heads, makes their means those of all heads.
            join: Where they share the layers.
        """
        self.join = join
        self._across = across
        self._modules = _attention_modules(model)
        self.reason = "" if self._modules else _reason(model)
        self._calls: list[tuple[mx.array, Any, Any, float, Any, mx.array | None]] = []

    def forget(self) -> None:
        """Lets go of the latest call's keys: while they are held, the next write to the cache copies its buffers."""
        self._calls = []

    @contextmanager
    def watching(self) -> Generator[None]:
        """Notes the attention of every layer of the one model call made inside."""
        self._calls = []
        for module in self._modules:
            setattr(module, _NAME, self._attend)
        try:
            yield
        finally:
            for module in self._modules:
                setattr(module, _NAME, base.scaled_dot_product_attention)

    def layers(self) -> list[LayerAttention]:
        """What each attention layer did in the latest call, in order. To be asked before the next call."""
        return [attention(*call) for call in self._calls]

    def scores(self) -> AttentionScores | None:
        """The last attention layer's statistics, for samplers; None where no attention took place.

        Of a pipeline rank 0 has the last layers, and what it draws counts.
        """
        if not self._calls:
            return None
        (last,) = statistics([attention(*self._calls[-1])], self._across)
        return AttentionScores(last.entropy, last.varentropy, last.agreement, last.interaction)

    def summary(self, top: int = TOP) -> Summary | None:
        """All layers' statistics, for records; None where no attention took place."""
        seen = self.layers()
        if not seen:
            return None
        found = statistics(seen, self._across)
        means = mx.stack([layer.entropy for layer in found], axis=1)
        return Summary(
            means.mean(axis=1),
            _mean([layer.varentropy for layer in found]),
            _mean([layer.agreement for layer in found]),
            _mean([layer.interaction for layer in found]),
            means,
            *_most_attended(
                [layer.weights for layer in found], [layer.positions for layer in seen], None if self.join else top
            ),
        )

    def _attend(
        self,
        queries: mx.array,
        keys: Any,
        values: Any,
        cache: Any,
        scale: float,
        mask: Any,
        sinks: mx.array | None = None,
    ) -> mx.array:
        """Stands in for `mlx_lm.models.base.scaled_dot_product_attention`, with its signature."""
        # A new array object: mlx-lm's quantized attention scales the queries it is given in place.
        self._calls.append((queries[...], keys, cache, scale, mask, sinks))
        return base.scaled_dot_product_attention(queries, keys, values, cache, scale, mask, sinks)


def attention(
    queries: mx.array, keys: Any, cache: Any, scale: float, mask: Any, sinks: mx.array | None = None
) -> LayerAttention:
    """Attention of the last query, from what a model hands to its attention function.

    Args:
        queries: Shape ``(batch, heads, n, dim)``.
        keys: Shape ``(batch, key heads, keys, dim)``, or the packed triple of a quantized cache.
        cache: The layer's cache, or None.
        scale: Of the scores.
        mask: None, "causal", a bool array (True: visible) or one to be added to the scores, the last two axes
            ``(n, keys)``.
        sinks: One logit for each head.
    """
    if not isinstance(keys, mx.array):
        keys = mx.dequantize(*keys, group_size=cache.group_size, bits=cache.bits)
    batch, heads, _, dim = queries.shape
    key_heads, count = keys.shape[1], keys.shape[2]
    # Heads that share a key head are neighbours.
    last = queries[:, :, -1, :].astype(mx.float32).reshape(batch, key_heads, heads // key_heads, dim)
    scores = ((last * scale) @ keys.astype(mx.float32).swapaxes(-1, -2)).reshape(batch, heads, count)
    scores, valid = _masked(scores, mask)

    logits = mx.where(valid, scores, -math.inf)
    if sinks is None:
        weights, sink = mx.softmax(logits, axis=-1, precise=True), None
    else:
        sink_logit = mx.broadcast_to(sinks.astype(mx.float32)[None, :, None], (batch, heads, 1))
        shares = mx.softmax(mx.concatenate([logits, sink_logit], axis=-1), axis=-1, precise=True)
        weights, sink = shares[..., :-1], shares[..., -1]
    places = layers.positions(cache) if cache is not None else None
    if places is not None and len(places) != count:
        places = None
    return LayerAttention(weights, mx.where(valid, scores, 0.0), valid, sink, places)


def statistics(seen: Sequence[LayerAttention], across: Across) -> list[LayerStatistics]:
    """What the heads of each layer do on the whole, the heads of other ranks included."""
    entropies = [layer.entropies() for layer in seen]
    count = len(seen)
    first = across(
        [
            *(heads.mean(axis=-1) for heads in entropies),
            *(layer.interaction() for layer in seen),
            *(layer.weights.mean(axis=1) for layer in seen),
        ]
    )
    means, interactions, weights = first[:count], first[count : 2 * count], first[2 * count :]
    second = across(
        [
            *(mx.square(heads - mean[:, None]).mean(axis=-1) for heads, mean in zip(entropies, means, strict=True)),
            *(layer.distance(mean) for layer, mean in zip(seen, weights, strict=True)),
        ]
    )
    return [
        LayerStatistics(*row) for row in zip(means, second[:count], second[count:], interactions, weights, strict=True)
    ]


def _masked(scores: mx.array, mask: Any) -> tuple[mx.array, mx.array]:
    """Scores with an additive mask added, and which keys the last query may see."""
    if mask is None or isinstance(mask, str):  # "causal": the last query sees every key
        return scores, mx.ones((1, 1, scores.shape[-1]), mx.bool_)
    row = mask[..., -1, :]
    row = row.reshape((1,) * (3 - row.ndim) + row.shape)
    if row.dtype == mx.bool_:
        return scores, row
    # Models that add their own scores (MLA's rotary part) mark masked keys by the lowest number of the type.
    visible = row > mx.finfo(row.dtype).min / 2
    return scores + mx.where(visible, row, 0).astype(mx.float32), visible


def _most_attended(
    weights: Sequence[mx.array], positions: Sequence[list[int] | None], top: int | None
) -> tuple[mx.array, mx.array]:
    """Positions with the highest weight, averaged over the layers that can name their positions; None: all of them."""
    placed = [(mean, places) for mean, places in zip(weights, positions, strict=True) if places]
    batch = weights[0].shape[0]
    if not placed:
        return mx.zeros((batch, 0), mx.uint32), mx.zeros((batch, 0))
    length = 1 + max(max(places) for _, places in placed)
    total = mx.zeros((batch, length))
    previous: list[int] | None = None
    columns = mx.array([])
    for mean, places in placed:
        if places != previous:  # layers of one kind share their positions
            previous = places
            columns = mx.array(previous)
        total = total.at[:, columns].add(mean)
    total = total / len(placed)
    if top is None:
        return mx.broadcast_to(mx.arange(length, dtype=mx.uint32), total.shape), total
    best = metrics.top(total, top)
    return best, mx.take_along_axis(total, best, axis=-1)


def _surprise(shares: mx.array) -> mx.array:
    """-p ln p, 0 where p is 0."""
    return -shares * mx.log(mx.where(shares > 0, shares, 1.0))


def _mean(values: list[mx.array]) -> mx.array:
    return mx.stack(values).mean(axis=0)


def _attention_modules(model: nn.Module) -> list[ModuleType]:
    """Modules of mlx-lm that define a part of this model and call the attention function by its imported name."""
    names = {kind.__module__ for part in model.modules() for kind in type(part).__mro__}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules and name != base.__name__]
    return [module for module in modules if getattr(module, _NAME, None) is base.scaled_dot_product_attention]


def _reason(model: nn.Module) -> str:
    family = type(model).__module__.rpartition(".")[2]
    return (
        f"Attention of {family} models cannot be shown: they have no attention layers, or compute attention without "
        "mlx-lm's common function."
    )
