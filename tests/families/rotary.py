"""Rotary position embeddings in float64 NumPy, from their papers: what mlx-lm's are checked against.

A pair of features at position p turns by the angle p · θ_i. `frequencies` gives the θ_i and the factor on the
embeddings ("attention factor"), `rotate` turns.

    default   θ_i = base^(-2i/d)                                                Su et al. 2021, arXiv:2104.09864
    linear    θ_i / factor (position interpolation)                             Chen et al. 2023, arXiv:2306.15595
    dynamic   base grows with the length beyond the trained one (NTK-aware)     bloc97, emozilla 2023
    yarn      interpolated, extrapolated, and a ramp between; attention factor  Peng et al. 2023, arXiv:2309.00071
    llama3    by wavelength: kept, divided by the factor, and a blend between   Llama 3.1's published rope scaling
    longrope  θ_i divided by a factor of its own per pair                       Ding et al. 2024, arXiv:2402.13753
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def frequencies(
    kind: str, dims: int, base: float, scaling: dict[str, Any], trained: int, length: int
) -> tuple[Floats, float]:
    """Angles per position for each pair, shape ``(dims / 2,)``, and the factor on the embeddings.

    Args:
        kind: Name of the RoPE kind, as in ``rope_scaling["type"]``.
        dims: How many features are turned.
        base: θ's base.
        scaling: The model's ``rope_scaling``.
        trained: ``max_position_embeddings``.
        length: Positions seen so far; only ``dynamic`` depends on it.
    """
    exponents = np.arange(0, dims, 2, dtype=np.float64) / dims
    plain = base**-exponents
    if kind == "default":
        return plain, 1.0
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "dynamic":
        factor = scaling["factor"]
        stretch = factor * max(length, trained) / trained - (factor - 1)
        return (base * stretch ** (dims / (dims - 2))) ** -exponents, 1.0
    if kind in ("yarn", "deepseek_yarn"):
        return _yarn(plain, dims, base, scaling)
    if kind == "llama3":
        return _llama3(plain, scaling), 1.0
    if kind == "longrope":
        original = scaling["original_max_position_embeddings"]
        extension = trained / original
        attention = 1.0 if extension <= 1 else math.sqrt(1 + math.log(extension) / math.log(original))
        return plain / np.asarray(scaling["long_factor"], dtype=np.float64), attention
    raise ValueError(kind)


def rotate(x: Floats, angles: Floats, offset: int, attention: float, traditional: bool) -> Floats:
    """Turns the first ``2 * len(angles)`` features of x, shape ``(..., length, features)``.

    Args:
        x: Queries or keys.
        angles: θ for each pair.
        offset: Position of the first row.
        attention: Factor on the turned features.
        traditional: A pair is two neighbours, else a feature and the one half the width away.
    """
    dims = 2 * len(angles)
    theta = (offset + np.arange(x.shape[-2]))[:, None] * angles
    turned = x[..., :dims] * attention
    pair = (np.s_[..., 0::2], np.s_[..., 1::2]) if traditional else (np.s_[..., : dims // 2], np.s_[..., dims // 2 :])
    first, second = turned[pair[0]], turned[pair[1]]
    out = x.copy()
    out[..., :dims][pair[0]] = first * np.cos(theta) - second * np.sin(theta)
    out[..., :dims][pair[1]] = first * np.sin(theta) + second * np.cos(theta)
    return out


def _yarn(plain: Floats, dims: int, base: float, scaling: dict[str, Any]) -> tuple[Floats, float]:
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]

    def pair_that_turns(times: float) -> float:
        """Index of the pair that makes so many turns within the original context."""
        return dims * math.log(original / (times * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_that_turns(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(pair_that_turns(scaling.get("beta_slow", 1))), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    angles = plain / factor * ramp + plain * (1 - ramp)

    def temperature(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    return angles, temperature(scaling.get("mscale", 1)) / temperature(scaling.get("mscale_all_dim", 0))


def _llama3(plain: Floats, scaling: dict[str, Any]) -> Floats:
    factor, original = scaling["factor"], scaling["original_max_position_embeddings"]
    slow, fast = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = original * plain / (2 * math.pi)
    blend = np.clip((turns - slow) / (fast - slow), 0, 1)
    return (1 - blend) * plain / factor + blend * plain
