"""Looks into an mlx-lm folder before it is loaded: what is missing or damaged is said in a sentence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chatapp.errors import ChatappError

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json", "tokenizer_config.json")

#: Bytes of one element, by safetensors' names.
ITEM_BYTES = {
    **dict.fromkeys(("F64", "I64", "U64"), 8),
    **dict.fromkeys(("F32", "I32", "U32"), 4),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 2),
    **dict.fromkeys(("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
}

#: By their names a weight's layer is known, before and after mlx-lm renames them.
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")

_MAX_HEADER = 100 * 1024 * 1024


def read_config(folder: Path, title: str) -> dict[str, Any]:
    """The content of config.json.

    Raises:
        ChatappError: It is missing or damaged.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ChatappError(
            f"{title} has no config.json in {folder}: name the folder that mlx-lm or Hugging Face wrote.", "model"
        ) from None
    except (OSError, ValueError) as error:
        raise ChatappError(f"{path} is damaged ({error}): fetch the model again.", "model") from None
    if not isinstance(config, dict):
        raise ChatappError(f"{path} is damaged (not a JSON object): fetch the model again.", "model")
    return config


def layer_of(name: str) -> int | None:
    """The layer that a weight belongs to; None for embeddings, the last norm and the head."""
    found = _LAYER.search(name)
    return int(found[1]) if found else None


def needed_weights(folder: Path, own: range | None) -> set[str]:
    """The weight files that the folder's index names, for some layers and what belongs to none; empty without one."""
    return {file for name, file in _listed(folder).items() if own is None or layer_of(name) in (None, *own)}


def check_files(folder: Path, title: str, own: range | None = None) -> list[Path]:
    """Checks that weights and tokenizer are there and that no weight file is cut short.

    Args:
        folder: mlx-lm's.
        title: Names the model in the error.
        own: The layers whose weights have to be there; None for all.

    Returns:
        The weight files, of ``own`` layers and of what belongs to none.

    Raises:
        ChatappError: Something is missing or damaged; the sentence names it.
    """
    weights = sorted(folder.glob("model*.safetensors"))
    needed = needed_weights(folder, own)
    missing = sorted(needed - {path.name for path in weights})
    if own is not None and needed:
        weights = [path for path in weights if path.name in needed]
    if missing:
        raise ChatappError(f"{title} lacks {missing[0]} in {folder}: fetch the model again.", "model")
    if not weights:
        raise ChatappError(f"{title} has no model*.safetensors in {folder}: choose a safetensors version.", "model")
    for path in weights:
        read_header(path)
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise ChatappError(
            f"{title} has no tokenizer in {folder}: put the tokenizer.json of the original model there.", "model"
        )
    return weights


def read_header(path: Path) -> dict[str, Any]:
    """The tensor table of a safetensors file.

    Raises:
        ChatappError: The file is damaged or shorter than its table says.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size, _MAX_HEADER):
                raise ValueError("no header")
            header: dict[str, Any] = json.loads(file.read(length))
        tensors = {name: value for name, value in header.items() if name != "__metadata__"}
        end = max((value["data_offsets"][1] for value in tensors.values()), default=0)
        if size != 8 + length + end:
            raise ValueError(f"{size} bytes instead of {8 + length + end}")
    except OSError as error:
        raise ChatappError(f"{path} cannot be read ({error.strerror}): check the file.", "model") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise ChatappError(f"{path} is damaged ({error}): fetch the model again.", "model") from None
    return tensors


def elements_by_type(weights: list[Path], wanted: Callable[[str], bool] = lambda name: True) -> dict[str, int]:
    """How many elements of each safetensors type (``BF16``, ``U32``…) the weight files hold of the wanted names."""
    counts: dict[str, int] = {}
    for path in weights:
        for name, tensor in read_header(path).items():
            if not wanted(name):
                continue
            first, last = tensor["data_offsets"]
            kind = tensor["dtype"]
            counts[kind] = counts.get(kind, 0) + (last - first) // ITEM_BYTES.get(kind, 1)
    return counts


def _listed(folder: Path) -> dict[str, str]:
    """The file of each weight, by the folder's index; empty without an index."""
    path = folder / "model.safetensors.index.json"
    if not path.exists():
        return {}
    try:
        files = json.loads(path.read_text("utf-8"))["weight_map"].items()
        return {name: file for name, file in files if isinstance(file, str)}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ChatappError(f"{path} is damaged ({error}): fetch the model again.", "model") from None
