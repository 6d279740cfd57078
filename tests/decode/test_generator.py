"""The decode loop: its ids and numbers against cold forward passes, and the cache after every way to end."""

from __future__ import annotations

from itertools import count

import mlx.core as mx
import numpy as np
import pytest

from chatapp.engine.attention import Probe
from chatapp.engine.cache.layers import offset
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode import Limits, TokenGenerator
from chatapp.engine.decode.replay import first_difference
from chatapp.engine.samplers import ModelFacts, create
from chatapp.protocol import Sampling
from tests.cache.oracle import assert_same, cold_logprobs
from tests.families.letters import Letters
from tests.sampling.test_metrics import reference
from tests.tiny import make

PROMPT = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]
GREEDY = Sampling(temperature=0.0)
DRAWN = Sampling(temperature=1.3, top_k=50)
CAPACITY, KEEP = 64, 4


def generator(model, sampling=GREEDY, prompt=PROMPT, capacity=CAPACITY, cache=None, limits=None, seed=7, **fields):
    if cache is None:
        cache = SessionCache(model, CacheLimits(capacity, KEEP))
        for _ in cache.prefill(prompt[:-1], 4):
            pass
    sampler = create(sampling.sampler)
    config = sampler.configure(sampling, ModelFacts(96, Letters()))
    return TokenGenerator(
        model=model,
        cache=cache,
        tokenizer=Letters(),
        sampler=sampler,
        config=config,
        seed=seed,
        limits=limits or Limits(max_tokens=12),
        **fields,
    )


def check_cache(model, cache, capacity=CAPACITY):
    """The record is the offset, and the next answer from here is a cold start's."""
    assert offset(cache.layers) == len(cache.tokens)
    ids = [*cache.tokens, 5]
    logits = model(mx.array([[5]]), cache=cache.layers)
    cold = cold_logprobs(model, ids, capacity, KEEP)[-1:]
    z = np.array(logits, np.float64)[0]
    assert_same(reference(z)[2], cold)


@pytest.mark.parametrize("capacity", [CAPACITY, 14], ids=["roomy", "rotated"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "deepseek_v2", "qwen3_next"])
def test_ids_and_numbers_equal_cold_passes(family, capacity):
    model = make(family)
    decoder = generator(model, capacity=capacity)
    tokens = list(decoder.generate(PROMPT))
    ids = list(PROMPT)
    for index, token in enumerate(tokens):
        logp = cold_logprobs(model, ids, capacity, KEEP)[-1]
        h, v, _ = reference(logp[None])
        assert token.index == index
        assert logp[token.id] >= logp.max() - 1e-4
        numbers = [token.entropy, token.varentropy, token.surprisal, token.sampled_entropy]
        np.testing.assert_allclose(numbers, [h[0], v[0], -logp[token.id], 0], atol=1e-4)
        assert len(token.top) == 10
        np.testing.assert_allclose([other.logprob for other in token.top], np.sort(logp)[::-1][:10], atol=1e-4)
        np.testing.assert_allclose([other.logprob for other in token.top], logp[[o.id for o in token.top]], atol=1e-4)
        ids.append(token.id)
    assert decoder.outcome.finish == "length"
    assert decoder.outcome.tokens == len(tokens) == 12
    assert decoder.outcome.text == "".join(token.text for token in tokens) == Letters().decode(ids[len(PROMPT) :])
    assert decoder.outcome.mean_entropy == pytest.approx(np.mean([token.entropy for token in tokens]))


@pytest.mark.parametrize("capacity", [CAPACITY, 14], ids=["roomy", "rotated"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mamba2"])
@pytest.mark.parametrize("how", ["length", "stop id", "stop string", "cancel", "close", "pause", "no room"])
def test_the_record_is_the_offset_however_it_ends(how, family, capacity):
    model = make(family)
    free = list(generator(model, capacity=capacity).generate(PROMPT))
    limits = {
        "stop id": Limits(max_tokens=12, stop_ids=frozenset([free[5].id])),
        "stop string": Limits(max_tokens=12, stop=(free[5].text,)),
        "pause": Limits(max_tokens=12, pause_above=max(token.entropy for token in free[:6]) - 1e-4),
        "no room": Limits(max_tokens=0),
    }.get(how, Limits(max_tokens=12))
    first = next(index for index, token in enumerate(free) if token.id == free[5].id)
    asked = count()
    decoder = generator(model, capacity=capacity, limits=limits, cancelled=lambda: how == "cancel" and next(asked) == 4)
    stream = decoder.generate(PROMPT)
    tokens = []
    for token in stream:
        tokens.append(token)
        record = decoder.cache.tokens
        assert record[: len(PROMPT)] == PROMPT
        assert offset(decoder.cache.layers) in (None, len(record))
        if how == "close" and len(tokens) == 3:
            stream.close()
    expected = {"length": 12, "cancel": 5, "close": 3, "no room": 0}.get(how, first)
    if how == "pause":
        expected = next(i for i, token in enumerate(free) if token.entropy > limits.pause_above)
    assert [token.id for token in tokens] == [token.id for token in free[:expected]]
    finish = {"stop id": "stop", "stop string": "stop", "pause": "paused", "no room": "length", "length": "length"}
    assert decoder.outcome.finish == finish.get(how, "cancelled")
    if family == "mamba2":
        assert offset(decoder.cache.layers) is None
        return
    check_cache(model, decoder.cache, capacity)


@pytest.mark.parametrize("capacity", [CAPACITY, 14], ids=["roomy", "rotated"])
def test_a_pause_leaves_the_pending_token_out_of_the_cache(capacity):
    """So that another one can be picked without going back, which a rotated cache could not."""
    model = make("llama")
    free = list(generator(model, capacity=capacity).generate(PROMPT))
    place = int(np.argmax([token.entropy for token in free[1:]])) + 1
    decoder = generator(model, capacity=capacity, limits=Limits(max_tokens=12, pause_above=free[place].entropy - 1e-4))
    tokens = list(decoder.generate(PROMPT))
    assert decoder.outcome.finish == "paused"
    assert decoder.outcome.pending.id == free[len(tokens)].id
    assert decoder.outcome.pending.index == len(tokens)
    assert decoder.outcome.pending.entropy == pytest.approx(free[len(tokens)].entropy, abs=1e-5)
    assert decoder.cache.tokens == PROMPT + [token.id for token in tokens]


@pytest.mark.parametrize(
    "sampling",
    [
        DRAWN,
        GREEDY,
        Sampling(
            sampler="adaptive",
            options={"low_entropy": 0.5, "high_entropy": 2.0, "low_varentropy": 0.5, "high_varentropy": 2.0},
        ),
    ],
    ids=["drawn", "greedy", "adaptive"],
)
def test_a_reply_goes_on_from_its_middle_as_it_would_have(sampling):
    model = make("llama")
    whole = list(generator(model, sampling, limits=Limits(max_tokens=20)).generate(PROMPT))
    ids = [token.id for token in whole]
    again = generator(model, sampling, prompt=PROMPT + ids[:8], reply=ids[:8])
    rest = list(again.generate(PROMPT + ids[:8]))
    assert [token.id for token in rest] == ids[8:]
    assert [token.index for token in rest] == list(range(8, 20))
    assert [token.text for token in rest] == [token.text for token in whole[8:]]


def test_seeds_decide():
    model = make("llama")
    replies = {seed: [t.id for t in generator(model, DRAWN, seed=seed).generate(PROMPT)] for seed in (1, 2, 3)}
    assert len({tuple(ids) for ids in replies.values()}) == 3
    for seed, ids in replies.items():
        mx.random.seed(seed + 100)  # whatever the global state is
        assert [t.id for t in generator(model, DRAWN, seed=seed).generate(PROMPT)] == ids


@pytest.mark.parametrize("sampler", ["standard", "adaptive"])
def test_a_reply_is_drawn_again_or_the_first_difference_found(sampler):
    model = make("llama")
    sampling = Sampling(sampler=sampler, temperature=1.0, seed=5)
    fields = {"probe": Probe(model)} if sampler == "adaptive" else {}
    ids = [t.id for t in generator(model, sampling, seed=5, **fields).generate(PROMPT)]
    arguments = (sampling, ModelFacts(96, Letters()), CacheLimits(CAPACITY, KEEP))
    assert first_difference(model, Letters(), PROMPT, ids, *arguments) is None
    assert first_difference(model, Letters(), PROMPT, [*ids[:6], (ids[6] + 1) % 96, *ids[7:]], *arguments) == 6


def test_penalties_see_prompt_and_reply():
    model = make("llama")
    sampling = Sampling(temperature=0.0, presence_penalty=100.0)
    ids = [t.id for t in generator(model, sampling, limits=Limits(max_tokens=30)).generate(PROMPT)]
    assert len({*PROMPT, *ids}) == len(PROMPT) + 30


def test_ranks_agree_on_what_is_fed():
    model = make("llama")
    forced = iter([11, 22, 33, 44, 55, 66])
    decoder = generator(
        model, limits=Limits(max_tokens=4), same=lambda ids: mx.full(ids.shape, next(forced), ids.dtype)
    )
    tokens = list(decoder.generate(PROMPT))
    assert [token.id for token in tokens] == [11, 22, 33, 44]
    check_cache(model, decoder.cache)
    logp = cold_logprobs(model, [*PROMPT, 11], CAPACITY, KEEP)[-1]
    assert tokens[1].entropy == pytest.approx(reference(logp[None])[0][0], abs=1e-4)


def test_ranks_agree_on_where_to_pause():
    """A rank whose own entropies never reach the threshold pauses where rank 0's does."""
    model = make("llama")
    free = list(generator(model).generate(PROMPT))
    said = iter([0.5, 0.5, 9.0])

    def rank_0(array):
        assert array.size == 2, "a token costs the ranks one collective: its id and the bits of its entropy"
        return mx.concatenate([array[:1], mx.array([next(said)]).view(mx.uint32)])

    decoder = generator(model, limits=Limits(max_tokens=12, pause_above=8.0), same=rank_0)
    assert [token.id for token in decoder.generate(PROMPT)] == [token.id for token in free[:2]]
    assert decoder.outcome.finish == "paused"


def test_after_an_error_the_cache_is_empty():
    model = make("llama")
    calls = count()

    def breaking(ids, cache):
        if next(calls) == 5:
            model(ids, cache=cache)  # the layers have read it by now
            raise RuntimeError("out of memory")
        return model(ids, cache=cache)

    decoder = generator(model)
    decoder.model = breaking
    with pytest.raises(RuntimeError):
        list(decoder.generate(PROMPT))
    assert decoder.cache.tokens == []
    assert offset(decoder.cache.layers) == 0


def test_one_synchronisation_for_each_token(monkeypatch):
    model = make("llama")
    decoder = generator(model)
    waits = []
    evaluate = mx.eval
    monkeypatch.setattr(mx, "eval", lambda *arrays: (waits.append(len(arrays)), evaluate(*arrays)))
    assert len(list(decoder.generate(PROMPT))) == 12
    assert len(waits) == 12


def test_the_next_step_runs_while_a_token_is_looked_at():
    model = make("llama")
    fed = []

    def noted(ids, cache):
        fed.append(ids.shape[1])
        return model(ids, cache=cache)

    decoder = generator(model)
    decoder.model = noted
    stream = decoder.generate(PROMPT)
    next(stream)
    assert len(fed) == 2
    list(stream)
    assert len(fed) == 12  # and no step more than there are tokens


def test_a_prompt_that_the_cache_does_not_begin_is_refused():
    model = make("llama")
    for wrong in (PROMPT[:-1], [*PROMPT[:4], 0, *PROMPT[5:]]):
        with pytest.raises(ValueError, match="proper beginning"):
            next(generator(model).generate(wrong))


def test_attention_is_reported_with_the_tokens_it_went_to():
    model = make("llama")
    plain = [token.id for token in generator(model).generate(PROMPT)]
    decoder = generator(model, probe=Probe(model), attention=True)
    tokens = list(decoder.generate(PROMPT))
    assert [token.id for token in tokens] == plain
    sequence = [*PROMPT, *plain]
    for index, token in enumerate(tokens):
        assert 0 <= token.attention.entropy <= np.log(len(PROMPT) + index) + 1e-5
        assert len(token.attention.layers) == 2
        weights = [looked.weight for looked in token.attention.top]
        assert weights == sorted(weights, reverse=True)
        assert sum(weights) <= 1 + 1e-5
        for looked in token.attention.top:
            assert looked.position < len(PROMPT) + index
            assert looked.text == Letters().decode([sequence[looked.position]])
    assert generator(model).probe is None


def test_watching_attention_keeps_no_keys_in_memory():
    model = make("llama")
    probe = Probe(model)
    before = mx.get_active_memory()
    decoder = generator(model, probe=probe, attention=True)
    assert len(list(decoder.generate(PROMPT))) > 1
    held = decoder.cache.nbytes
    decoder.cache.forget()
    assert mx.get_active_memory() - before < held / 4
