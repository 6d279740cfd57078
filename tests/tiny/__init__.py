"""Tiny models with random weights: every kind of layer cache, in milliseconds.

`make` builds an mlx-lm model of a family from a few small numbers, in float32 and seeded, with weights large enough
that its logits differ clearly from token to token and from context to context.
"""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map_with_path

from tests.tiny.configs import CONFIGS

#: Families in which every layer attends to all earlier tokens.
FULL_ATTENTION = ("llama", "phi3", "deepseek_v2")
#: Families with sliding-window layers beside full ones.
SLIDING = ("gemma3_text", "gpt_oss")
#: Families with recurrent layers (the second one has full attention as well).
RECURRENT = ("mamba2", "qwen3_next")
FAMILIES = FULL_ATTENTION + SLIDING + RECURRENT


def make(family: str, seed: int = 0, **overrides: Any) -> nn.Module:
    """Builds a tiny model with random weights.

    Args:
        family: Name of an mlx-lm model module: one of `FAMILIES`.
        seed: For the weights.
        overrides: Replace entries of the family's configuration (`tests.tiny.configs`).
    """
    module = importlib.import_module(f"mlx_lm.models.{family}")
    args = module.ModelArgs.from_dict({"model_type": family, **CONFIGS[family], **overrides})
    model = module.Model(args)
    keys = iter(mx.random.split(mx.random.key(seed), len(tree_flatten(model.parameters()))))
    model.update(tree_map_with_path(lambda path, weight: _draw(path, weight, next(keys)), model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


def _draw(path: str, weight: mx.array, key: mx.array) -> mx.array:
    """Weights of a size that makes lively logits; gains and biases keep their first value."""
    name = path.rsplit(".", 1)[-1]
    if name == "A_log":
        return mx.log(mx.random.uniform(0.2, 4.0, weight.shape, key=key))
    if "embed" in path or name == "sinks":
        return mx.random.normal(weight.shape, key=key)
    if weight.ndim == 1:
        return weight.astype(mx.float32)
    fan_in = weight.shape[1] if "conv" in path else weight.shape[-1]
    return mx.random.normal(weight.shape, key=key) * (1.5 / fan_in**0.5)
