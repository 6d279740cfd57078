"""The pieces of a sampler: penalties, filters that cut the distribution, and the draw. All pure, all in the graph.

They do what the functions of the same names in ``mlx_lm.sample_utils`` do (the tests compare them), with these
differences: penalties see each row's own history and leave the raw logits untouched, XTC and the draw take their
randomness from keys instead of a global state, and nothing is compiled per option value (on a CPU with a compiler
that costs half a second for each value).
"""

from __future__ import annotations

import math

import mlx.core as mx

_BLOCK = 256


def add_bias(logits: mx.array, bias: dict[int, float]) -> mx.array:
    """Adds to the logits of given ids; shape ``(batch, vocab)``."""
    ids = mx.array(list(bias), mx.uint32)
    return logits.at[:, ids].add(mx.array(list(bias.values()), logits.dtype))


def penalize(
    logits: mx.array, history: mx.array, repetition: float = 1.0, presence: float = 0.0, frequency: float = 0.0
) -> mx.array:
    """Makes tokens of the history less likely.

    Args:
        logits: Shape ``(batch, vocab)``.
        history: Ids that count, shape ``(batch, n)``.
        repetition: Divides positive and multiplies negative logits of tokens that occur (Keskar et al. 2019,
            arXiv 1909.05858); 1 is off.
        presence: Subtracted once from every token that occurs; 0 is off.
        frequency: Subtracted for every occurrence; 0 is off.
    """
    if history.shape[-1] == 0:
        return logits
    rows = mx.arange(logits.shape[0])[:, None]
    counts = mx.zeros(logits.shape).at[rows, history].add(1.0)
    seen = counts > 0
    if repetition != 1.0:
        scaled = mx.where(logits < 0, logits * repetition, logits / repetition)
        logits = mx.where(seen, scaled, logits)
    if presence:
        logits = logits - presence * seen
    if frequency:
        logits = logits - frequency * counts
    return logits


def top_p(logits: mx.array, p: float) -> mx.array:
    """Keeps the smallest set of likeliest tokens whose mass reaches p (Holtzman et al. 2020), the rest at -inf.

    Tokens as likely as the last one kept are kept too.

    Args:
        logits: Shape ``(batch, n)``, float32.
        p: The mass, above 0 and below 1.
    """
    behind = mx.abs(logits.max(axis=-1, keepdims=True) - logits)
    # Floats from 0 up are in the order of their bits, and a CPU sorts whole numbers in 0.6 of the time.
    ranked = mx.sort(behind.view(mx.uint32), axis=-1).view(mx.float32)
    mass = mx.cumsum(mx.power(math.e, -ranked), axis=-1)
    last = (mass < p * mass[:, -1:]).sum(axis=-1, keepdims=True)
    return mx.where(behind > mx.take_along_axis(ranked, last, axis=-1), -math.inf, logits)


def min_p(logits: mx.array, p: float) -> mx.array:
    """Keeps tokens at least p times as likely as the likeliest (Nguyen et al. 2024), the rest at -inf."""
    threshold = logits.max(axis=-1, keepdims=True) + math.log(p)
    return mx.where(logits < threshold, -math.inf, logits)


def xtc(logits: mx.array, chance: mx.array, probability: float, threshold: float, protected: mx.array) -> mx.array:
    """Excludes top choices: sometimes drops all tokens above the threshold but the least likely of them.

    Args:
        logits: Shape ``(batch, n)``.
        chance: Uniform numbers in [0, 1), shape ``(batch, 1)``; the filter acts where they are below ``probability``.
        probability: How often it acts.
        threshold: Probability from which a token is a top choice.
        protected: Which tokens are never dropped, bool, shape broadcastable to ``(batch, n)``.
    """
    probabilities = mx.softmax(logits, axis=-1, precise=True)
    least = mx.where(probabilities > threshold, probabilities, math.inf).min(axis=-1, keepdims=True)
    dropped = (probabilities > least) & ~protected & (chance < probability)
    return mx.where(dropped, -math.inf, logits)


def uniforms(keys: list[mx.array], count: int) -> mx.array:
    """Independent uniform numbers in [0, 1), one row for each key, shape ``(len(keys), count)``."""
    return mx.stack([mx.random.uniform(shape=(count,), key=key) for key in keys])


def draw(logits: mx.array, noise: mx.array) -> mx.array:
    """Draws one place of each row of softmax(logits) by inverting its cumulated probabilities, uint32.

    Two levels, first a block and then a place in it, keep every probability as exact as float32 can, where one
    running sum over a large vocabulary would lose the small ones; and two numbers replace a Gumbel number for each
    token, which took longer than all the metrics.

    Args:
        logits: Shape ``(batch, n)``; -inf is never drawn.
        noise: Two uniform numbers in [0, 1) for each row, shape ``(batch, 2)``.
    """
    weights = mx.power(math.e, logits - logits.max(axis=-1, keepdims=True))
    rows, count = weights.shape
    width = min(_BLOCK, count)
    blocks = mx.pad(weights, [(0, 0), (0, -count % width)]).reshape(rows, -1, width)
    block = _pick(blocks.sum(axis=-1), noise[:, :1])
    inside = mx.take_along_axis(blocks, block[:, :, None], axis=1)[:, 0]
    return (block * width + _pick(inside, noise[:, 1:]))[:, 0]


def _pick(weights: mx.array, noise: mx.array) -> mx.array:
    """First place where the cumulated weight is above noise * total, shape ``(rows, 1)``."""
    cumulated = mx.cumsum(weights, axis=-1)
    # The factor keeps the target below the total after rounding, so that the place found always has weight.
    target = noise * (1.0 - 2.0**-22) * cumulated[:, -1:]
    return (cumulated <= target).sum(axis=-1, keepdims=True).astype(mx.uint32)
