"""Whether and how several ranks can share a model, found out before anything large is downloaded and without MLX.

Tensor parallel (mlx-lm's ``shard``): every rank computes its share of each layer's heads. Pipeline (``pipeline``):
every rank computes some of the layers. Which of them a family has is read from mlx-lm's source.
"""

from __future__ import annotations

import ast
import functools
from typing import Any, Literal

from chatapp.errors import UsageError
from chatapp.models.families import model_file

Kind = Literal["tensor", "pipeline"]

#: Sizes in config.json that ranks divide among themselves in tensor parallel.
_DIVIDED = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key-value heads",
    "intermediate_size": "values inside its feed-forward layers",
    "moe_intermediate_size": "values inside its experts",
}


def choose(config: dict[str, Any], title: str, ranks: int) -> Kind:
    """How ``ranks`` processes share a model: tensor parallel where they can, else as a pipeline.

    Args:
        config: The content of config.json.
        title: Names the model in the error.
        ranks: At least 2.

    Raises:
        UsageError: The family has neither, or the number of ranks does not fit the model.
    """
    kinds = supported(str(config.get("model_type")))
    text = _text(config)
    odd = _undivided(text, ranks)
    layers = text.get("num_hidden_layers")
    if "tensor" in kinds and not odd:
        return "tensor"
    if "pipeline" in kinds and not (isinstance(layers, int) and layers < ranks):
        return "pipeline"
    if "tensor" in kinds:
        raise UsageError(
            f"{title} cannot be divided among {ranks} machines or ranks: it has {odd}. Choose a number that divides "
            "them, or another model."
        )
    if "pipeline" in kinds:
        raise UsageError(f"{title} has {layers} layers, too few for {ranks} ranks: take fewer.")
    raise UsageError(
        f"{title} is of the type “{config.get('model_type')}”, which mlx-lm cannot divide among several machines: "
        "run it on one, or choose another model."
    )


def own_layers(config: dict[str, Any], rank: int, ranks: int) -> range | None:
    """The layers that a rank of a pipeline computes, and whose weights it needs; None where it needs all files.

    mlx-lm's ``PipelineMixin`` divides so; a test and `chatapp.engine.sharding.apply` compare it with that.

    Args:
        config: The content of config.json.
        rank: From 0, which has the last layers.
        ranks: How many there are.
    """
    count = _text(config).get("num_hidden_layers")
    if ranks == 1 or not isinstance(count, int) or not _has_mixin(str(config.get("model_type"))):
        return None
    try:
        if choose(config, "", ranks) != "pipeline":
            return None
    except UsageError:
        return None  # whoever loads it says why
    base, extra = divmod(count, ranks)
    behind = sum(base + (other < extra) for other in range(rank + 1, ranks))
    return range(behind, behind + base + (rank < extra))


@functools.cache
def supported(model_type: str) -> frozenset[Kind]:
    """What mlx-lm's model file for a type offers."""
    classes = _classes(model_type)
    found: set[Kind] = set()
    if "Model" in classes and "shard" in _methods(classes["Model"]):
        found.add("tensor")
    inner = classes.get(_class_of_inner_model(classes.get("Model")))
    if inner and ("pipeline" in _methods(inner) or "PipelineMixin" in _bases(inner)):
        found.add("pipeline")
    return frozenset(found)


def _has_mixin(model_type: str) -> bool:
    """Whether a type's layers are divided by mlx-lm's common rule."""
    classes = _classes(model_type)
    inner = classes.get(_class_of_inner_model(classes.get("Model")))
    return inner is not None and "PipelineMixin" in _bases(inner)


@functools.cache
def _classes(model_type: str) -> dict[str, ast.ClassDef]:
    """The classes of mlx-lm's model file for a type, by name."""
    path = model_file(model_type)
    body = ast.parse(path.read_text("utf-8")).body if path else []
    return {node.name: node for node in body if isinstance(node, ast.ClassDef)}


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of the language model, which some families have in a table of their own."""
    return {**config, **(config.get("text_config") or {})}


def _undivided(text: dict[str, Any], ranks: int) -> str:
    """What of the model the ranks do not divide, in words; empty if they divide everything."""
    latent = bool(text.get("kv_lora_rank"))  # one latent for all heads: every rank keeps it whole
    for key, words in _DIVIDED.items():
        value = text.get(key)
        values = value if isinstance(value, list) else [value]
        if latent and key == "num_key_value_heads":
            continue
        for number in values:
            if isinstance(number, int) and number % ranks:
                return f"{number} {words}"
    group = _group_size(text)
    for number, words in _split_inside(text) if group else ():
        if number // ranks % group:
            return f"{number} {words}, quantized in groups of {group}"
    return ""


def _split_inside(text: dict[str, Any]) -> list[tuple[int, str]]:
    """Rows of weights that ranks cut: so many values, and what they are."""
    heads, hidden = text.get("num_attention_heads"), text.get("hidden_size")
    size = text.get("v_head_dim") or text.get("head_dim")
    attention = heads * size if isinstance(heads, int) and isinstance(size, int) else hidden
    found = [(attention, "values in its attention heads")]
    found += [(text.get(key), words) for key, words in _DIVIDED.items() if key.endswith("intermediate_size")]
    return [(number, words) for number, words in found if isinstance(number, int)]


def _group_size(config: dict[str, Any]) -> int:
    """Of quantized weights: a group cannot be split; 0 for plain ones."""
    table = config.get("quantization") or config.get("quantization_config")
    size = table.get("group_size") if isinstance(table, dict) else None
    return size if isinstance(size, int) else 0


def _methods(node: ast.ClassDef) -> set[str]:
    return {item.name for item in node.body if isinstance(item, ast.FunctionDef)}


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _class_of_inner_model(node: ast.ClassDef | None) -> str:
    """The class of ``self.model``, which is where mlx-lm has the pipeline."""
    for item in ast.walk(node) if node else ():
        if (
            isinstance(item, ast.Assign)
            and isinstance(item.targets[0], ast.Attribute)
            and item.targets[0].attr == "model"
            and isinstance(item.value, ast.Call)
            and isinstance(item.value.func, ast.Name)
        ):
            return item.value.func.id
    return ""
