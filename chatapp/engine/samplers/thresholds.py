"""Which entropy is high and which is low: fixed by options, or learned from the model's own stream.

What is learned is a running percentile: every drawn token's entropy and varentropy are counted in a histogram, and the
threshold is read off it. Early in a reply there is little to go by, so the percentile is mixed with a prior, as if
that had been seen `PRIOR_TOKENS` times. All of it is arithmetic on small arrays in the step's graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

#: How many tokens of the stream weigh as much as the prior.
PRIOR_TOKENS = 32

#: Bins of the histograms. Their edges grow with the square, because most tokens have little entropy.
_BINS = 96

#: Where the last bins end: ln 262,144 in nats, and about the greatest varentropy there is, in nats².
_ENDS = (12.5, 40.0)


@dataclass(frozen=True)
class Levels:
    """Thresholds of a model.

    Attributes:
        fixed: (low H, high H, low V, high V) in nats and nats²; None where it is learned.
        prior: The same, all given: what holds before anything is learned.
        percentiles: The shares of tokens below the low and the high threshold.
    """

    fixed: tuple[float | None, float | None, float | None, float | None] = (None, None, None, None)
    prior: tuple[float, float, float, float] = (0.6, 3.0, 1.5, 5.0)
    percentiles: tuple[float, float] = (0.5, 0.9)

    @property
    def learned(self) -> bool:
        """Whether anything is learned."""
        return None in self.fixed


def empty(rows: int) -> mx.array:
    """Histograms of H and V for each row, shape ``(rows, 2, bins)``."""
    return mx.zeros((rows, 2, _BINS))


def count(histograms: mx.array, entropy: mx.array, varentropy: mx.array) -> mx.array:
    """Histograms with one more token in each row; the two numbers have shape ``(rows,)``."""
    seen = mx.stack([entropy, varentropy], axis=1) / mx.array(_ENDS)
    place = mx.minimum(mx.sqrt(mx.maximum(seen, 0.0)) * _BINS, _BINS - 1).astype(mx.int32)
    return histograms + (mx.arange(_BINS) == place[..., None])


def current(levels: Levels, histograms: mx.array) -> mx.array:
    """Thresholds in force, shape ``(rows, 2, 2)``: for H and V, the low and the high one."""
    prior = mx.array(levels.prior).reshape(2, 2)
    if not levels.learned:
        fixed = [level for level in levels.fixed if level is not None]
        return mx.broadcast_to(mx.array(fixed).reshape(2, 2), (histograms.shape[0], 2, 2))
    seen = histograms.sum(axis=-1, keepdims=True)
    low, high = (_percentile(histograms, share) for share in levels.percentiles)
    weight = seen / (seen + PRIOR_TOKENS)
    learned = weight * mx.concatenate([low, high], axis=-1) + (1 - weight) * prior
    given = mx.array([level is not None for level in levels.fixed]).reshape(2, 2)
    values = mx.array([level or 0.0 for level in levels.fixed]).reshape(2, 2)
    return mx.where(given, values, learned)


def _percentile(histograms: mx.array, share: float) -> mx.array:
    """The value below which a share of the counts lies, linear within a bin, shape ``(rows, 2, 1)``."""
    below = mx.cumsum(histograms, axis=-1)
    target = share * below[..., -1:]
    place = mx.minimum((below < target).sum(axis=-1, keepdims=True), _BINS - 1)
    inside = mx.take_along_axis(histograms, place, axis=-1)
    before = mx.take_along_axis(below, place, axis=-1) - inside
    part = mx.where(inside > 0, (target - before) / mx.maximum(inside, 1.0), 0.0)
    return mx.square((place + part) / _BINS) * mx.array(_ENDS)[:, None]
