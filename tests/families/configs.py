"""A tiny random-weight model of every text family in mlx-lm.

mlx-lm's model classes are built from dataclasses whose fields go by a common vocabulary (``hidden_size``,
``num_experts``, …). `SMALL` gives a small value to each such name; `FAMILY` adds what one family alone needs. So a
family that a new mlx-lm brings is usually built without anybody writing a line for it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from types import ModuleType
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.models
from mlx.utils import tree_flatten, tree_map

VOCAB = 128
LAYERS = 4
WINDOW = 8

#: A small value for each field name, whatever the family.
SMALL: dict[str, Any] = {
    # size
    **dict.fromkeys(("vocab_size", "num_vocab", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "hidden_dim", "n_embd", "d_model", "model_dim", "block_dim"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_hidden_size", "ff_intermediate_size", "n_inner", "block_ff_dim"), 64),
    **dict.fromkeys(("moe_intermediate_size", "expert_ffn_hidden_size", "moe_shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_expert_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp"), 32),
    **dict.fromkeys(("dense_intermediate_size", "moe_hidden_size"), 32),
    **dict.fromkeys(("share_expert_dim", "dim_model_base", "hidden_size_per_layer_input"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layers", "n_layer", "num_transformer_layers"), LAYERS),
    # attention
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_heads", "n_head", "mamba_n_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_attention_groups"), 2),
    **dict.fromkeys(("head_dim", "v_head_dim", "kv_channels", "hidden_size_per_head", "global_head_dim"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_head_dim", "index_head_dim", "swa_head_dim", "swa_v_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "o_lora_rank"), 32),
    **dict.fromkeys(("sliding_window", "sliding_window_size", "attention_window_size", "window_size"), WINDOW),
    **dict.fromkeys(("loop_window_size",), WINDOW),
    "sliding_window_pattern": 2,
    "full_attention_interval": 2,
    "layer_group_size": 2,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "query_pre_attn_scalar": 16,
    # As in the real models, so many that no two scores are equal: a tie would be broken by the order of columns.
    "index_n_heads": 32,
    "index_topk": 12,
    # positions
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "model_max_length", "block_size"), 512),
    **dict.fromkeys(("rope_theta", "rotary_emb_base", "swa_rope_theta", "rope_local_base_freq"), 10000.0),
    "rotary_pct": 0.5,
    "partial_rotary_factor": 0.5,
    "rope_scaling": None,
    # experts
    **dict.fromkeys(("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 4),
    **dict.fromkeys(
        ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_top_k", "moe_topk", "moe_k"), 2
    ),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts", "num_shared_expert", "num_dense_layers"), 1),
    **dict.fromkeys(("n_group", "topk_group", "moe_num_shared_experts", "first_k_dense_replace"), 1),
    **dict.fromkeys(("decoder_sparse_step", "moe_layer_freq", "zero_expert_num"), 1),
    "zero_expert_type": "identity",
    "topk_method": "noaux_tc",
    "mlp_only_layers": [],
    "routed_scaling_factor": 1.0,
    # recurrent layers
    **dict.fromkeys(("mamba_d_ssm",), 64),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "linear_key_head_dim", "linear_value_head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "state_size", "ssm_state_size"), 16),
    **dict.fromkeys(("mamba_d_conv", "conv_kernel", "conv_L_cache", "linear_conv_kernel_dim", "conv1d_width"), 4),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("mamba_expand", "mamba_n_groups", "n_groups", "group_norm_size"), 1),
    **dict.fromkeys(("conv_window", "time_step_rank"), 2),
    **dict.fromkeys(("a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim", "decay_low_rank_dim"), 8),
    # numbers that are 1 in an unscaled model
    **dict.fromkeys(("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps"), 1e-5),
    **dict.fromkeys(("logits_scaling", "attention_multiplier", "embedding_multiplier", "residual_multiplier"), 1.0),
    **dict.fromkeys(("scale_emb", "scale_depth", "logits_soft_cap", "gegelu_limit"), 1.0),
}

_HYBRID_WINDOW = {"layer_types": ["sliding_attention", "full_attention"] * (LAYERS // 2)}
_HYBRID_CONV = {"layer_types": ["conv", "full_attention"] * (LAYERS // 2)}
_YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
_DEEPSEEK_YARN = {**_YARN, "mscale": 1.0, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
_LLAMA4_YARN = {**_DEEPSEEK_YARN, "llama_4_scaling_beta": 0.1}
_ROPE_BY_KIND = {
    kind: {"rope_theta": 10000.0, "rope_type": "default"} for kind in ("sliding_attention", "full_attention")
}
_DELTA = {"num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4}
_LINEAR = {"linear_attn_config": {"kda_layers": [1, 3], "full_attn_layers": [2, 4], **_DELTA}}

#: What a family needs beside `SMALL`.
FAMILY: dict[str, dict[str, Any]] = {
    "afm7": {"num_kv_reuse_layers": 1},
    "afmoe": _HYBRID_WINDOW,
    "baichuan_m1": {"sliding_window_layers": [1, 3]},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8, "rope_theta": 10000.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_v2": {"rope_scaling": _DEEPSEEK_YARN},
    "exaone4": {"sliding_window_pattern": "LG"},
    "exaone_moe": {**_HYBRID_WINDOW, "is_moe_layer": [False, True] * (LAYERS // 2)},
    "gear": _HYBRID_WINDOW,
    "gemma3n": {
        **_HYBRID_WINDOW,
        "num_kv_shared_layers": 2,
        "final_logit_softcapping": 30.0,
        "activation_sparsity_pattern": [0.0] * LAYERS,
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "altup_active_idx": 0,
        "laurel_rank": 8,
    },
    "gemma4_text": {"num_kv_shared_layers": 2},
    "glm_moe_dsa": {"scoring_func": "sigmoid", "rope_parameters": {"type": "default", "rope_theta": 10000.0}},
    "gpt_oss": _HYBRID_WINDOW,
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * (LAYERS // 2), "mamba_n_heads": 4},
    "hunyuan": {
        "use_cla": True,
        "cla_share_factor": 2,
        "rope_scaling": {"type": "dynamic", "alpha": 1.0, "factor": 1.0},
    },
    "jamba": {"attn_layer_offset": 1, "attn_layer_period": 2, "expert_layer_offset": 1, "expert_layer_period": 2},
    "kimi_k3": {**_LINEAR, "activation_situ_beta": 1.0, "attn_res_block_size": 2},
    "kimi_linear": _LINEAR,
    "lfm2": {**_HYBRID_CONV, "block_multiple_of": 8, "block_ffn_dim_multiplier": 1.0},
    "lfm2_moe": _HYBRID_CONV,
    "llama4": {"attention_chunk_size": WINDOW, "interleave_moe_layer_step": 2, "num_experts_per_tok": 1},
    "llama4_text": {"no_rope_layers": [1, 0] * (LAYERS // 2)},
    "longcat_flash": {"attention_method": "MLA", "mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    "longcat_flash_ngram": {"mla_scale_q_lora": True, "mla_scale_kv_lora": True},
    "mamba2": {"num_heads": 4, "time_step_limit": [0.0, 100.0]},
    "mellum": {**_HYBRID_WINDOW, "rope_parameters": _ROPE_BY_KIND},
    "mimo_v2_flash": {
        "hybrid_layer_pattern": [1, 0] * (LAYERS // 2),
        "moe_layer_freq": [0, 1] * (LAYERS // 2),
        "scoring_func": "sigmoid",
    },
    "minicpm3": {"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 64}},
    "minimax_m3_vl": {
        "moe_layer_freq": [0, 1] * (LAYERS // 2),
        "index_n_heads": 2,
        "index_block_size": 4,
        "index_topk_blocks": 3,
    },
    "ministral3": {"rope_parameters": _LLAMA4_YARN, **_HYBRID_WINDOW},
    "mistral4": {"rope_parameters": _LLAMA4_YARN},
    "muse_spark": {
        **_HYBRID_WINDOW,
        "rope_parameters": {"rope_theta": 10000.0},
        "layer_rope_theta": [10000.0, 0.0] * (LAYERS // 2),
        "post_norm_eps": 1e-5,
        "final_logit_softcapping": 20.0,
        "output_multiplier": 1.0,
        "num_shared_experts": 0,
    },
    "nemotron": {"hidden_act": "relu2"},
    "nemotron-nas": {
        "block_configs": [{"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}}] * (LAYERS - 1)
        + [{"attention": {"no_op": True}, "ffn": {"ffn_mult": 1.0}}],
    },
    "nemotron_h": {"hybrid_override_pattern": ["M", "*", "E", "-"], "time_step_limit": [0.0, 100.0]},
    "openelm": {
        "ffn_dim_divisor": 8,
        "num_query_heads": [4] * LAYERS,
        "num_kv_heads": [2] * LAYERS,
        "ffn_multipliers": [1.0] * LAYERS,
    },
    "phi3small": {"dense_attention_every_n_layers": 2},
    "plamo": {"n_shared_head": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "spark2_5": {
        **_HYBRID_WINDOW,
        "rope_parameters": _ROPE_BY_KIND,
    },
}

#: Modules of ``mlx_lm.models`` that other modules are made of.
PARTS = {"activations", "base", "bitlinear_layers", "cache", "gated_delta", "mla", "pipeline", "rope_utils", "ssm"}
PARTS |= {"switch_layers"}

#: A tiny model is smaller than this, in weights: what is larger has a field that `SMALL` does not know.
TINY = 4_000_000


def families() -> list[str]:
    """The names of mlx-lm's model modules, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(mlx_lm.models.__path__) if module.name not in PARTS)


def build(family: str, seed: int = 0) -> nn.Module:
    """Makes a tiny model with random float32 weights.

    Raises:
        Exception: Whatever mlx-lm's own code raises where it cannot be built here.
    """
    module = importlib.import_module(f"mlx_lm.models.{family}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(small_config(family)))
    model.update(tree_map(_lively, model.parameters()))
    weights = sum(array.size for _, array in tree_flatten(model.parameters()))
    if weights > TINY:
        raise ValueError(f"{weights:,} weights are not tiny: configs.SMALL misses a field of {family}")
    model.eval()
    mx.eval(model.parameters())
    return model


def small_config(family: str) -> dict[str, Any]:
    """The config.json that a tiny model of this family would have."""
    module = importlib.import_module(f"mlx_lm.models.{family}")
    config = {"model_type": family, **_small(module.ModelArgs)}
    own = FAMILY.get(family, {})
    if "text_config" in {field.name for field in dataclasses.fields(module.ModelArgs)}:
        return {**config, "text_config": {**_text_config(module), **own}}
    return {**config, **own}


def _small(args: type) -> dict[str, Any]:
    """Small values for the fields of a dataclass; a required flag is off."""
    config: dict[str, Any] = {}
    for field in dataclasses.fields(args):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name in SMALL:
            config[field.name] = SMALL[field.name]
        elif required and field.type in (bool, "bool"):
            config[field.name] = False
    return config


def _text_config(module: ModuleType) -> dict[str, Any]:
    """The text part of a model that also sees: of a dataclass of its own, or of another family that it imports."""
    for args in vars(module).values():
        if dataclasses.is_dataclass(args) and "num_hidden_layers" in {field.name for field in dataclasses.fields(args)}:
            return {"model_type": "text", **_small(args)}
    for other in vars(module).values():
        if isinstance(other, ModuleType) and hasattr(other, "ModelArgs"):
            return small_config(other.__name__.rpartition(".")[2])
    return _text_config(importlib.import_module(module.Model.__mro__[1].__module__))


def _lively(weights: mx.array) -> mx.array:
    """Weights in float32 that make attention look far back; some families begin with zeros or with narrow spreads."""
    if not mx.issubdtype(weights.dtype, mx.floating):
        return weights
    weights = weights.astype(mx.float32)
    if weights.ndim < 2:
        return weights
    return 1.5 * weights + mx.random.normal(weights.shape) * (weights.shape[-1] ** -0.5)
