"""The standard sampler as a whole, on made-up logits: what it draws, what it says about it, and that it is pure."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from scipy import stats

from chatapp.engine.samplers import ModelFacts, create
from chatapp.errors import UsageError
from chatapp.protocol import Sampling
from tests.sampling.test_metrics import reference

VOCAB = 60
FACTS = ModelFacts(VOCAB)
NO_HISTORY = mx.zeros((1, 0), mx.uint32)


def logits(seed=0, rows=1):
    return np.random.default_rng(seed).standard_normal((rows, VOCAB)).astype(np.float32) * 2


def run(z, sampling, seeds=(0,), index=0, history=None):
    sampler = create("standard")
    config = sampler.configure(sampling, FACTS)
    history = NO_HISTORY if history is None else mx.array(history)
    return sampler(mx.array(z), None, history, config, sampler.start(config, seeds, index))


def draws(z, sampling, count=4000, history=None):
    """Draws at many places of a reply, as one batch would see them."""
    sampler = create("standard")
    config = sampler.configure(sampling, FACTS)
    seeds = tuple(range(count))
    rows = mx.broadcast_to(mx.array(z), (count, VOCAB))
    past = mx.broadcast_to(NO_HISTORY if history is None else mx.array(history), (count, len((history or [[]])[0])))
    token, _, _ = sampler(rows, None, past, config, sampler.start(config, seeds))
    return np.array(token)


def expected_distribution(z, sampling, penalized=None):
    """What the documented order gives, in float64."""
    z = np.asarray(z if penalized is None else penalized, np.float64)[0]
    alive = np.ones(VOCAB, bool)
    if sampling.top_k:
        alive &= z >= np.sort(z)[::-1][sampling.top_k - 1]
    p = np.where(alive, np.exp(z), 0)
    p /= p.sum()
    if sampling.top_p:
        order = np.argsort(-p)
        above = np.cumsum(p[order]) - p[order]
        alive[order[above >= sampling.top_p]] = False
    if sampling.min_p:
        alive &= p >= sampling.min_p * p.max()
    scaled = np.where(alive, np.exp(z / (sampling.temperature or 1.0)), 0)
    return scaled / scaled.sum()


CASES = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(temperature=1.7),
    Sampling(top_k=5),
    Sampling(top_k=1),
    Sampling(top_p=0.7),
    Sampling(min_p=0.2),
    Sampling(temperature=0.8, top_k=20, top_p=0.8, min_p=0.05),
    Sampling(temperature=1.5, top_p=0.95, min_p=0.02),
]


@pytest.mark.parametrize("sampling", CASES, ids=str)
def test_draws_and_entropy_follow_the_documented_distribution(sampling):
    z = logits(1)
    expected = expected_distribution(z, sampling)
    observed = np.bincount(draws(z, sampling), minlength=VOCAB)
    assert not observed[expected == 0].any()
    likely = expected * observed.sum() >= 8
    cells = np.array([*observed[likely], observed[~likely].sum()])
    wanted = np.array([*expected[likely], expected[~likely].sum()]) * observed.sum()
    if wanted[-1] == 0:
        cells, wanted = cells[:-1], wanted[:-1]
    if len(cells) > 1:
        assert stats.chisquare(cells, wanted * cells.sum() / wanted.sum()).pvalue > 1e-3
    known = expected[expected > 0]
    _, doubt, _ = run(z, sampling)
    assert doubt.sampled_entropy.item() == pytest.approx(-(known * np.log(known)).sum(), abs=1e-5)


@pytest.mark.parametrize("sampling", [*CASES, Sampling(temperature=0.0), Sampling(repetition_penalty=1.5)], ids=str)
def test_raw_numbers_do_not_depend_on_the_options(sampling):
    z = logits(2)
    h, v, logp = reference(z)
    token, doubt, _ = run(z, sampling, history=[[1, 2, 3]])
    assert doubt.entropy.item() == pytest.approx(h[0], abs=1e-5)
    assert doubt.varentropy.item() == pytest.approx(v[0], abs=1e-4)
    assert doubt.surprisal.item() == pytest.approx(-logp[0, token.item()], abs=1e-5)


def test_greedy_takes_the_likeliest_and_says_that_nothing_was_left_to_chance():
    z = logits(3, rows=4)
    token, doubt, _ = run(z, Sampling(temperature=0.0), seeds=(1, 2, 3, 4), history=[[]] * 4)
    assert token.tolist() == z.argmax(-1).tolist()
    assert doubt.sampled_entropy.tolist() == [0] * 4


def test_penalties_and_bias_come_before_the_choice():
    z = np.full((1, VOCAB), -5.0, np.float32)
    z[0, 7], z[0, 8], z[0, 9] = 2.0, 1.9, 1.0
    assert run(z, Sampling(temperature=0.0), history=[[7]])[0].item() == 7
    assert run(z, Sampling(temperature=0.0, repetition_penalty=1.2), history=[[7]])[0].item() == 8
    assert run(z, Sampling(temperature=0.0, logit_bias={9: 5.0}), history=[[7]])[0].item() == 9
    assert run(z, Sampling(temperature=0.0, logit_bias={7: -50.0}))[0].item() == 8


def test_penalties_reach_back_as_far_as_asked():
    z = np.full((1, VOCAB), -5.0, np.float32)
    z[0, 7], z[0, 8] = 2.0, 1.9
    sampler = create("standard")
    for context, expected in ((1, 7), (3, 8)):
        sampling = Sampling(temperature=0.0, presence_penalty=1.0, options={"penalty_context": context})
        config = sampler.configure(sampling, FACTS)
        assert sampler.lookback(config) == context
        token, _, _ = sampler(mx.array(z), None, mx.array([[7, 1, 2]]), config, sampler.start(config, (0,)))
        assert token.item() == expected


def test_xtc_leaves_end_of_turn_alone():
    z = np.full((1, VOCAB), -9.0, np.float32)
    z[0, 0], z[0, 1], z[0, 2] = 2.0, 1.5, 1.0
    sampling = Sampling(xtc_probability=1.0, xtc_threshold=0.1, top_k=10)
    sampler = create("standard")
    seen = {}
    for protected in ((), (0,)):
        config = sampler.configure(sampling, ModelFacts(VOCAB, protected=protected))
        rows = mx.broadcast_to(mx.array(z), (300, VOCAB))
        token, _, _ = sampler(rows, None, NO_HISTORY, config, sampler.start(config, tuple(range(300))))
        seen[protected] = set(token.tolist())
    assert seen[()].isdisjoint({0, 1})
    assert 0 in seen[(0,)]
    assert 1 not in seen[(0,)]


def test_same_state_same_draw_and_rows_are_those_of_single_runs():
    z = logits(4)
    sampling = Sampling(temperature=1.2)
    first = run(z, sampling, (5,), 3)
    again = run(z, sampling, (5,), 3)
    assert first[0].item() == again[0].item()
    rows = run(np.repeat(z, 8, 0), sampling, tuple(range(8)), 3, history=[[]] * 8)[0].tolist()
    assert rows == [run(z, sampling, (seed,), 3)[0].item() for seed in range(8)]
    assert len(set(rows)) > 1
    places = [run(z, sampling, (5,), index)[0].item() for index in range(30)]
    assert len(set(places)) > 3


def test_the_global_random_state_is_neither_read_nor_changed():
    z = logits(5)
    mx.random.seed(1)
    first = run(z, Sampling(temperature=1.0, xtc_probability=0.5))[0].item()
    after = mx.random.uniform().item()
    mx.random.seed(1)
    assert mx.random.uniform().item() == after
    mx.random.seed(99)
    assert run(z, Sampling(temperature=1.0, xtc_probability=0.5))[0].item() == first


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(temperature=-1.0), "temperature must be from 0 to 100"),
        (Sampling(temperature=math.nan), "temperature must be a number"),
        (Sampling(top_p=1.5), "top_p must be from 0 to 1"),
        (Sampling(top_k=-3), "top_k must be at least 0"),
        (Sampling(min_p=2.0), "min_p"),
        (Sampling(xtc_threshold=0.7), "xtc_threshold must be from 0 to 0.5"),
        (Sampling(repetition_penalty=0.0), "repetition_penalty"),
        (Sampling(logit_bias={VOCAB: 1.0}), f"logit_bias names token {VOCAB}"),
        (Sampling(logit_bias={1: math.nan}), "logit_bias must be a number"),
        (Sampling(options={"penalty_context": "many"}), "penalty_context must be a whole number, not 'many'"),
        (Sampling(options={"ask": 3}), "no option 'ask'; it has penalty_context"),
    ],
    ids=str,
)
def test_a_bad_option_is_one_sentence_that_names_it(sampling, words):
    with pytest.raises(UsageError) as caught:
        create("standard").configure(sampling, FACTS)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("penalty", [{}, {"repetition_penalty": 1.5}])
@pytest.mark.parametrize("p", [0.3, 0.9, 0.95, 0.999])
def test_top_p_without_top_k_is_measured_against_the_whole_vocabulary(p, penalty):
    vocab = 20_000
    z = np.random.default_rng(9).standard_normal((1, vocab)).astype(np.float32) * 4
    sampler = create("standard")
    config = sampler.configure(Sampling(top_p=p, **penalty), ModelFacts(vocab))
    history = mx.array(np.argsort(-z)[:, :3])
    _, doubt, _ = sampler(mx.array(z), None, history, config, sampler.start(config, (0,)))
    penalized = z.astype(np.float64)
    if penalty:
        penalized[0, np.array(history[0])] /= 1.5
    probabilities = np.exp(penalized[0] - penalized.max())
    probabilities = np.sort(probabilities / probabilities.sum())[::-1]
    kept = probabilities[: np.searchsorted(np.cumsum(probabilities), p) + 1]
    kept /= kept.sum()
    # One token more or less at the edge, where float32 and float64 may part, is worth less than this.
    assert doubt.sampled_entropy.item() == pytest.approx(-(kept * np.log(kept)).sum(), abs=1e-3)


def test_top_p_of_a_flat_distribution_keeps_every_equal_token():
    z = np.zeros((1, 20_000), np.float32)
    sampler = create("standard")
    config = sampler.configure(Sampling(top_p=0.9), ModelFacts(20_000))
    _, doubt, _ = sampler(mx.array(z), None, NO_HISTORY, config, sampler.start(config, (0,)))
    assert doubt.sampled_entropy.item() == pytest.approx(math.log(20_000), abs=1e-4)


def test_top_p_of_a_nearly_flat_distribution_is_exact():
    """No two tokens are equal, and the set has tens of thousands of them."""
    vocab, p = 128_000, 0.95
    z = np.random.default_rng(4).standard_normal((1, vocab)).astype(np.float32)
    sampler = create("standard")
    config = sampler.configure(Sampling(top_p=p), ModelFacts(vocab))
    _, doubt, _ = sampler(mx.array(z), None, NO_HISTORY, config, sampler.start(config, (0,)))
    probabilities = np.sort(np.exp(z[0].astype(np.float64)))[::-1]
    probabilities /= probabilities.sum()
    kept = probabilities[: np.searchsorted(np.cumsum(probabilities), p) + 1]
    kept /= kept.sum()
    assert doubt.sampled_entropy.item() == pytest.approx(-(kept * np.log(kept)).sum(), abs=1e-4)
