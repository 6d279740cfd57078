"""Scoring of given text against one plain forward pass."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest

from chatapp.engine import scoring
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.scoring import Scorer, Totals, score
from tests.cache.oracle import cold_logprobs
from tests.families.letters import Letters
from tests.sampling.test_metrics import reference
from tests.tiny import make

IDS = [int(token) for token in np.random.default_rng(0).integers(0, 96, 150)]


def scored(model, ids, **options):
    return [token for chunk in score(model, Letters(), ids, **{"context": 4096, **options}) for token in chunk]


def check(tokens, ids, logprobs):
    """Records against the log-probabilities after each id."""
    h, v, _ = reference(logprobs)
    assert [token.id for token in tokens] == ids
    assert [token.index for token in tokens] == list(range(len(ids)))
    assert (tokens[0].entropy, tokens[0].varentropy, tokens[0].surprisal) == (0, 0, 0)
    np.testing.assert_allclose([token.entropy for token in tokens[1:]], h[:-1], atol=1e-4)
    np.testing.assert_allclose([token.varentropy for token in tokens[1:]], v[:-1], atol=1e-3)
    surprisals = [-logprobs[place, token] for place, token in enumerate(ids[1:])]
    np.testing.assert_allclose([token.surprisal for token in tokens[1:]], surprisals, atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mamba2"])
@pytest.mark.parametrize("length", [1, 2, 32, 33, 150])
def test_equals_one_plain_forward_pass(family, length):
    model = make(family)
    plain = np.array(model(mx.array([IDS[:length]])), np.float64)[0]
    check(scored(model, IDS[:length]), IDS[:length], reference(plain)[2])


@pytest.mark.parametrize(("measured", "chunk"), [(96, 96), (96 * 7, 96 * 50), (1 << 22, 1 << 24)])
def test_chunks_do_not_matter(measured, chunk, monkeypatch):
    monkeypatch.setattr(scoring, "_MEASURED", measured)
    monkeypatch.setattr(scoring, "_CHUNK", chunk)
    model = make("llama")
    plain = np.array(model(mx.array([IDS])), np.float64)[0]
    check(scored(model, IDS, alternatives=3), IDS, reference(plain)[2])


def test_beyond_the_window_it_is_the_rotating_cache():
    model = make("llama")
    check(scored(model, IDS, window=40), IDS, cold_logprobs(model, IDS, 40, 4))


def test_beyond_the_trained_context_it_starts_again_with_half_a_window():
    model = make("llama")
    tokens = scored(model, IDS, context=64, window=32)
    assert [token.id for token in tokens] == IDS
    check(tokens[:64], IDS[:64], cold_logprobs(model, IDS[:64], 32, 4))
    second = cold_logprobs(model, IDS[48:112], 32, 4)
    expected = [-second[place, IDS[48 + place + 1]] for place in range(15, 63)]
    np.testing.assert_allclose([token.surprisal for token in tokens[64:112]], expected, atol=1e-4)


def test_alternatives_and_text():
    model = make("llama")
    tokens = scored(model, IDS[:40], alternatives=5)
    plain = reference(np.array(model(mx.array([IDS[:40]])), np.float64)[0])[2]
    assert tokens[0].top == ()
    for place, token in enumerate(tokens[1:]):
        assert [other.id for other in token.top] == np.argsort(-plain[place])[:5].tolist()
        assert [other.logprob for other in token.top] == pytest.approx(np.sort(plain[place])[::-1][:5], abs=1e-4)
    assert "".join(token.text for token in tokens) == Letters().decode(IDS[:40])


def test_a_prompt_can_be_scored_while_it_is_read():
    model = make("llama")
    plain = np.array(model(mx.array([IDS])), np.float64)[0]
    cache = SessionCache(model, CacheLimits(1024))
    scorer = Scorer(Letters(), IDS)
    tokens = []
    for _ in cache.prefill(IDS[:-1], 16, logits=scorer):
        tokens += scorer.take()
    check(tokens, IDS, reference(plain)[2])  # the last token, which the decode loop feeds, has its prediction too


def test_a_prompt_that_is_partly_in_the_cache():
    model = make("llama")
    plain = reference(np.array(model(mx.array([IDS])), np.float64)[0])[2]
    cache = SessionCache(model, CacheLimits(1024))
    for _ in cache.prefill(IDS[:60]):
        pass
    scorer = Scorer(Letters(), IDS[60:], first=60)
    for _ in cache.prefill(IDS[60:-1], 16, logits=scorer):
        pass
    tokens = scorer.take()
    assert [token.index for token in tokens] == list(range(60, len(IDS)))
    assert tokens[0].entropy == 0
    expected = [-plain[place - 1, IDS[place]] for place in range(61, len(IDS))]
    np.testing.assert_allclose([token.surprisal for token in tokens[1:]], expected, atol=1e-4)


def test_totals():
    model = make("llama")
    logp = reference(np.array(model(mx.array([IDS])), np.float64)[0])[2]
    totals = Totals()
    for chunk in score(model, Letters(), IDS, context=4096):
        totals.add(chunk)
    surprisal = -np.mean([logp[place, token] for place, token in enumerate(IDS[1:])])
    assert totals.tokens == len(IDS)
    assert totals.perplexity == pytest.approx(math.exp(surprisal), rel=1e-4)
    assert totals.mean_entropy == pytest.approx(reference(logp)[0][:-1].mean(), rel=1e-4)
    assert totals.mean_varentropy == pytest.approx(reference(logp)[1][:-1].mean(), rel=1e-3)
    assert Totals().perplexity == 1


def test_empty_and_cancelled():
    model = make("llama")
    assert scored(model, []) == []
    asked = []

    def cancelled():
        asked.append(None)
        return len(asked) > 1

    tokens = scored(model, IDS, cancelled=cancelled)
    assert 0 < len(tokens) < len(IDS)


def test_memory_does_not_grow_with_the_text(monkeypatch):
    """Ten times the text, the same peak; and the peak is far below vocabulary times length."""
    monkeypatch.setattr(scoring, "_MEASURED", 1 << 17)
    monkeypatch.setattr(scoring, "_CHUNK", 1 << 19)
    vocab = 8192
    model = make("llama", vocab_size=vocab)
    ids = [token % vocab for token in range(0, 3000 * 7, 7)]

    def peak(text):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        assert len(scored(model, text, window=128)) == len(text)
        return mx.get_peak_memory() - before

    short, long = peak(ids[:300]), peak(ids)
    assert long < 1.2 * short
    assert long < 3000 * vocab * 4 / 4
