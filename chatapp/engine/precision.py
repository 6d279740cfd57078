"""In which number format a model computes on this machine.

On a GPU: as it is stored. On a CPU with a fast BLAS: float32, because only that reaches the library's matrix kernels;
16-bit products and MLX's quantized kernels run scalar code there (measured in docs/models.md). Quantized weights are
unpacked where the memory allows, which changes no weight: every packed value is a float32.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import msgspec
from mlx_lm.utils import dequantize_model

from chatapp.engine.blas import use_fast_blas

#: Part of the available memory that unpacked weights may take.
UNPACKED_SHARE = 0.4

_FLOATS = ("F64", "F32", "F16", "BF16")
_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "F64": "float64"}
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "U8": 1, "I8": 1}


class Plan(msgspec.Struct, frozen=True):
    """What `apply` does to a model.

    Attributes:
        label: Shown to people: "float32", "4-bit"….
        bytes: Of the weights in memory then.
        to_float32: Cast every floating-point weight.
        unpack: Turn quantized layers into plain ones.
        note: What the person should know; usually empty.
    """

    label: str
    bytes: int
    to_float32: bool = False
    unpack: bool = False
    note: str = ""


def plan(config: dict[str, Any], counts: dict[str, int], available: int) -> Plan:
    """Decides the format.

    Args:
        config: The content of config.json.
        counts: Stored elements by safetensors type.
        available: Memory, in bytes.
    """
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    bits = _bits(config)
    stored = sum(_BYTES.get(kind, 1) * count for kind, count in counts.items())
    floats = sum(count for kind, count in counts.items() if kind in _FLOATS)
    if not bits:
        if on_cpu:
            return Plan("float32", 4 * sum(counts.values()), to_float32=True)
        largest = max(counts, key=lambda kind: counts[kind], default="F16")
        return Plan(_NAMES.get(largest, largest.lower()), stored)
    label = f"{bits}-bit"
    if not on_cpu:
        return Plan(label, stored)
    packed = counts.get("U32", 0)
    as_float32 = stored + sum((4 - _BYTES[kind]) * counts.get(kind, 0) for kind in _FLOATS)
    unpacked = 4 * (packed * 32 // bits + floats)
    if _is_affine(config) and unpacked <= available * UNPACKED_SHARE:
        return Plan(f"float32 (from {label})", unpacked, to_float32=True, unpack=True)
    note = "Quantized weights are slow on this machine's CPU; a smaller model answers sooner."
    return Plan(label, as_float32, to_float32=True, note=note)


def apply(model: nn.Module, chosen: Plan) -> None:
    """Changes a lazily loaded model's weights in place; they are computed when they are first evaluated."""
    if chosen.to_float32:
        model.set_dtype(mx.float32)
    if chosen.unpack:
        dequantize_model(model)


def cache_item_bytes(chosen: Plan, kv_bits: int | None) -> float:
    """Bytes of one cached key or value."""
    if kv_bits:
        return kv_bits / 8 + 2 * (4 if chosen.to_float32 else 2) / 64  # a scale and a bias for 64 values
    return 4 if chosen.to_float32 else 2


def row_cost(label: str) -> float:
    """What reading one token more in the same pass takes, over a pass that reads one.

    Measured with float32 and MKL on x86-64: 0.15 for up to 9 tokens, 0.13 for 17. A GPU is taken to be no worse; where
    MLX's scalar code multiplies, the docs' rates for prompts and for generation say 0.75.

    Args:
        label: Of the model's `Plan`.
    """
    if mx.default_device().type != mx.DeviceType.cpu:
        return 0.15
    return 0.15 if label.startswith("float32") and use_fast_blas() != "stock" else 0.75


def _bits(config: dict[str, Any]) -> int:
    """Bits of a quantized weight; 0 for plain weights."""
    table = config.get("quantization") or config.get("quantization_config") or {}
    bits = table.get("bits") if isinstance(table, dict) else None
    return bits if isinstance(bits, int) else 4 if table else 0


def _is_affine(config: dict[str, Any]) -> bool:
    table = config.get("quantization")
    return isinstance(table, dict) and table.get("mode", "affine") == "affine"
