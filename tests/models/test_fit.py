"""What fits in memory: sizes against caches that were really filled, decisions against plain arithmetic."""

import dataclasses
import importlib

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from chatapp.errors import ChatappError
from chatapp.models import fit
from chatapp.models.fit import OVERHEAD, Need, decide, kv_bytes_per_token, trained_context, wired_limit

CONFIGS = {
    "llama": {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 50,
    },
    "qwen3": {
        "model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5, "vocab_size": 50,
        "max_position_embeddings": 512, "rope_theta": 1e4, "tie_word_embeddings": True,
    },
    "gpt2": {
        "model_type": "gpt2", "n_ctx": 512, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 512,
        "layer_norm_epsilon": 1e-5, "vocab_size": 50,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", CONFIGS)
def test_cache_bytes_are_those_of_a_filled_cache(kind):
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    model = module.Model(module.ModelArgs.from_dict(CONFIGS[kind]))
    cache = make_prompt_cache(model)
    mx.eval(model(mx.zeros((1, 256), mx.int32), cache=cache))
    # 256 tokens: the step in which a cache grows
    filled = sum(array.nbytes for layer in cache for array in layer.state if isinstance(array, mx.array))
    assert kv_bytes_per_token(CONFIGS[kind], 4) * 256 == filled


def test_the_language_part_of_a_multimodal_configuration_counts():
    nested = {"model_type": "gemma3", "text_config": CONFIGS["qwen3"]}
    assert kv_bytes_per_token(nested, 2) == kv_bytes_per_token(CONFIGS["qwen3"], 2)
    assert trained_context(nested) == 512


def test_recurrent_models_have_no_growing_cache():
    assert kv_bytes_per_token({"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2}, 2) == 0


def test_the_whole_context_where_it_fits():
    assert decide("M", Need(10**9, 10**5), 8192, None, 10**10) == fit.Fit(8192)


def test_a_smaller_capacity_is_chosen_and_said():
    room = 10**9
    found = decide("M", Need(10**9, 10**5), 100_000, None, 10**9 + OVERHEAD + room)
    assert found.capacity <= room * fit.CACHE_SHARE / 10**5 < found.capacity + 256
    assert f"holds {found.capacity} of the model's 100000 tokens" in found.note
    assert "--max-kv-size up to 9984 would fit" in found.note


def test_what_was_asked_for_is_taken_or_refused_never_changed():
    need = Need(4_600_000_000, 131_072)
    assert decide("M", need, 131_072, 2048, 6 * 10**9).capacity == 2048
    with pytest.raises(ChatappError) as caught:
        decide("M", need, 131_072, 32_768, 6 * 10**9)
    assert str(caught.value) == (
        "M needs 9.3 GB with --max-kv-size 32768, 6.0 GB are free: try --max-kv-size 7424, or a smaller version."
    )
    assert need.total(7424) <= 6 * 10**9 < need.total(7424 + 256)


def test_weights_alone_too_large():
    with pytest.raises(
        ChatappError, match=r"M needs 5\.\d GB of memory, 3\.2 GB are free: close other programs, or try"
    ):
        decide("M", Need(4_600_000_000, 131_072), 8192, None, 3_200_000_000)


def test_apples_wired_limit(monkeypatch):
    def sysctl(text):
        monkeypatch.setattr(fit.subprocess, "run", lambda *_, **__: type("Said", (), {"stdout": text}))

    sysctl("0\n")
    assert wired_limit(24 * 1024**3) == 16 * 1024**3
    assert wired_limit(64 * 1024**3) == 48 * 1024**3
    sysctl("20000\n")
    assert wired_limit(24 * 1024**3) == 20000 * 1024**2
    sysctl("not a number")
    assert wired_limit(24 * 1024**3) == 16 * 1024**3


def test_on_apple_silicon_the_wired_limit_bounds_what_is_available(monkeypatch):
    @dataclasses.dataclass
    class Memory:
        available: int = 20 * 1024**3
        total: int = 24 * 1024**3

    monkeypatch.setattr(fit.psutil, "virtual_memory", Memory)
    monkeypatch.setattr(fit, "wired_limit", lambda total: 16 * 1024**3)
    monkeypatch.setattr(fit.platform, "system", lambda: "Darwin")
    assert fit.available_bytes() == 16 * 1024**3
    monkeypatch.setattr(fit.platform, "system", lambda: "Linux")
    assert fit.available_bytes() == 20 * 1024**3
