"""Whether a model fits in memory with its KV cache, said before it is loaded.

The weights' size is exact for files on disk. The cache's is that of full attention, 2·layers·kv_heads·head_dim values
a token; windowed and recurrent layers need less, so that it is an upper bound for hybrid models.
"""

from __future__ import annotations

import platform
import subprocess
from typing import Any

import msgspec
import psutil

from chatapp.errors import ChatappError
from chatapp.models.space import size_text

#: Part of the memory beside the weights that the cache may take where nobody asked for a capacity.
CACHE_SHARE = 0.5

#: For the program, its libraries and the arrays of one step, in bytes.
OVERHEAD = 400 * 1000 * 1000

#: Smallest capacity worth having where it is chosen for the person, in tokens.
SMALLEST = 1024

_STEP = 256


class Need(msgspec.Struct, frozen=True):
    """What a model takes in memory, in bytes.

    Attributes:
        weights: As they are computed with.
        per_token: KV cache of one token over all layers; 0 if it does not grow.
    """

    weights: int
    per_token: int

    def total(self, capacity: int) -> int:
        """With a cache of ``capacity`` tokens."""
        return self.weights + self.per_token * capacity + OVERHEAD


class Fit(msgspec.Struct, frozen=True):
    """What was decided.

    Attributes:
        capacity: C, in tokens.
        note: Why it is less than the model's context, as a sentence; empty if it is not.
    """

    capacity: int
    note: str = ""


def kv_bytes_per_token(config: dict[str, Any], item_bytes: float) -> int:
    """KV cache bytes of one token over all layers, from a model's config.json.

    Args:
        config: As read; the language part of a multimodal one is found.
        item_bytes: Of one cached value: 2 for 16 bits, 4 for float32.

    Returns:
        0 where the configuration does not say (recurrent models).
    """
    text = {**config, **(config.get("text_config") or {})}
    layers = _number(text, "num_hidden_layers", "n_layers", "n_layer", "num_layers")
    heads = _number(text, "num_attention_heads", "n_heads", "n_head")
    hidden = _number(text, "hidden_size", "d_model", "n_embd", "dim")
    if latent := _number(text, "kv_lora_rank"):  # multi-head latent attention caches one vector for all heads
        return int(layers * (latent + _number(text, "qk_rope_head_dim")) * item_bytes)
    kv_heads = _number(text, "num_key_value_heads", "n_kv_heads", "num_kv_heads") or heads
    head = _number(text, "head_dim") or (hidden // heads if heads else 0)
    return int(2 * layers * kv_heads * head * item_bytes)


def trained_context(config: dict[str, Any]) -> int:
    """The context a model was trained for, in tokens; 0 where its configuration does not say."""
    text = {**config, **(config.get("text_config") or {})}
    return _number(text, "max_position_embeddings", "n_positions", "max_seq_len", "n_ctx", "seq_length")


def available_bytes() -> int:
    """What a model may take now: free memory, and on Apple silicon no more than the GPU may wire."""
    free = psutil.virtual_memory().available
    if platform.system() != "Darwin":
        return free
    return min(free, wired_limit(psutil.virtual_memory().total))


def wired_limit(total: int) -> int:
    """What macOS lets the GPU wire, in bytes: ``iogpu.wired_limit_mb`` where it is set, else about three quarters.

    The default is what Metal recommends as working set: 2/3 of the memory up to 36 GB, 3/4 above.
    """
    try:
        said = subprocess.run(["sysctl", "-n", "iogpu.wired_limit_mb"], capture_output=True, text=True, check=False)
        megabytes = int(said.stdout.strip() or 0)
    except (OSError, ValueError):
        megabytes = 0
    if megabytes:
        return megabytes * 1024 * 1024
    return total * 2 // 3 if total <= 36 * 1024**3 else total * 3 // 4


def decide(title: str, need: Need, context: int, wanted: int | None, available: int) -> Fit:
    """Chooses the cache's capacity, or says why the model cannot be loaded.

    Args:
        title: Names the model.
        need: In memory.
        context: The model's, in tokens; what is taken where it fits and nobody wants another.
        wanted: What the person asked for; it is taken or refused, never changed.
        available: In bytes.

    Raises:
        ChatappError: Weights, or weights and the wanted cache, do not fit. The sentence names what would.
    """
    room = available - need.weights - OVERHEAD
    most = room // need.per_token // _STEP * _STEP if need.per_token else context
    if room <= 0 or (wanted is None and most < min(SMALLEST, context)):
        raise ChatappError(
            f"{title} needs {size_text(need.total(min(SMALLEST, context)))} of memory, {size_text(available)} are "
            "free: close other programs, or try a smaller or a 4-bit version.",
            "memory",
        )
    if wanted is not None:
        if need.total(wanted) > available:
            raise ChatappError(
                f"{title} needs {size_text(need.total(wanted))} with --max-kv-size {wanted}, {size_text(available)} "
                f"are free: {_advice(most)}.",
                "memory",
            )
        return Fit(wanted)
    capacity = context
    if need.per_token * context > room * CACHE_SHARE:
        capacity = min(context, max(SMALLEST, int(room * CACHE_SHARE) // need.per_token // _STEP * _STEP))
    if capacity == context:
        return Fit(context)
    return Fit(
        capacity,
        f"The cache holds {capacity} of the model's {context} tokens, to leave memory free; "
        f"--max-kv-size up to {most} would fit.",
    )


def _advice(most: int) -> str:
    if most < _STEP:
        return "try a smaller or a 4-bit version"
    return f"try --max-kv-size {most}, or a smaller version"


def _number(config: dict[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            return max(value)  # a value for each layer
    return 0
