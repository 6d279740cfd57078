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

#: Sizes in config.json that ranks divide among themselves in tensor parallel, whatever the family calls them.
_DIVIDED = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key-value heads",
    "num_attention_groups": "key-value heads",
    "linear_num_key_heads": "key heads in its linear attention",
    "linear_num_value_heads": "value heads in its linear attention",
    "o_groups": "groups of attention heads",
    **dict.fromkeys(
        ("intermediate_size", "ffn_hidden_size", "dense_intermediate_size"), "values inside its feed-forward layers"
    ),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size"), "values inside its experts"),
    **dict.fromkeys(
        ("shared_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim"),
        "values inside its shared experts",
    ),
}

#: Those that only some of mlx-lm's families divide.
_ALSO_DIVIDED = {
    "minimax_m3_vl": {"index_n_heads": "heads that choose what to attend to"},
    "muse_spark": {"vocab_size": "tokens in its vocabulary"},
    "qwen3_5": {"vocab_size": "tokens in its vocabulary"},
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
    odd = _undivided(text, _divided(str(config.get("model_type"))), ranks)
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
    """What mlx-lm's model file for a type offers, by itself or by the file whose model its own is made from."""
    found: set[Kind] = set()
    for classes in map(_classes, _line(model_type)):
        if "Model" in classes and "shard" in _methods(classes["Model"]):
            found.add("tensor")
        inner = classes.get(_class_of_inner_model(classes.get("Model")))
        if inner and ("pipeline" in _methods(inner) or "PipelineMixin" in _bases(inner)):
            found.add("pipeline")
    return frozenset(found)


def _has_mixin(model_type: str) -> bool:
    """Whether a type's layers are divided by mlx-lm's common rule."""
    for classes in map(_classes, _line(model_type)):
        inner = classes.get(_class_of_inner_model(classes.get("Model")))
        if inner is not None and "PipelineMixin" in _bases(inner):
            return True
    return False


def _divided(model_type: str) -> dict[str, str]:
    """The sizes that ranks divide among themselves, and what they are."""
    found = dict(_DIVIDED)
    for name in _line(model_type):
        path = model_file(name)
        found |= _ALSO_DIVIDED.get(path.stem, {}) if path else {}
    return found


@functools.cache
def _line(model_type: str) -> tuple[str, ...]:
    """A type, and those whose ``Model`` its own is a subclass of, or the same."""
    imported: dict[str, str] = {}
    for node in _body(model_type):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                name = f"{alias.asname or alias.name}.Model" if node.module is None else alias.asname or alias.name
                if node.module is None or alias.name == "Model":
                    imported[name] = node.module or alias.name
    model = _classes(model_type).get("Model")
    bases = [ast.unparse(base) for base in model.bases] if model else ["Model"]
    parents = [imported[base] for base in bases if base in imported]
    return (model_type, *(name for parent in parents for name in _line(parent)))


@functools.cache
def _classes(model_type: str) -> dict[str, ast.ClassDef]:
    """The classes of mlx-lm's model file for a type, by name."""
    return {node.name: node for node in _body(model_type) if isinstance(node, ast.ClassDef)}


@functools.cache
def _body(model_type: str) -> list[ast.stmt]:
    path = model_file(model_type)
    return ast.parse(path.read_text("utf-8")).body if path else []


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of the language model, which some families have in a table of their own."""
    text = {**config, **(config.get("text_config") or {})}
    linear = text.get("linear_attn_config") or {}
    return {**text, "linear_num_key_heads": linear["num_heads"]} if "num_heads" in linear else text


def _undivided(text: dict[str, Any], divided: dict[str, str], ranks: int) -> str:
    """What of the model the ranks do not divide, in words; empty if they divide everything."""
    latent = bool(text.get("kv_lora_rank"))  # one latent for all heads: every rank keeps it whole
    for key, words in divided.items():
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
    found += [(text.get(key), words) for key, words in _DIVIDED.items() if words.startswith("values inside")]
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
