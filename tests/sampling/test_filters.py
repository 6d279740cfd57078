"""Penalties, filters and the draw: against mlx-lm's functions of the same name, NumPy, and the chi-square test."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm import sample_utils
from scipy import stats

from chatapp.engine.samplers import filters
from chatapp.engine.samplers.base import step_key


def random_logits(seed, vocab, rows=2, scale=3.0):
    return np.random.default_rng(seed).standard_normal((rows, vocab)).astype(np.float32) * scale


def softmax(z):
    z = np.asarray(z, np.float64)
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def kept(logits):
    return np.isfinite(np.array(logits))


@given(seed=st.integers(0, 10**6), vocab=st.sampled_from((2, 7, 100, 5000)), p=st.floats(0.01, 0.999))
@settings(deadline=None, max_examples=60)
def test_top_p_keeps_the_smallest_set_that_reaches_the_mass(seed, vocab, p):
    z = random_logits(seed, vocab)
    support = kept(filters.top_p(mx.array(z), p))
    for row, keep in zip(softmax(z), support, strict=True):
        assert row[keep].sum() >= p - 1e-5
        assert row[keep].sum() - row[keep].min() < p + 1e-5
        assert keep.all() or row[keep].min() >= row[~keep].max()


def test_top_p_leaves_masked_tokens_out_and_minds_neither_zero_nor_its_sign():
    z = mx.array([[-math.inf, 0.0, -0.0, -math.inf, -3.0], [5.0, -math.inf, -math.inf, -math.inf, 5.0]])
    assert kept(filters.top_p(z, 0.9)).tolist() == [
        [False, True, True, False, False],
        [True, False, False, False, True],
    ]
    assert kept(filters.top_p(z, 0.999)).tolist()[0] == [False, True, True, False, True]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_top_p_equals_mlx_lm(p):
    z = mx.array(random_logits(3, 1000))
    np.testing.assert_array_equal(kept(filters.top_p(z, p)), kept(sample_utils.apply_top_p(z, p)))


@pytest.mark.parametrize("p", [0.01, 0.05, 0.2, 1.0])
def test_min_p_equals_mlx_lm_and_its_definition(p):
    z = random_logits(4, 1000)
    support = kept(filters.min_p(mx.array(z), p))
    np.testing.assert_array_equal(support, kept(sample_utils.apply_min_p(mx.array(z), p)))
    probabilities = softmax(z)
    np.testing.assert_array_equal(support, probabilities >= p * probabilities.max(-1, keepdims=True) * (1 - 1e-6))


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.3])
def test_xtc_drops_the_top_choices_but_the_least_of_them(threshold):
    z = np.log(np.array([[0.4, 0.25, 0.15, 0.12, 0.05, 0.03]], np.float32))
    nobody = mx.zeros((1, 6), mx.bool_)
    got = filters.xtc(mx.array(z), mx.array([[0.2]]), 0.5, threshold, nobody)
    np.testing.assert_array_equal(kept(got), kept(sample_utils.apply_xtc(mx.array(z), 1.0, threshold, [])))
    above = np.exp(z[0]) > threshold
    expected = ~above
    expected[np.flatnonzero(above)[-1]] = True
    assert kept(got)[0].tolist() == expected.tolist()

    untouched = filters.xtc(mx.array(z), mx.array([[0.7]]), 0.5, threshold, nobody)
    assert kept(untouched).all()
    protected = filters.xtc(mx.array(z), mx.array([[0.2]]), 0.5, threshold, mx.arange(6)[None] == 0)
    assert kept(protected)[0, 0]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition": 1.3}, sample_utils.make_repetition_penalty(1.3)),
        ({"presence": 0.7}, sample_utils.make_presence_penalty(0.7)),
        ({"frequency": 0.4}, sample_utils.make_frequency_penalty(0.4)),
    ],
)
def test_penalties_equal_mlx_lm(ours, theirs):
    z = random_logits(5, 40, rows=1)
    history = [3, 7, 3, 3, 39, 0]
    got = filters.penalize(mx.array(z), mx.array([history]), **ours)
    np.testing.assert_allclose(np.array(got), np.array(theirs(mx.array(history), mx.array(z))), rtol=1e-6)


def test_penalties_see_each_row_and_leave_the_raw_logits_alone():
    z = mx.zeros((2, 10)) + 2.0
    history = mx.array([[1, 1, 2], [4, 5, 5]])
    got = np.array(filters.penalize(z, history, repetition=2.0, presence=0.5, frequency=0.25))
    expected = np.full((2, 10), 2.0)
    expected[0, 1] = expected[1, 5] = 2 / 2 - 0.5 - 2 * 0.25
    expected[0, 2] = expected[1, 4] = 2 / 2 - 0.5 - 0.25
    np.testing.assert_allclose(got, expected)
    assert mx.array_equal(z, mx.full((2, 10), 2.0))
    assert filters.penalize(z, mx.zeros((2, 0), mx.int32), repetition=2.0) is z


def test_bias():
    got = filters.add_bias(mx.zeros((2, 5)), {1: 3.0, 4: -math.inf})
    assert got.tolist() == [[0, 3, 0, 0, -math.inf]] * 2


def sample(logits, count, seed=0):
    """Many independent draws from one row."""
    row = mx.broadcast_to(mx.array(logits)[None], (count, len(logits)))
    noise = mx.random.uniform(shape=(count, 2), key=mx.random.key(seed))
    return np.array(filters.draw(row, noise))


@pytest.mark.parametrize(("vocab", "count"), [(1, 100), (2, 20_000), (5, 20_000), (300, 20_000), (3000, 3_000)])
def test_draws_follow_the_distribution(vocab, count):
    logits = random_logits(vocab, vocab, rows=1, scale=2.0)[0]
    draws = sample(logits, count)
    expected = softmax(logits) * len(draws)
    order = np.argsort(-expected)
    # Places expected less than ten times are counted together, as the test asks.
    cells = np.flatnonzero(np.sort(-expected) <= -10)
    head = order[: len(cells)]
    observed = np.array([*(np.sum(draws == place) for place in head), np.sum(~np.isin(draws, head))])
    wanted = np.array([*expected[head], expected[order[len(cells) :]].sum()])
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    if len(wanted) > 1:
        assert stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-3


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should_be():
    """One running float32 sum over 262,144 probabilities would round many of them away."""
    logits = np.zeros(262_144, np.float32)
    logits[0] = math.log(262_143)  # half of the mass
    row = mx.broadcast_to(mx.array(logits)[None], (8, 262_144))
    noise = mx.random.uniform(shape=(60, 8, 2), key=mx.random.key(5))
    draws = np.array([np.array(filters.draw(row, noise[turn])) for turn in range(60)]).ravel()
    assert stats.binomtest(int((draws == 0).sum()), len(draws), 0.5).pvalue > 1e-3
    quarters = np.bincount(draws[draws > 0] // 65_536, minlength=4)
    assert stats.chisquare(quarters).pvalue > 1e-3
    assert len(set(draws[draws > 0])) > 0.98 * (draws > 0).sum()


@given(
    weights=st.lists(st.sampled_from((0.0, 1e-30, 1e-6, 0.3, 1.0)), min_size=1, max_size=600).filter(any),
    noise=st.tuples(*[st.sampled_from((0.0, 0.3, 0.999, 1 - 2.0**-24)) | st.floats(0, 0.99)] * 2),
)
@settings(deadline=None, max_examples=150)
def test_nothing_impossible_is_ever_drawn(weights, noise):
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([weights], np.float32))
    place = filters.draw(mx.array(logits), mx.array([noise])).item()
    assert place < len(weights)
    assert weights[place] > 0


def test_keys_differ_by_seed_place_and_use_and_are_stable():
    keys = {tuple(step_key(seed, index, use).tolist()) for seed in range(20) for index in range(50) for use in range(3)}
    assert len(keys) == 20 * 50 * 3
    assert step_key(2**64 + 3, 1).tolist() == step_key(3, 1).tolist()
    uniforms = np.array([filters.uniforms([step_key(7, index)], 2).tolist()[0] for index in range(2000)])
    assert stats.kstest(uniforms.ravel(), "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(uniforms[:-1, 0], uniforms[1:, 0])[0, 1]) < 0.08
    assert abs(np.corrcoef(uniforms.T)[0, 1]) < 0.08
