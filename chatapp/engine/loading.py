"""Loads a model that `fetching` made ready: weights, tokenizer, adapter, draft model."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from chatapp.engine.blas import use_fast_blas

use_fast_blas()  # before MLX

import mlx.core as mx  # noqa: E402
import mlx.nn as nn  # noqa: E402
from mlx.utils import tree_flatten  # noqa: E402
from mlx_lm.tokenizer_utils import TokenizerWrapper  # noqa: E402
from mlx_lm.utils import load_adapters, load_model, load_tokenizer, maybe_set_recommended_wired_limit  # noqa: E402

from chatapp.engine import precision, sharding  # noqa: E402
from chatapp.engine.fetching import Fetched, fetch  # noqa: E402
from chatapp.engine.sharding import Share  # noqa: E402
from chatapp.errors import ChatappError, UsageError  # noqa: E402
from chatapp.models import caveats, fit, parallel  # noqa: E402
from chatapp.models.conversions import read_conversion  # noqa: E402
from chatapp.models.families import check_config  # noqa: E402
from chatapp.models.folder import check_files, elements_by_type, read_config  # noqa: E402
from chatapp.models.progress import Report, Step, silent  # noqa: E402
from chatapp.models.registry import LOOKUP, ModelSpec  # noqa: E402
from chatapp.protocol import Load  # noqa: E402

#: Taken where neither the registry nor the configuration names a context, in tokens.
UNKNOWN_CONTEXT = 8192

#: What mlx-lm and MLX raise for weights or configurations that do not fit together.
_LIBRARY_ERRORS = (
    ValueError, RuntimeError, KeyError, TypeError, AttributeError, IndexError, AssertionError, NotImplementedError,
    OSError, ZeroDivisionError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """A model in memory.

    Attributes:
        model: mlx-lm's module; called with ids and ``cache=``.
        tokenizer: mlx-lm's wrapper of the tokenizer.
        spec: What the registry says of it.
        fingerprint: Identifies weights, revision, precision and adapter.
        context: Trained context in tokens.
        max_kv_size: C: what the person asked for, else what fits in memory up to the context.
        vocab_size: Length of the logits; 0 where the configuration does not say.
        dtype: Of the weights: "float32", "bfloat16", "4-bit"….
        bytes: Of the weights in memory.
        draft: For speculative decoding: a model with the same tokenizer, ``lookup`` for prompt lookup, or None.
        parallel: How the ranks share it; None where it is whole.
        note: What the person should know, as sentences; usually empty.
    """

    model: nn.Module
    tokenizer: TokenizerWrapper
    spec: ModelSpec
    fingerprint: str
    context: int
    max_kv_size: int
    vocab_size: int
    dtype: str
    bytes: int
    draft: LoadedModel | Literal["lookup"] | None = None
    parallel: parallel.Kind | None = None
    note: str = ""


def load(request: Load, progress: Report = silent, share: Share | None = None) -> LoadedModel:
    """Fetches what is missing and loads it.

    Args:
        request: Names the model, and what is special about it.
        progress: Told a few times a second.
        share: Which part of it is loaded; None for all. A draft model is small, so every rank has all of it.

    Raises:
        UsageError: There is no such model, or the request contradicts itself.
        Interrupted: ``progress`` raised it.
        ChatappError: The model cannot be fetched, does not fit, or is damaged; the sentence says what to do.
    """
    ready = share.ready if share else fetch(request.model, progress)
    loaded = _load(ready, request, progress, share, share.room if share else fit.available_bytes())
    wanted = request.draft or loaded.spec.draft
    if not wanted or wanted == LOOKUP:
        return replace(loaded, draft=LOOKUP if wanted else None)
    room = share.room - loaded.bytes if share else fit.available_bytes()
    draft = _load(fetch(wanted, progress), Load(request.request, model=wanted), progress, None, room)
    if draft.tokenizer.get_vocab() != loaded.tokenizer.get_vocab():
        raise UsageError(
            f"{draft.spec.title} cannot draft for {loaded.spec.title}, their tokenizers differ: choose a smaller model "
            "of the same family, or --draft lookup."
        )
    return replace(loaded, draft=draft)


def _load(ready: Fetched, request: Load, progress: Report, share: Share | None, room: int) -> LoadedModel:
    folder, spec = ready.folder, ready.spec
    adapter = adapter_folder(request.adapter or spec.adapter)
    config = read_config(folder, spec.title)
    check_config(config, spec.title)
    ranks = share.ranks if share else 1
    own = parallel.own_layers(config, share.rank, ranks) if share else None
    weights = check_files(folder, spec.title, own)
    counts = share.counts if share else elements_by_type(weights)
    kind = parallel.choose(config, spec.title, ranks) if ranks > 1 else None
    plan = precision.plan(config, counts, room * ranks)
    stays_quantized = bool(config.get("quantization") or config.get("quantization_config")) and not plan.unpack
    if adapter and kind == "tensor" and stays_quantized:
        raise UsageError(
            f"{spec.title} is quantized, so its adapter cannot be divided among {ranks} ranks: fuse it into the model "
            "with `mlx_lm.fuse`, or take one rank."
        )
    item_bytes = precision.cache_item_bytes(plan, request.kv_bits)
    need = fit.Need(plan.bytes // ranks, fit.kv_bytes_per_token(config, item_bytes) // ranks)
    context = spec.context or fit.trained_context(config) or UNKNOWN_CONTEXT
    decided = fit.decide(spec.title, need, context, request.max_kv_size or spec.max_kv_size or None, room)

    caveat = caveats.note(config)
    model, config = _weights(folder, spec.title, own)
    if adapter:
        _adapt(model, adapter, spec.title)
    precision.apply(model, plan)
    if adapter and kind == "tensor":
        sharding.fuse(model)
    if kind:
        sharding.apply(model, kind, own, spec.title)
    _evaluate(model, spec.title, progress)
    conversion = read_conversion(folder)
    return LoadedModel(
        model=model,
        tokenizer=_tokenizer(folder, spec.title, config),
        spec=spec,
        fingerprint=_fingerprint(ready, plan, adapter, f"{kind} {ranks}" if kind else ""),
        context=context,
        max_kv_size=decided.capacity,
        vocab_size=_vocab_size(config),
        dtype=plan.label,
        bytes=sum(array.nbytes for array in _arrays(model)),
        parallel=kind,
        note=" ".join(filter(None, (conversion.note if conversion else "", caveat, plan.note, decided.note))),
    )


def _weights(folder: Path, title: str, own: range | None) -> tuple[nn.Module, dict[str, Any]]:
    if mx.metal.is_available():
        maybe_set_recommended_wired_limit()
    try:
        return load_model(folder, lazy=True) if own is None else sharding.load_part(folder, own)
    except _LIBRARY_ERRORS as error:
        raise ChatappError(
            f"{title} cannot be loaded from {folder} ({_first_line(error)}): its files do not fit together or "
            "ask for what mlx-lm does not have; fetch it again, or choose another version.",
            "model",
        ) from error


def adapter_folder(name: str | None) -> Path | None:
    """A LoRA adapter's folder; None for none.

    Raises:
        UsageError: It lacks a file.
    """
    if not name:
        return None
    adapter = Path(name).expanduser()
    for file in ("adapter_config.json", "adapters.safetensors"):
        if not (adapter / file).is_file():
            raise UsageError(f"{adapter} holds no {file}: name a folder that mlx_lm.lora wrote.")
    return adapter


def _adapt(model: nn.Module, adapter: Path, title: str) -> None:
    try:
        load_adapters(model, str(adapter))
        model.eval()
    except _LIBRARY_ERRORS as error:
        raise ChatappError(
            f"The adapter {adapter} does not fit {title} ({_first_line(error)}): it was made for another model.",
            "model",
        ) from error


def _evaluate(model: nn.Module, title: str, progress: Report) -> None:
    """Reads the weights, some at a time, so that the person sees how far it is and can stop it."""
    arrays = _arrays(model)
    total = sum(array.nbytes for array in arrays)
    done = 0
    for array in arrays:
        progress(Step("load", done, total, file=title))
        mx.eval(array)
        done += array.nbytes
    mx.eval(model.parameters())
    progress(Step("load", total, total, file=title))


def _tokenizer(folder: Path, title: str, config: dict[str, Any]) -> TokenizerWrapper:
    try:
        return load_tokenizer(
            folder,
            {"trust_remote_code": False},  # left open, transformers would ask on the terminal
            eos_token_ids=config.get("eos_token_id"),
        )
    except Exception as error:
        raise ChatappError(
            f"The tokenizer of {title} in {folder} cannot be read ({_first_line(error)}): fetch the model again.",
            "model",
        ) from error


def _fingerprint(ready: Fetched, plan: precision.Plan, adapter: Path | None, divided: str) -> str:
    """Identifies what was loaded: by commit or content hash, else by the files' names, sizes and times."""
    digest = hashlib.blake2b(digest_size=16)
    folders = [] if ready.version else [ready.folder]
    if adapter:
        folders.append(adapter)
    for part in (
        ready.version,
        plan.label,
        *filter(None, [divided]),
        *(item for folder in folders for item in _inventory(folder)),
    ):
        digest.update(part.encode() + b"\0")
    digest.update((ready.folder / "config.json").read_bytes())
    return digest.hexdigest()


def _inventory(folder: Path) -> list[str]:
    files = sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".jinja", ".model"))
    return [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files]


def _arrays(model: nn.Module) -> list[mx.array]:
    return list(dict(tree_flatten(model.parameters())).values())


def _vocab_size(config: dict[str, Any]) -> int:
    size = config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size")
    return size if isinstance(size, int) else 0


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
