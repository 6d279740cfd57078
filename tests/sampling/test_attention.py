"""Attention statistics against NumPy in float64, from queries and keys caught where the model's kernel gets them."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models import base
from mlx_lm.models.cache import make_prompt_cache

from chatapp.engine.attention import Probe
from chatapp.engine.cache import layers
from tests.cache.oracle import cold_caches
from tests.families.configs import build
from tests.tiny import make as tiny

TEXT = [5, 17, 3, 88, 41, 9, 60, 22, 7, 71, 13, 2, 54, 30, 66, 19, 8, 35, 50, 12, 77, 1, 44, 90, 33]

#: Grouped queries, MLA expanded and absorbed, sliding window, sinks, longrope, hybrid with recurrent layers.
FAMILIES = ("llama", "phi3", "deepseek_v2", "deepseek_v3", "gemma3_text", "gpt_oss", "qwen3_next")


def make(family):
    return build(family) if family == "deepseek_v3" else tiny(family)


@pytest.fixture
def kernel_calls(monkeypatch):
    """What reaches MLX's fused attention kernel, call by call."""
    calls = []
    fused = mx.fast.scaled_dot_product_attention

    def note(queries, keys, values, *, scale, mask=None, sinks=None):
        calls.append(SimpleNamespace(q=queries, k=keys, scale=scale, mask=mask, sinks=sinks))
        return fused(queries, keys, values, scale=scale, mask=mask, sinks=sinks)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", note)
    return calls


def expected(call):
    """Weights (heads, keys), sink shares (heads,), valid scores (heads, valid) of the last query, in float64."""
    q = np.array(call.q, np.float64)[0, :, -1]
    k = np.array(call.k, np.float64)[0]
    k = np.repeat(k, q.shape[0] // k.shape[0], axis=0)
    scores = np.einsum("hd,hkd->hk", q, k) * call.scale
    valid = np.ones(scores.shape, bool)
    if isinstance(call.mask, mx.array):
        mask = np.array(call.mask)
        row = np.broadcast_to(mask[..., -1, :].reshape(-1, mask.shape[-1]), scores.shape)
        valid = row if mask.dtype == bool else row > -1e30
        scores = scores if mask.dtype == bool else scores + np.where(valid, row, 0)
    weights = np.where(valid, np.exp(scores), 0)
    sink = np.zeros(len(q)) if call.sinks is None else np.exp(np.array(call.sinks, np.float64))
    total = weights.sum(-1) + sink
    return weights / total[:, None], sink / total, [s[v] for s, v in zip(scores, valid, strict=True)]


def plogp(p):
    return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0)


def statistics(weights, sink, scores):
    heads = plogp(weights).sum(-1) + plogp(sink)
    agreement = (0.5 * np.abs(weights - weights.mean(0)).sum(-1)).mean()
    return heads, heads.mean(), heads.var(), agreement, np.abs(np.concatenate(scores)).mean()


def decode(model, ids, cache, chunk=7):
    """Reads all but the last id in chunks and the last one watched; returns the probe."""
    for start in range(0, len(ids) - 1, chunk):
        mx.eval(model(mx.array([ids[start : min(start + chunk, len(ids) - 1)]]), cache=cache))
    probe = Probe(model)
    assert probe.reason == ""
    with probe.watching():
        mx.eval(model(mx.array([ids[-1:]]), cache=cache))
    return probe


@pytest.mark.parametrize("capacity", [64, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_values_equal_numpy(family, capacity, kernel_calls):
    model = make(family)
    cache = layers.make(model, capacity, 4)
    probe = decode(model, TEXT, cache)
    seen = probe.layers()
    calls = kernel_calls[-len(seen) :]
    assert len(seen) == sum(1 for layer in cache if layers.positions(layer) is not None or family.startswith("deep"))

    rows = []
    for layer, call in zip(seen, calls, strict=True):
        weights, sink, scores = expected(call)
        heads, *row = statistics(weights, sink, scores)
        rows.append(row)
        np.testing.assert_allclose(np.array(layer.weights)[0], weights, atol=1e-5)
        np.testing.assert_allclose(np.array(layer.entropies())[0], heads, atol=1e-5)
        assert np.all(heads <= np.log([len(s) + 1 for s in scores]) + 1e-9)
    summary = probe.summary()
    assert summary is not None
    means = np.array(rows).mean(0)
    got = [summary.entropy, summary.varentropy, summary.agreement, summary.interaction]
    np.testing.assert_allclose([value.item() for value in got], means, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.array(summary.layers)[0], [row[0] for row in rows], atol=1e-5)
    np.testing.assert_allclose([value.item() for value in probe.scores()], rows[-1], rtol=1e-4, atol=1e-5)


def test_sinks_take_their_share(kernel_calls):
    model = tiny("gpt_oss")
    layer = decode(model, TEXT, layers.make(model, 64, 4)).layers()[0]
    assert layer.sink is not None
    assert layer.sink.min().item() > 1e-6
    np.testing.assert_allclose(np.array(layer.weights.sum(-1) + layer.sink), 1, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_keys(bits, monkeypatch):
    calls = []
    quantized = base.quantized_scaled_dot_product_attention

    def note(queries, keys, values, scale, mask, group_size, bits):
        plain = mx.dequantize(*keys, group_size=group_size, bits=bits)
        calls.append(SimpleNamespace(q=queries * 1.0, k=plain, scale=scale, mask=mask, sinks=None))
        return quantized(queries, keys, values, scale=scale, mask=mask, group_size=group_size, bits=bits)

    monkeypatch.setattr(base, "quantized_scaled_dot_product_attention", note)
    model = tiny("llama", head_dim=32)
    seen = decode(model, TEXT, layers.make(model, 16, 4, bits)).layers()
    assert len(seen) == 2
    for layer, call in zip(seen, calls[-2:], strict=True):
        np.testing.assert_allclose(np.array(layer.weights)[0], expected(call)[0], atol=1e-5)


def by_position(layer, count):
    weights = np.zeros(count)
    weights[layer.positions] = np.array(layer.weights)[0].mean(0)
    return weights


@pytest.mark.parametrize("family", ["llama", "phi3", "deepseek_v2", "gemma3_text", "gpt_oss"])
def test_same_text_same_attention_whatever_the_buffers(family):
    model = make(family)
    readings = []
    for capacity, chunk in ((32, 7), (200, 24), (4000, 1), (200, 3)):
        probe = decode(model, TEXT, layers.make(model, capacity, 4), chunk)
        readings.append(([heads.tolist() for heads in (layer.entropies() for layer in probe.layers())], probe.layers()))
    probe = decode(model, TEXT, make_prompt_cache(model))  # mlx-lm's own buffers, in steps of 256
    readings.append(([layer.entropies().tolist() for layer in probe.layers()], probe.layers()))
    for entropies, seen in readings[1:]:
        np.testing.assert_allclose(entropies, readings[0][0], atol=2e-5)
        for layer, first in zip(seen, readings[0][1], strict=True):
            got, wanted = by_position(layer, len(TEXT)), by_position(first, len(TEXT))
            np.testing.assert_allclose(got, wanted, atol=2e-5)


@pytest.mark.parametrize("family", ["llama", "phi3", "gemma3_text"])
def test_columns_of_a_turned_ring_are_mapped_to_positions(family):
    model = make(family)
    capacity, keep = 12, 4
    probe = decode(model, TEXT, layers.make(model, capacity, keep), chunk=1)
    oracle = Probe(model)
    with oracle.watching():
        mx.eval(model(mx.array([TEXT]), cache=cold_caches(model, len(TEXT), capacity, keep)))
    total = np.zeros(len(TEXT))
    for layer, cold in zip(probe.layers(), oracle.layers(), strict=True):
        wanted = np.array(cold.weights)[0].mean(0)
        np.testing.assert_allclose(by_position(layer, len(TEXT)), wanted, atol=2e-5)
        total += wanted / len(probe.layers())
    summary = probe.summary(top=5)
    assert summary is not None
    assert summary.top_positions.tolist()[0] == np.argsort(-total, kind="stable")[:5].tolist()
    np.testing.assert_allclose(summary.top_weights.tolist()[0], np.sort(total)[::-1][:5], atol=2e-5)


def test_rows_of_a_batch_are_measured_apart():
    model = tiny("llama")
    other = [token + 1 for token in TEXT]
    cache = layers.make(model, 64, 4)
    mx.eval(model(mx.array([TEXT[:-1], other[:-1]]), cache=cache))
    both = Probe(model)
    with both.watching():
        model(mx.array([TEXT[-1:], other[-1:]]), cache=cache)
    alone = decode(model, other, layers.make(model, 64, 4)).scores()
    for batch, single in zip(both.scores(), alone, strict=True):
        np.testing.assert_allclose(batch.tolist()[1], single.item(), rtol=1e-4)


def test_the_name_is_put_back_and_the_answer_unchanged():
    model = tiny("llama")
    module = importlib.import_module("mlx_lm.models.llama")
    plain = model(mx.array([TEXT]))
    probe = Probe(model)
    with probe.watching():
        assert module.scaled_dot_product_attention is not base.scaled_dot_product_attention
        watched = model(mx.array([TEXT]))
    assert module.scaled_dot_product_attention is base.scaled_dot_product_attention
    assert mx.array_equal(plain, watched)
    with pytest.raises(ZeroDivisionError), probe.watching():
        raise ZeroDivisionError
    assert module.scaled_dot_product_attention is base.scaled_dot_product_attention


@pytest.mark.parametrize("family", ["mamba2", "gemma2"])
def test_a_family_that_cannot_be_watched_says_so(family):
    probe = Probe(tiny(family) if family == "mamba2" else build(family))
    assert family in probe.reason
    with probe.watching():
        pass
    assert probe.scores() is None
    assert probe.summary() is None


def test_mlx_lm_models_call_attention_by_the_imported_name():
    """What the probe relies on; a change in mlx-lm must show here first."""
    import inspect

    from mlx_lm.models import gpt_oss, llama, qwen3

    for module in (llama, qwen3, gpt_oss):
        assert module.scaled_dot_product_attention is base.scaled_dot_product_attention
        assert "scaled_dot_product_attention(" in inspect.getsource(module)
    parameters = list(inspect.signature(base.scaled_dot_product_attention).parameters)
    assert parameters == ["queries", "keys", "values", "cache", "scale", "mask", "sinks"]
