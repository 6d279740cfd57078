"""The numbers of a distribution against float64 NumPy, on ordinary and on extreme logits."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from chatapp.engine import metrics

VOCABULARIES = (32, 100, 4097, 49152, 151_936, 262_144)


def reference(z):
    """H, V and log-probabilities of softmax(z) in float64; terms of p = 0 count nothing."""
    z = np.asarray(z, np.float64)
    logp = z - z.max(-1, keepdims=True)
    logp = logp - np.log(np.exp(logp).sum(-1, keepdims=True))
    p = np.exp(logp)
    known = np.where(p > 0, logp, 0.0)
    h = -(p * known).sum(-1)
    return h, (p * (known + h[..., None]) ** 2).sum(-1), logp


def check(z, tolerance=1e-4):
    logits = mx.array(z)
    h, v, _ = reference(np.array(logits.astype(mx.float32)))
    got = metrics.spread(logits)
    np.testing.assert_allclose(np.array(got.entropy), h, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.array(got.varentropy), v, rtol=tolerance, atol=1e-5)
    np.testing.assert_allclose(np.array(metrics.entropy(logits)), h, rtol=1e-5, atol=1e-5)
    assert mx.array_equal(metrics.logsumexp(logits), got.logsumexp)
    np.testing.assert_allclose(
        np.array(got.logsumexp),
        special.logsumexp(np.array(logits.astype(mx.float32), np.float64), axis=-1),
        rtol=1e-6,
        atol=1e-5,
    )


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_random_logits(vocab, scale):
    check((np.random.default_rng(vocab).standard_normal((2, vocab)) * scale).astype(np.float32))


@given(
    st.lists(st.floats(-1e4, 1e4, width=32) | st.just(-math.inf), min_size=1, max_size=300),
    st.floats(-80, 80, width=32),
)
@settings(deadline=None, max_examples=150)
def test_any_logits(logits, finite):
    row = np.array([*logits, finite], np.float32)
    check(row[None])
    h = metrics.spread(mx.array(row)).entropy.item()
    v = metrics.spread(mx.array(row)).varentropy.item()
    assert 0 <= h <= math.log(len(row)) + 1e-5
    assert v >= 0


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_uniform_and_one_hot(vocab):
    uniform = metrics.spread(mx.full((1, vocab), -3.5))
    assert uniform.entropy.item() == pytest.approx(math.log(vocab), abs=2e-5)
    assert uniform.varentropy.item() == pytest.approx(0, abs=1e-5)
    one = mx.full((1, vocab), -math.inf)
    one[0, vocab // 2] = 7.0
    assert [value.item() for value in metrics.spread(one)] == [0, 0, 7]


@pytest.mark.parametrize("ties", [2, 3, 1000])
def test_ties_among_masked_tokens(ties):
    logits = np.full(49152, -np.inf, np.float32)
    logits[100 : 100 + ties] = 2.0
    got = metrics.spread(mx.array(logits))
    assert got.entropy.item() == pytest.approx(math.log(ties), abs=1e-5)
    assert got.varentropy.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("n", [32, 4096, 131_072])
def test_greatest_varentropy(n):
    """The most varied distribution: one likely token and n - 1 alike; sum p (logp + H)^2 = q (1 - q) w^2 there."""
    q = np.linspace(0.01, 0.99, 99)
    w = np.log(q / ((1 - q) / (n - 1)))
    logits = np.zeros((99, n), np.float32)
    logits[:, 0] = w
    got = metrics.spread(mx.array(logits))
    np.testing.assert_allclose(np.array(got.varentropy), q * (1 - q) * w**2, rtol=1e-4)
    if n == 131_072:
        assert 35 < got.varentropy.max().item() < 37  # about 36 nats² for a 128k vocabulary


@pytest.mark.parametrize("kind", [mx.bfloat16, mx.float16])
@pytest.mark.parametrize("vocab", [32, 49152, 262_144])
def test_half_precision_logits_are_summed_in_float32(vocab, kind):
    z = mx.array(np.random.default_rng(1).standard_normal((1, vocab)).astype(np.float32) * 3).astype(kind)
    got = metrics.spread(z)
    assert got.entropy.dtype == mx.float32
    check(z)


def test_small_varentropy_of_large_logits_does_not_cancel():
    z = np.array([[30_000.0, 30_000.0, 30_000.01, 29_000.0]], np.float32)
    check(z)


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_logprobs_and_surprisal(vocab):
    z = np.random.default_rng(2).standard_normal((3, vocab)).astype(np.float32) * 5
    z[:, 3] = -np.inf
    ids = np.array([[0, 3], [vocab - 1, 7], [5, 5]])
    logits = mx.array(z)
    got = np.array(metrics.logprob(logits, mx.array(ids), metrics.spread(logits).logsumexp))
    np.testing.assert_allclose(got, np.take_along_axis(reference(z)[2], ids, -1), rtol=1e-5, atol=1e-5)
    assert got[0, 1] == -math.inf


@given(
    vocab=st.sampled_from((1, 5, 32, 4096, 4097, 5000, 49152)),
    k=st.integers(1, 60),
    seed=st.integers(0, 2**32 - 1),
    distinct=st.sampled_from((2, 50, 10**6)),
)
@settings(deadline=None, max_examples=80)
def test_top_is_the_head_of_a_sort(vocab, k, seed, distinct):
    rng = np.random.default_rng(seed)
    z = rng.integers(0, distinct, (2, vocab)).astype(np.float32)
    z[rng.random((2, vocab)) < 0.1] = -np.inf
    ids = np.array(metrics.top(mx.array(z), k))
    assert ids.shape == (2, min(k, vocab))
    values = np.take_along_axis(z, ids.astype(np.int64), -1)
    np.testing.assert_array_equal(values, -np.sort(-z, axis=-1)[:, :k])
    assert all(len(set(row)) == len(row) for row in ids.tolist())


def test_top_works_when_nearly_everything_is_masked():
    z = np.full((1, 5000), -np.inf, np.float32)
    z[0, 4999] = 1.0
    ids = metrics.top(mx.array(z), 3).tolist()[0]
    assert ids[0] == 4999
    assert all(0 <= token < 5000 for token in ids)


def test_units():
    assert metrics.bits(math.log(2)) == pytest.approx(1)
    assert metrics.square_bits(math.log(2) ** 2) == pytest.approx(1)
