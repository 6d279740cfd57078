"""Scoring and decoding with the real default model, against mlx-lm alone and float64 NumPy."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import load
from mlx_lm.models.cache import make_prompt_cache

from chatapp.engine import scoring
from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode import Limits, TokenGenerator
from chatapp.engine.samplers import ModelFacts, create
from chatapp.engine.scoring import Totals, score
from chatapp.protocol import Sampling
from tests.sampling.test_metrics import reference

pytestmark = pytest.mark.model

#: From Lewis Carroll, Alice's Adventures in Wonderland (1865), in the public domain.
ALICE = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or "
    "twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, “and "
    "what is the use of a book,” thought Alice “without pictures or conversations?”\n\nSo she was considering in her "
    "own mind (as well as she could, for the hot day made her feel very sleepy and stupid), whether the pleasure of "
    "making a daisy-chain would be worth the trouble of getting up and picking the daisies, when suddenly a White "
    "Rabbit with pink eyes ran close by her.\n"
)


@pytest.fixture(scope="module")
def loaded(default_model_dir):
    return load(str(default_model_dir))


def test_score_equals_a_plain_forward_pass(loaded):
    model, tokenizer = loaded
    ids = tokenizer.encode(ALICE)
    plain = np.array(model(mx.array([ids]), cache=make_prompt_cache(model))[0].astype(mx.float32), np.float64)
    h, v, logp = reference(plain)
    totals, tokens = Totals(), []
    for chunk in score(model, tokenizer, ids, context=2048):
        totals.add(chunk)
        tokens += chunk
    np.testing.assert_allclose([token.entropy for token in tokens[1:]], h[:-1], atol=1e-3)
    np.testing.assert_allclose([token.varentropy for token in tokens[1:]], v[:-1], atol=1e-3)
    surprisals = [-logp[place, token] for place, token in enumerate(ids[1:])]
    np.testing.assert_allclose([token.surprisal for token in tokens[1:]], surprisals, atol=1e-3)
    assert totals.perplexity == pytest.approx(math.exp(np.mean(surprisals)), rel=1e-3)
    assert 2 < totals.perplexity < 100  # it is English to this model
    assert "".join(token.text for token in tokens) == ALICE


@pytest.mark.slow
def test_score_of_ten_times_the_text_takes_no_more_memory(loaded, monkeypatch):
    model, tokenizer = loaded
    monkeypatch.setattr(scoring, "_CHUNK", 32 * 49152)
    ids = tokenizer.encode(ALICE)[:72]

    def peak(text):
        mx.clear_cache()
        mx.reset_peak_memory()
        before = mx.get_active_memory()
        assert sum(len(chunk) for chunk in score(model, tokenizer, text, context=2048, window=32)) == len(text)
        return mx.get_peak_memory() - before

    assert peak(ids * 10) < 1.1 * peak(ids)


def test_decoded_numbers_equal_float64(loaded):
    model, tokenizer = loaded
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True
    )
    sampler = create("standard")
    cache = SessionCache(model, CacheLimits(512))
    for _ in cache.prefill(prompt[:-1]):
        pass
    generator = TokenGenerator(
        model=model,
        cache=cache,
        tokenizer=tokenizer,
        sampler=sampler,
        config=sampler.configure(Sampling(temperature=0.8, top_k=20), ModelFacts(49152, tokenizer)),
        seed=4,
        limits=Limits(max_tokens=12, stop_ids=frozenset(tokenizer.eos_token_ids)),
        probe=Probe(model),
        attention=True,
    )
    tokens = list(generator.generate(prompt))
    ids = prompt + [token.id for token in tokens]
    plain = np.array(model(mx.array([ids]))[0].astype(mx.float32), np.float64)[len(prompt) - 1 :]
    for token, row in zip(tokens, plain, strict=False):
        h, v, logp = reference(row[None])
        numbers = [token.entropy, token.varentropy, token.surprisal]
        np.testing.assert_allclose(numbers, [h[0], v[0], -logp[0, token.id]], atol=1e-3)
        kept = np.sort(row)[::-1][:20] / 0.8
        drawn_from = np.exp(kept - kept.max()) / np.exp(kept - kept.max()).sum()
        expected = -(drawn_from * np.log(drawn_from)).sum()
        # top-k and temperature as documented, at the model's own default of top-p 1
        assert token.sampled_entropy == pytest.approx(expected, abs=1e-3)
        assert len(token.attention.layers) == 30
