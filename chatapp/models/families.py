"""Which model types the installed mlx-lm can run, found out without importing it (that takes seconds, and MLX)."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path
from typing import Any

from chatapp.errors import ChatappError

#: Model files that end the whole process when they are imported without a package: its module and its name.
_NEEDED = {"olmo": ("hf_olmo", "ai2-olmo")}


def check_config(config: dict[str, Any], title: str) -> None:
    """Refuses what mlx-lm cannot run, before anything large is downloaded or loaded.

    Args:
        config: The content of config.json.
        title: Names the model in the error.

    Raises:
        ChatappError: The model's type is missing or unknown, or it comes with code of its own.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise ChatappError(f"{title} names no model_type in its config.json: it is not a language model.", "model")
    if config.get("model_file"):
        raise ChatappError(
            f"{title} needs program code of its own ({config['model_file']}), which chatapp does not run: "
            "choose a model of a known type.",
            "model",
        )
    needed = _NEEDED.get(kind)
    if needed and importlib.util.find_spec(needed[0]) is None:
        raise ChatappError(
            f"{title} is of the type “{kind}”, for which mlx-lm needs the package {needed[1]}: install it beside "
            "chatapp, or choose another model.",
            "model",
        )
    if not is_known(kind):
        raise ChatappError(
            f"{title} is of the type “{kind}”, which this version of mlx-lm cannot run: choose another model, or "
            "update mlx-lm if the type is new.",
            "model",
        )


def is_known(model_type: str) -> bool:
    """Whether mlx-lm has a model file for a type, directly or under another name."""
    path = model_file(model_type)
    if path is None:
        return False
    source = path.read_text("utf-8")
    return all(re.search(rf"\b{word}\b", source) for word in ("Model", "ModelArgs"))


def model_file(model_type: str) -> Path | None:
    """The source file of mlx-lm for a type; None if there is none."""
    name = _aliases().get(model_type, model_type)
    path = _package() / "models" / f"{name}.py"
    return path if re.fullmatch(r"[\w-]+", name) and path.is_file() else None


@functools.cache
def _package() -> Path:
    found = importlib.util.find_spec("mlx_lm")  # a top-level package is found without being imported
    if found is None or found.origin is None:
        raise ChatappError("mlx-lm is not installed: install chatapp again with `pip install chatapp`.")
    return Path(found.origin).parent


@functools.cache
def _aliases() -> dict[str, str]:
    """``MODEL_REMAPPING`` of mlx_lm.utils, read from its source."""
    tree = ast.parse((_package() / "utils.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "MODEL_REMAPPING" for target in node.targets
        ):
            return ast.literal_eval(node.value)
    return {}
