"""mlx-lm's rotary embeddings, at any offset and for one token or many, against the float64 ones of `rotary`."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.rope_utils import initialize_rope

from tests.families.rotary import frequencies, rotate

DIMS, BASE, TRAINED = 16, 10000.0, 256

SCALINGS: dict[str, dict[str, Any]] = {
    "default": {"type": "default"},
    "linear": {"type": "linear", "factor": 4.0},
    "dynamic": {"type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "type": "longrope",
        "original_max_position_embeddings": 64,
        "short_factor": [1.0] * (DIMS // 2),
        "long_factor": [1.0 + 0.7 * i for i in range(DIMS // 2)],
    },
    "yarn": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "deepseek_yarn": {
        "type": "deepseek_yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.7,
    },
}


def _difference(kind: str, offset: int, length: int, traditional: bool) -> float:
    scaling = SCALINGS[kind]
    rope = initialize_rope(DIMS, BASE, traditional, scaling, TRAINED)
    x = np.random.default_rng(offset + length).normal(size=(1, 2, length, DIMS + 4))
    angles, attention = frequencies(kind, DIMS, BASE, scaling, TRAINED, offset + length)
    expected = rotate(x, angles, offset, attention, traditional)
    return float(np.abs(np.array(rope(mx.array(x.astype(np.float32)), offset=offset)) - expected).max())


@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("offset", [0, 1, 63, 64, 255, 1000])
@pytest.mark.parametrize("kind", SCALINGS)
def test_rotation_equals_the_independent_one(kind: str, offset: int, length: int) -> None:
    # An angle of 1000 rad in float32 is good to 6e-5; the embeddings are at most about 4.
    assert _difference(kind, offset, length, traditional=False) < 5e-4


@pytest.mark.parametrize("kind", [kind for kind in SCALINGS if kind != "longrope"])
def test_neighbouring_pairs_too(kind: str) -> None:
    assert _difference(kind, 100, 5, traditional=True) < 5e-4


@pytest.mark.parametrize("kind", [kind for kind in SCALINGS if kind != "dynamic"])
def test_positions_are_absolute_however_the_tokens_come(kind: str) -> None:
    """One call over a sequence and calls over its parts turn alike: chunks do not matter."""
    rope = initialize_rope(DIMS, BASE, False, SCALINGS[kind], TRAINED)
    x = mx.random.normal((1, 1, 300, DIMS), key=mx.random.key(0))
    whole = rope(x)
    parts = mx.concatenate(
        [rope(x[..., :250, :]), rope(x[..., 250:251, :], offset=250), rope(x[..., 251:, :], offset=251)], axis=2
    )
    assert mx.allclose(whole, parts, atol=1e-4).item()


def test_dynamic_depends_on_when_a_key_was_read() -> None:
    """Beyond the trained length, "dynamic" turns a key by the length seen when it was cached: the known weakness of
    the method with a KV cache. docs/families.md says what follows from it."""
    rope = initialize_rope(DIMS, BASE, False, SCALINGS["dynamic"], TRAINED)
    x = mx.random.normal((1, 1, 300, DIMS), key=mx.random.key(0))
    one_call = rope(x)[..., :200, :]
    own_call = rope(x[..., :200, :])
    assert not mx.allclose(one_call, own_call, atol=1e-2).item()
    within = rope(x[..., :TRAINED, :])[..., :200, :]
    assert mx.allclose(within, own_call, atol=1e-5).item()
