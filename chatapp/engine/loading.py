"""Loads a model that `fetching` made ready: weights, tokenizer, adapter, draft model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from chatapp.engine.blas import use_fast_blas

use_fast_blas()  # before MLX

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_lm.tokenizer_utils import TokenizerWrapper  # noqa: E402
from mlx_lm.utils import load_adapters, load_model, load_tokenizer  # noqa: E402

from chatapp.engine.fetching import Fetched, fetch  # noqa: E402
from chatapp.errors import ChatappError  # noqa: E402
from chatapp.models.progress import Report, Step, silent  # noqa: E402
from chatapp.models.registry import ModelSpec  # noqa: E402
from chatapp.protocol import Load  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        model: mlx-lm's module; called with ids and ``cache=``.
        tokenizer: mlx-lm's wrapper of the tokenizer.
        spec: What the registry says of it.
        fingerprint: Identifies weights, revision and adapter.
        context: Trained context in tokens.
        vocab_size: Length of the logits.
        dtype: Of the weights that compute: "float32", "bfloat16", "4-bit"….
        bytes: Of the weights in memory.
        draft: For speculative decoding: a model with the same tokenizer, ``lookup`` for prompt lookup, or None.
        note: What the person should know, as a sentence; usually empty.
    """

    model: nn.Module
    tokenizer: TokenizerWrapper
    spec: ModelSpec
    fingerprint: str
    context: int
    vocab_size: int
    dtype: str
    bytes: int
    draft: LoadedModel | Literal["lookup"] | None = None
    note: str = ""


def load(request: Load, progress: Report = silent) -> LoadedModel:
    """Fetches what is missing and loads it."""
    ready = fetch(request.model, progress)
    progress(Step("load", 0, 0, file=ready.spec.title))
    return _load(ready)


def _load(ready: Fetched) -> LoadedModel:
    folder = ready.folder
    model, config = load_model(folder)
    tokenizer = load_tokenizer(folder, eos_token_ids=config.get("eos_token_id"))
    weights: list[tuple[str, mx.array]] = tree_flatten(model.parameters())
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        spec=ready.spec,
        fingerprint=ready.version,
        context=ready.spec.context or config.get("max_position_embeddings", 4096),
        vocab_size=config["vocab_size"],
        dtype="float32",
        bytes=sum(array.nbytes for _, array in weights),
    )
