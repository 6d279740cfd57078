"""The adaptive sampler on made-up logits: each corner's action, what lies between, and learned thresholds."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from scipy import stats

from chatapp.engine.samplers import AttentionScores, ModelFacts, create, thresholds
from chatapp.engine.samplers.thresholds import Levels
from chatapp.errors import UsageError
from chatapp.protocol import Sampling
from tests.sampling.test_metrics import reference

VOCAB = 1200
FIXED = {"low_entropy": 0.5, "high_entropy": 3.0, "low_varentropy": 0.8, "high_varentropy": 4.0}
NO_HISTORY = mx.zeros((1, 0), mx.uint32)


class Words:
    """A tokenizer in which " Wait" is one token and everything else is not."""

    def encode(self, text, add_special_tokens=True):
        return [17] if text == " Wait" else [1, 2]


FACTS = ModelFacts(VOCAB, Words())


def shaped(masses):
    """Logits with given probabilities at the first places and the rest spread over a thousand."""
    p = np.zeros(VOCAB)
    p[: len(masses)] = masses
    p[len(masses) : len(masses) + 1000] += max(0.0, 1 - sum(masses)) / 1000
    with np.errstate(divide="ignore"):
        return np.log(p).astype(np.float32)[None]


SURE = shaped([0.98, 0.02])
UNSURE = shaped(np.exp(-np.arange(100) / 50) / np.exp(-np.arange(100) / 50).sum())  # H = 4.4, V = 0.3
EXPLORING = shaped([0.5, 0.1, *[0.008] * 40])  # a few strong ones and a long tail
LOST = shaped([0.05] * 11)
BETWEEN = shaped([0.6, 0.2, 0.2])


def run(z, options=FIXED, seeds=(0,), scores=None, state=None, **sampling):
    sampler = create("adaptive")
    config = sampler.configure(Sampling(options={**options}, **sampling), FACTS)
    state = sampler.start(config, seeds) if state is None else state
    rows = mx.broadcast_to(mx.array(z), (len(seeds), VOCAB))
    token, doubt, state = sampler(rows, scores, NO_HISTORY, config, state)
    return token, doubt, [sampler.states[code] for code in doubt.state.tolist()], state


@pytest.mark.parametrize(
    ("z", "options", "expected"),
    [
        (SURE, {}, "argmax"),
        (UNSURE, {}, "hotter"),
        (UNSURE, {"ask": " Wait"}, "ask"),
        (EXPLORING, {}, "explore"),
        (LOST, {}, "resample"),
        (BETWEEN, {}, "blend"),
    ],
)
def test_each_corner_by_name(z, options, expected):
    h, v, _ = reference(z)
    token, doubt, state, _ = run(z, {**FIXED, **options})
    assert state == [expected], (h, v)
    assert doubt.entropy.item() == pytest.approx(h[0], abs=1e-4)
    assert doubt.varentropy.item() == pytest.approx(v[0], abs=1e-3)
    assert token.item() < VOCAB


def test_sure_is_the_likeliest_token_for_every_seed():
    token, doubt, _, _ = run(SURE, seeds=tuple(range(200)))
    assert set(token.tolist()) == {0}
    assert set(doubt.sampled_entropy.tolist()) == {0}


@pytest.mark.parametrize("ask", [" Wait", 17])
def test_it_asks_once_and_then_gets_hotter(ask):
    options = {**FIXED, "ask": ask}
    token, doubt, names, state = run(UNSURE, options)
    assert (token.item(), names, doubt.sampled_entropy.item()) == (17, ["ask"], 0)
    assert doubt.surprisal.item() == pytest.approx(-UNSURE[0, 17], abs=1e-4)
    _, doubt, names, state = run(UNSURE, options, state=state)
    assert names == ["hotter"]
    assert doubt.sampled_entropy.item() > 1
    assert run(UNSURE, options, state=state)[2] == ["hotter"]


def test_rows_ask_apart():
    options = {**FIXED, "ask": 17}
    sampler = create("adaptive")
    config = sampler.configure(Sampling(options=options), FACTS)
    state = sampler.start(config, (1, 2))
    both = mx.array(np.concatenate([UNSURE, SURE]))
    _, doubt, state = sampler(both, None, NO_HISTORY, config, state)
    assert [sampler.states[code] for code in doubt.state.tolist()] == ["ask", "argmax"]
    _, doubt, _ = sampler(mx.array(np.repeat(UNSURE, 2, 0)), None, NO_HISTORY, config, state)
    assert [sampler.states[code] for code in doubt.state.tolist()] == ["hotter", "ask"]


def resampled(q):
    """Chance of each candidate to be drawn second, when the first is drawn from q and then masked."""
    return np.array([sum(q[i] * q[j] / (1 - q[i]) for i in range(len(q)) if i != j) for j in range(len(q))])


def test_resampling_masks_the_first_draw():
    options = {**FIXED, "low_entropy": 0.1, "high_entropy": 0.2, "low_varentropy": 0.01, "high_varentropy": 0.02}
    masses = np.array([0.5, 0.3, 0.15, 0.05])
    z = shaped(masses)
    token, doubt, names, _ = run(z, options, seeds=tuple(range(8000)), top_p=1.0, temperature=1.0)
    assert set(names) == {"resample"}
    q = masses ** (1 / 2.25)  # twice the temperature, and half of one half for the missing attention statistics
    expected = resampled(q / q.sum())
    observed = np.bincount(token.tolist(), minlength=4)
    assert stats.chisquare(observed, expected * observed.sum()).pvalue > 1e-3
    assert doubt.sampled_entropy[0].item() == pytest.approx(-(expected * np.log(expected)).sum(), abs=1e-4)


def test_a_single_candidate_can_be_resampled():
    token, doubt, names, _ = run(LOST, seeds=tuple(range(20)), top_p=0.01)
    assert set(names) == {"resample"}
    assert len(set(token.tolist())) == 1
    assert doubt.sampled_entropy.tolist() == pytest.approx([0] * 20, abs=1e-5)


def scores(entropy=1.0, varentropy=1.0, agreement=0.5, interaction=1.0):
    return AttentionScores(*(mx.array([value]) for value in (entropy, varentropy, agreement, interaction)))


@pytest.mark.parametrize(
    ("z", "calm", "stirred"),
    [
        (UNSURE, scores(entropy=0.0), scores(entropy=9.0)),
        (EXPLORING, scores(interaction=0.0), scores(interaction=9.0)),
        (EXPLORING, scores(agreement=1.0), scores(agreement=0.0)),
    ],
)
def test_attention_moves_each_corner_as_documented(z, calm, stirred):
    less, more = (run(z, scores=given, top_p=1.0)[1].sampled_entropy.item() for given in (calm, stirred))
    assert less < more


def test_attention_heats_resampling_and_cuts_its_p():
    def entropy(given, top_p):
        return run(LOST, scores=given, top_p=top_p)[1].sampled_entropy.item()

    assert entropy(scores(varentropy=0.0), 1.0) <= entropy(scores(varentropy=9.0), 1.0)
    assert entropy(scores(entropy=9.0), 0.9) < entropy(scores(entropy=0.0), 0.9)


def test_missing_statistics_count_as_one_half():
    without = run(EXPLORING)[1].sampled_entropy.item()
    assert run(EXPLORING, scores=scores())[1].sampled_entropy.item() == pytest.approx(without, abs=1e-6)
    assert run(EXPLORING, scores=scores(interaction=5.0))[1].sampled_entropy.item() != pytest.approx(without, abs=1e-3)


def test_what_lies_between_the_corners_is_continuous():
    """Along a path from sure to lost the distribution drawn from changes in small steps, but at named corners."""
    sampler = create("adaptive")
    config = sampler.configure(Sampling(options={**FIXED}, top_p=1.0, top_k=1000), FACTS)
    path = np.linspace(0.0, 1.0, 1500)
    rows = np.concatenate([shaped([0.97 - 0.9 * part, 0.02 + 0.3 * part * (1 - part)]) for part in path])
    state = sampler.start(config, tuple(range(len(path))))
    _, doubt, _ = sampler(mx.array(rows), None, mx.zeros((len(path), 0), mx.uint32), config, state)
    names = np.array([sampler.states[code] for code in doubt.state.tolist()])
    entropy = np.array(doubt.sampled_entropy)
    smooth = np.isin(names, ("blend", "explore", "hotter"))
    both = smooth[1:] & smooth[:-1]
    assert {"blend", "explore"} <= set(names[1:][both])
    assert np.abs(np.diff(entropy))[both].max() < 0.05
    assert entropy[smooth].max() - entropy[smooth].min() > 1


def test_thresholds_are_learned_from_the_stream():
    rng = np.random.default_rng(0)
    h, v = rng.gamma(1.0, 0.8, 4000), rng.gamma(2.0, 1.5, 4000)
    counted = thresholds.empty(1)
    levels = Levels()
    np.testing.assert_allclose(np.array(thresholds.current(levels, counted)).ravel(), levels.prior, rtol=1e-6)
    for entropy, varentropy in zip(h, v, strict=True):
        counted = thresholds.count(counted, mx.array([entropy]), mx.array([varentropy]))
    expected = [np.percentile(h, 50), np.percentile(h, 90), np.percentile(v, 50), np.percentile(v, 90)]
    np.testing.assert_allclose(np.array(thresholds.current(levels, counted)).ravel(), expected, rtol=0.05)


def test_given_thresholds_hold_and_the_others_are_learned():
    levels = Levels(fixed=(None, 2.5, None, None))
    counted = thresholds.empty(2)
    for _ in range(500):
        counted = thresholds.count(counted, mx.array([1.0, 4.0]), mx.array([2.0, 0.0]))
    got = np.array(thresholds.current(levels, counted))
    assert got[:, 0, 1].tolist() == [2.5, 2.5]
    assert got[0, 0, 0] == pytest.approx(1.0, abs=0.1)
    assert got[1, 0, 0] == pytest.approx(4.0, abs=0.3)
    assert got[0, 1, 1] == pytest.approx(2.0, abs=0.4)


def test_extreme_numbers_are_counted_in_the_last_bins():
    counted = thresholds.count(thresholds.empty(1), mx.array([1e6]), mx.array([1e6]))
    assert counted.sum().item() == 2
    assert np.isfinite(np.array(thresholds.current(Levels(), counted))).all()


def test_it_is_pure():
    sampler = create("adaptive")
    config = sampler.configure(Sampling(options={"ask": 17}), FACTS)
    start = sampler.start(config, (3,))
    rows = [BETWEEN, LOST, EXPLORING, UNSURE, SURE] * 4

    def draw():
        state, drawn = start, []
        for z in rows:
            token, _, state = sampler(mx.array(z), None, NO_HISTORY, config, state)
            drawn.append(token.item())
        return drawn

    assert draw() == draw()
    assert start.index == 0
    assert not start.asked.item()
    assert start.histograms.sum().item() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ask": "Hold on"}, "ask must be a single token of the model, but 'Hold on' is 2 tokens"),
        ({"ask": VOCAB}, f"ask must be from 0 to {VOCAB - 1}"),
        ({"low_entropy": 4.0, "high_entropy": 2.0}, "must be below its high one"),
        ({"low_varentropy": -1}, "low_varentropy"),
        ({"low_entropy": "low"}, "low_entropy must be a number"),
        ({"low_percentile": 95}, "low_percentile must be below high_percentile"),
        ({"attention": 1}, "attention must be true or false"),
        ({"colour": 1}, "no option 'colour'"),
    ],
)
def test_a_bad_option_is_one_sentence(options, words):
    with pytest.raises(UsageError) as caught:
        create("adaptive").configure(Sampling(options=options), FACTS)
    assert words in str(caught.value)


def test_greedy_is_refused_with_advice():
    with pytest.raises(UsageError, match="take standard"):
        create("adaptive").configure(Sampling(temperature=0.0), FACTS)
