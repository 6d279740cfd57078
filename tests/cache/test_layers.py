"""The list of layers as a whole: bounds, going back, several sequences, quantization, for every family."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache import saved
from chatapp.engine.cache.pool import check_quantizable
from chatapp.engine.cache.quantized import QuantizedRotatingLayer
from chatapp.engine.cache.rotating import RotatingLayer
from chatapp.errors import ChatappError
from tests import tiny
from tests.cache.oracle import assert_same, cold_logprobs, logprobs

CAPACITY, KEEP = 20, 6


def ids_of(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 96, n).tolist()


def run(model: Any, layers: list[Any], ids: list[int]) -> np.ndarray:
    return logprobs(model(mx.array([ids]), cache=layers))


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_full_attention_layers_are_bounded_and_the_models_own_kinds_stay(family: str) -> None:
    model = tiny.make(family)
    own = {"gemma3_text": 1, "gpt_oss": 1, "mamba2": 2, "qwen3_next": 1}.get(family, 0)
    layers = kv.make(model, CAPACITY, KEEP)
    assert len(layers) == len(model.layers)
    assert sum(not isinstance(layer, RotatingLayer) for layer in layers) == own


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_memory_stays_that_of_c(family: str) -> None:
    model = tiny.make(family)
    layers = kv.make(model, CAPACITY, KEEP)
    run(model, layers, ids_of(CAPACITY))
    run(model, layers, [1])
    full = kv.size_in_bytes(layers)
    for token in ids_of(20 * CAPACITY):
        model(mx.array([[token]]), cache=layers)
        mx.eval(kv.arrays(layers))
    assert kv.size_in_bytes(layers) <= full
    held = {layer.keys.shape[2] for layer in layers if isinstance(layer, RotatingLayer)}
    assert held <= {CAPACITY}


def test_layers_inside_a_cache_list_are_bounded_too() -> None:
    from mlx_lm.models.cache import ArraysCache, CacheList, KVCache

    class Model:
        def make_cache(self) -> list[Any]:
            return [CacheList(KVCache(), ArraysCache(2)), KVCache()]

    layers = kv.make(Model(), CAPACITY, KEEP)  # type: ignore[arg-type]
    assert [type(layer).__name__ for layer in kv.flat(layers)] == ["RotatingLayer", "ArraysCache", "RotatingLayer"]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_what_was_saved_is_restored_any_number_of_times(family: str) -> None:
    model = tiny.make(family)
    ids = ids_of(60)
    layers = kv.make(model, CAPACITY, KEEP)
    run(model, layers, ids[:33])
    kept = saved.save(layers, 33)
    first = run(model, layers, ids[33:50])
    for token in (1, 2, 3):
        run(model, layers, [token])
    for _ in range(2):
        again = saved.restore(kept)
        assert_same(run(model, again, ids[33:50]), first, 1e-6)
        run(model, again, [5])


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("before", [5, 15, 45])
@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize("keep", [0, 2, 6])
def test_rollback_leaves_the_tokens_that_were_kept(family: str, before: int, singly: bool, keep: int) -> None:
    """Drafts before, across and after the start of rotation, read as a block or one by one."""
    model = tiny.make(family)
    ids = ids_of(before)
    block = ids_of(6, seed=1)
    layers = kv.make(model, CAPACITY, KEEP)
    run(model, layers, ids)
    place = saved.mark(layers, before, len(block))
    for part in [[token] for token in block] if singly else [block]:
        run(model, layers, part)
    kept = saved.rollback(layers, place, len(block), keep)
    assert kept in (0, keep)
    if kept < keep:
        run(model, layers, block[kept:keep])
    tail = ids_of(4, seed=2)
    expected = cold_logprobs(model, ids + block[:keep] + tail, CAPACITY, KEEP)
    assert_same(run(model, layers, tail), expected[-4:])


@pytest.mark.parametrize("family", tiny.FULL_ATTENTION)
def test_a_block_can_be_cut_short_without_reading_again(family: str) -> None:
    model = tiny.make(family)
    layers = kv.make(model, CAPACITY, KEEP)
    for token in ids_of(45):
        run(model, layers, [token])
    place = saved.mark(layers, 45, 6)
    run(model, layers, ids_of(6, seed=1))
    assert saved.rollback(layers, place, 6, keep=2) == 2
    assert kv.offset(layers) == 47


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("before", [5, 19, 45])
def test_rows_of_a_batch_go_their_own_ways(family: str, before: int) -> None:
    model = tiny.make(family)
    ids = ids_of(before)
    layers = kv.make(model, CAPACITY, KEEP)
    run(model, layers, ids)
    batch = kv.expand(layers, 3)
    replies = [ids_of(9, seed=row) for row in (1, 2, 3)]
    for column in zip(*replies, strict=True):
        logits = model(mx.array(column)[:, None], cache=batch)
    for row, reply in enumerate(replies):
        expected = cold_logprobs(model, [*ids, *reply], CAPACITY, KEEP)
        assert_same(logprobs(logits[row]), expected[-1:])
        assert_same(
            run(model, kv.select(batch, row), [7, 8]), cold_logprobs(model, [*ids, *reply, 7, 8], CAPACITY, KEEP)[-2:]
        )
    pair = kv.select(batch, [2, 0])
    out = model(mx.array([[7], [7]]), cache=pair)
    assert_same(logprobs(out[0]), cold_logprobs(model, [*ids, *replies[2], 7], CAPACITY, KEEP)[-1:])
    assert_same(logprobs(out[1]), cold_logprobs(model, [*ids, *replies[0], 7], CAPACITY, KEEP)[-1:])
    assert_same(run(model, layers, [7]), cold_logprobs(model, [*ids, 7], CAPACITY, KEEP)[-1:])


def quantizable(family: str) -> Any:
    sizes: dict[str, dict[str, Any]] = {
        "llama": {"head_dim": 32},
        "gemma3_text": {"head_dim": 32},
        "qwen3_next": {"head_dim": 64},
        "deepseek_v2": {"qk_nope_head_dim": 24, "v_head_dim": 32},
    }
    return tiny.make(family, **sizes[family])


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next", "deepseek_v2"])
def test_quantized_caches_rotate_and_answer_alike_on_every_path(family: str) -> None:
    model = quantizable(family)
    check_quantizable(model, 8)
    ids = ids_of(70)
    answers = []
    for chunks in ([1] * 70, [30, 1, 1, 1, 37], [5] * 14):
        layers = kv.make(model, CAPACITY, KEEP, kv_bits=8)
        at = 0
        for n in chunks:
            last = run(model, layers, ids[at : at + n])[-1:]
            at += n
        answers.append(last)
        assert any(isinstance(layer, QuantizedRotatingLayer) for layer in layers)
    # Differences in the last bit of a key, as between chunk sizes, may fall on either side of a quantization step.
    assert_same(answers[1], answers[0], tolerance=0.05)
    assert_same(answers[2], answers[0], tolerance=0.05)
    assert_same(answers[0], cold_logprobs(model, ids, CAPACITY, KEEP)[-1:], tolerance=0.5)


@pytest.mark.parametrize(
    ("family", "reason"),
    [("llama", "head dimension 16"), ("gpt_oss", "sinks|head dimension"), ("mamba2", "no full-attention cache")],
)
def test_a_model_that_cannot_have_a_quantized_cache_is_refused_with_the_reason(family: str, reason: str) -> None:
    with pytest.raises(ChatappError, match=reason):
        check_quantizable(tiny.make(family), 8)


def test_sinks_are_named_as_the_reason() -> None:
    with pytest.raises(ChatappError, match="sinks"):
        check_quantizable(tiny.make("gpt_oss", head_dim=32), 8)


def test_quantized_memory_is_smaller_and_bounded() -> None:
    model = quantizable("llama")
    plain, packed = (kv.make(model, CAPACITY, KEEP, bits) for bits in (None, 4))
    for layers in (plain, packed):
        run(model, layers, ids_of(CAPACITY))
        for token in ids_of(3 * CAPACITY):
            run(model, layers, [token])
    assert kv.size_in_bytes(packed) < kv.size_in_bytes(plain) / 3


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_positions_name_each_column(family: str) -> None:
    model = tiny.make(family)
    layers = kv.make(model, CAPACITY, KEEP)
    for chunk in (ids_of(9), [1], [2], ids_of(30), [1], [2], [3], ids_of(4)):
        run(model, layers, chunk)
        n = kv.offset(layers)
        for layer in layers:
            at = kv.positions(layer)
            if at is None:
                assert not hasattr(layer, "keys")
                continue
            assert len(at) == layer.keys_and_values()[0].shape[2]
            assert len(set(at)) == len(at)
            assert max(at) == n - 1
