"""The numbers of a next-token distribution, computed inside the graph of the step that samples from it.

With raw logits z (after no processor, at temperature 1, in float32), logp = z - logsumexp(z) and p = exp(logp):

    entropy      H = -sum p logp              nats      Shannon 1948
    varentropy   V =  sum p (logp + H)^2      nats^2    the variance of the surprisal (Kontoyiannis & Verdu 2013)
    surprisal    S = -logp[token]             nats

Everything here takes logits of shape ``(..., vocab)`` in any float type and returns float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import mlx.core as mx

#: Below this many nats under the likeliest token a probability is 0 in float32; it also tames masks of -inf, whose
#: p * logp would be 0 * inf.
_FLOOR = -200.0

#: Sums run over blocks of this size and then over the blocks: a float32 sum in one run over 262,144 probabilities is
#: off by 4e-4 in H and 4e-3 in V, the blocked one by 1e-6 and 1e-5.
_BLOCK = 256

_LN_2 = math.log(2.0)


class Spread(NamedTuple):
    """Of one distribution per row, each of shape ``(...)`` and float32.

    Attributes:
        entropy: H in nats.
        varentropy: V in nats².
        logsumexp: The logarithm of the normaliser of the logits.
    """

    entropy: mx.array
    varentropy: mx.array
    logsumexp: mx.array


def spread(logits: mx.array) -> Spread:
    """Entropy and varentropy of softmax(logits), shape ``(..., vocab)`` to ``(...)``.

    Exact on logits of -inf (they count as p = 0), on ties and on one-hot distributions. At least one logit of a row
    must be finite.
    """
    shifted, weights, peak = _weights(logits)
    total = _sum(weights)
    mean = _sum(weights * shifted) / total
    # logp + H = shifted - mean: the log of the normaliser cancels, so V is a plain variance in two passes.
    deviation = shifted - mean
    varentropy = _sum(weights * deviation * deviation) / total
    log_total = mx.log(total)
    entropy = mx.maximum(log_total - mean, 0.0)
    return Spread(entropy[..., 0], varentropy[..., 0], (peak + log_total)[..., 0])


def entropy(logits: mx.array) -> mx.array:
    """H of softmax(logits) in nats, shape ``(..., vocab)`` to ``(...)``."""
    shifted, weights, _ = _weights(logits)
    total = _sum(weights)
    return mx.maximum(mx.log(total) - _sum(weights * shifted) / total, 0.0)[..., 0]


def logsumexp(logits: mx.array) -> mx.array:
    """The logarithm of the normaliser of the logits, shape ``(..., vocab)`` to ``(...)``."""
    _, weights, peak = _weights(logits)
    return (peak + mx.log(_sum(weights)))[..., 0]


def logprob(logits: mx.array, ids: mx.array, logsumexp: mx.array) -> mx.array:
    """Natural-log probabilities of chosen tokens.

    Args:
        logits: Shape ``(..., vocab)``.
        ids: Token ids, shape ``(..., k)``.
        logsumexp: Of the logits, shape ``(...)``.

    Returns:
        Shape ``(..., k)``, in nats, at most 0.
    """
    return -surprisal(logits, ids, logsumexp)


def surprisal(logits: mx.array, ids: mx.array, logsumexp: mx.array) -> mx.array:
    """What chosen tokens tell, S = -logp in nats; arguments and shapes of `logprob`, at least 0."""
    chosen = mx.take_along_axis(logits, ids, axis=-1).astype(mx.float32)
    return mx.maximum(logsumexp[..., None] - chosen, 0.0)


def top(logits: mx.array, k: int) -> mx.array:
    """Ids of the k likeliest tokens, likeliest first, shape ``(..., vocab)`` to ``(..., min(k, vocab))``."""
    ids, values = likeliest(logits, k)
    return mx.take_along_axis(ids, mx.argsort(-values, axis=-1), axis=-1)


def likeliest(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """The k likeliest tokens in any order: ids and logits, shape ``(..., vocab)`` to twice ``(..., min(k, vocab))``.

    Two stages instead of a sort of the vocabulary: the k blocks with the greatest maxima hold the k greatest logits.
    """
    vocab = logits.shape[-1]
    k = min(k, vocab)
    width = _BLOCK if vocab > 16 * _BLOCK else vocab
    if vocab % width:
        logits = mx.maximum(logits, mx.finfo(logits.dtype).min)  # masked tokens stay above the padding
    blocks = _blocks(logits, width, -math.inf)
    count = blocks.shape[-2]
    if count > k:
        chosen = _greatest(blocks.max(axis=-1), k)
        candidates = mx.take_along_axis(blocks, chosen[..., None], axis=-2)
        ids = (chosen[..., None] * width + mx.arange(width, dtype=chosen.dtype)).flatten(-2)
        candidates = candidates.flatten(-2)
    else:
        candidates = blocks.flatten(-2)
        ids = mx.broadcast_to(mx.arange(count * width, dtype=mx.uint32), candidates.shape)
    places = _greatest(candidates, k)
    return mx.take_along_axis(ids, places, axis=-1), mx.take_along_axis(candidates, places, axis=-1)


def bits(nats: float) -> float:
    """Entropy or surprisal in bits."""
    return nats / _LN_2


def square_bits(square_nats: float) -> float:
    """Varentropy in bits²."""
    return square_nats / _LN_2**2


def _weights(logits: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Logits under their maximum, their exponentials, and the maximum (kept as a last axis of 1)."""
    logits = logits.astype(mx.float32)
    peak = logits.max(axis=-1, keepdims=True)
    shifted = mx.maximum(logits - peak, _FLOOR)
    # On a CPU mx.power takes 0.4 of the time of mx.exp, and this is most of the cost of the metrics.
    return shifted, mx.power(math.e, shifted), peak


def _sum(values: mx.array) -> mx.array:
    """Sum over the last axis, kept as 1, in blocks."""
    width = min(_BLOCK, values.shape[-1])
    return _blocks(values, width, 0.0).sum(axis=-1).sum(axis=-1, keepdims=True)


def _blocks(values: mx.array, width: int, fill: float) -> mx.array:
    """Shape ``(..., n)`` to ``(..., ceil(n / width), width)``, padded with ``fill``."""
    missing = -values.shape[-1] % width
    if missing:
        padding = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
        values = mx.pad(values, padding, constant_values=fill)
    return values.reshape(*values.shape[:-1], -1, width)


def _greatest(values: mx.array, k: int) -> mx.array:
    """Places of the k greatest values of the last axis, in any order."""
    if k >= values.shape[-1]:
        return mx.broadcast_to(mx.arange(values.shape[-1], dtype=mx.uint32), values.shape)
    return mx.argpartition(values, kth=-k, axis=-1)[..., -k:]
