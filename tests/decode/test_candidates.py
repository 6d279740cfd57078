"""Candidates are the replies that single runs give, and the chosen one's cache goes on exactly."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.records import Limits
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Sampling
from chatapp.tokens import Token
from tests import tiny
from tests.families.letters import Letters

PROMPT = [int(token) for token in np.random.default_rng(5).integers(0, 96, 20)]
SEEDS = (11, 12, 13)


def _parts(model, sampling: Sampling, capacity: int, prompt=PROMPT, kv_bits=None):
    sampler = Standard()
    cache = SessionCache(model, CacheLimits(capacity, keep=4, kv_bits=kv_bits))
    cache.prepare(prompt)
    for _ in cache.prefill(prompt[:-1], step=7):
        pass
    config = sampler.configure(sampling, ModelFacts(96))
    return {"model": model, "cache": cache, "tokenizer": Letters(), "sampler": sampler, "config": config}


def _single(model, sampling, capacity, seed, limits, prompt=PROMPT) -> tuple[list[Token], TokenGenerator]:
    generator = TokenGenerator(**_parts(model, sampling, capacity, prompt), seed=seed, limits=limits)
    return list(generator.generate(prompt)), generator


def _batch(model, sampling, capacity, limits) -> tuple[list[list[Token]], CandidateGenerator]:
    generator = CandidateGenerator(**_parts(model, sampling, capacity), seeds=SEEDS, limits=limits)
    replies: list[list[Token]] = [[] for _ in SEEDS]
    for row, token in generator.generate(PROMPT):
        replies[row].append(token)
    return replies, generator


def _numbers(tokens: list[Token]) -> np.ndarray:
    return np.array([[t.entropy, t.varentropy, t.surprisal, t.sampled_entropy] for t in tokens])


@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_each_reply_is_the_one_of_its_seed_alone(family: str, capacity: int) -> None:
    model, sampling = tiny.make(family), Sampling(temperature=0.9, top_k=40, repetition_penalty=1.1)
    limits = Limits(max_tokens=24, alternatives=3)
    replies, generator = _batch(model, sampling, capacity, limits)
    assert len({tuple(token.id for token in reply) for reply in replies}) == len(SEEDS)
    for seed, reply, outcome in zip(SEEDS, replies, generator.outcomes, strict=True):
        alone, single = _single(model, sampling, capacity, seed, limits)
        assert [token.id for token in reply] == [token.id for token in alone]
        np.testing.assert_allclose(_numbers(reply), _numbers(alone), atol=1e-4)
        assert (outcome.finish, outcome.tokens, outcome.text) == ("length", 24, single.outcome.text)
        assert outcome.mean_entropy == pytest.approx(single.outcome.mean_entropy, abs=1e-4)


@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
def test_replies_in_a_quantized_cache(capacity: int) -> None:
    model, sampling, limits = tiny.make("llama", head_dim=32), Sampling(temperature=1.0), Limits(max_tokens=20)
    together = CandidateGenerator(**_parts(model, sampling, capacity, kv_bits=8), seeds=SEEDS, limits=limits)
    replies: list[list[Token]] = [[] for _ in SEEDS]
    for row, token in together.generate(PROMPT):
        replies[row].append(token)
    for seed, reply in zip(SEEDS, replies, strict=True):
        alone = TokenGenerator(**_parts(model, sampling, capacity, kv_bits=8), seed=seed, limits=limits)
        assert [token.id for token in reply] == [token.id for token in alone.generate(PROMPT)]


@pytest.mark.parametrize("how", ["stop id", "stop string", "pause"])
@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next"])
def test_replies_end_on_their_own_as_single_runs_do(family: str, capacity: int, how: str) -> None:
    """The first of the rows leaves first, so that the others stand elsewhere in the batch than in the list."""
    model, sampling = tiny.make(family), Sampling(temperature=1.0)
    alone, _ = _single(model, sampling, capacity, SEEDS[how == "pause"], Limits(max_tokens=20))
    later = max(token.entropy for token in alone[1:])
    limits = {
        "stop id": Limits(max_tokens=20, stop_ids=frozenset({alone[6].id})),
        "stop string": Limits(max_tokens=20, stop=(alone[6].text + alone[7].text,)),
        "pause": Limits(max_tokens=20, pause_above=later - 1e-3),
    }[how]
    replies, generator = _batch(model, sampling, capacity, limits)
    ends = set()
    for seed, reply, outcome in zip(SEEDS, replies, generator.outcomes, strict=True):
        expected, single = _single(model, sampling, capacity, seed, limits)
        assert [token.id for token in reply] == [token.id for token in expected]
        assert (outcome.finish, outcome.text) == (single.outcome.finish, single.outcome.text)
        assert (outcome.pending is None) == (single.outcome.pending is None)
        ends.add(len(reply))
    assert len(ends) > 1, "the replies should not all be equally long"
    if how == "stop id":
        assert len(replies[0]) < max(map(len, replies[1:]))


@pytest.mark.parametrize("chosen", [1, 2])
@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_chosen_cache_goes_on_as_a_cold_one(family: str, capacity: int, chosen: int) -> None:
    """The second reply ends while the others are still decoded, the third together with the first."""
    model, sampling = tiny.make(family), Sampling(temperature=1.0)
    middle, _ = _single(model, sampling, capacity, SEEDS[1], Limits(max_tokens=20))
    limits = Limits(max_tokens=20, stop_ids=frozenset({middle[8].id}))
    replies, generator = _batch(model, sampling, capacity, limits)
    generator.choose(chosen)
    cache = generator.cache
    assert isinstance(cache, SessionCache)
    ids = [token.id for token in replies[chosen]]
    assert cache.tokens[: len(PROMPT)] == PROMPT
    after = cache.tokens[len(PROMPT) :]
    assert after[: len(ids)] == ids[: len(after)]
    assert len(ids) - 1 <= len(after) <= len(ids) + 1, "all of the reply but at most its last token was read"
    prompt = [*cache.tokens, 1, 2, 3]
    plan = cache.prepare(prompt)
    assert plan.reused == len(prompt) - 3
    follow_up = TokenGenerator(
        model=model,
        cache=cache,
        tokenizer=Letters(),
        sampler=Standard(),
        config=generator.config,
        seed=3,
        limits=Limits(max_tokens=6),
    )
    expected, _ = _single(model, sampling, capacity, 3, Limits(max_tokens=6), prompt)
    got = list(follow_up.generate(prompt))
    assert [token.id for token in got] == [token.id for token in expected]
    np.testing.assert_allclose(_numbers(got), _numbers(expected), atol=1e-4)


@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_attention_of_each_reply_is_that_of_its_seed_alone(family: str) -> None:
    """Also after a reply has left the batch."""
    model, sampling = tiny.make(family), Sampling(temperature=1.0)
    middle, _ = _single(model, sampling, 16, SEEDS[1], Limits(max_tokens=20))
    limits = Limits(max_tokens=12, stop_ids=frozenset({middle[4].id}))
    watched = {"probe": Probe(model), "attention": True, "limits": limits}
    together = CandidateGenerator(**_parts(model, sampling, 16), seeds=SEEDS, **watched)
    replies: list[list[Token]] = [[] for _ in SEEDS]
    for row, token in together.generate(PROMPT):
        replies[row].append(token)
    for seed, reply in zip(SEEDS, replies, strict=True):
        alone = list(TokenGenerator(**_parts(model, sampling, 16), seed=seed, **watched).generate(PROMPT))
        for token, expected in zip(reply, alone, strict=True):
            assert token.attention is not None
            assert expected.attention is not None
            assert token.attention.layers == pytest.approx(expected.attention.layers, abs=1e-4)
            assert token.attention.interaction == pytest.approx(expected.attention.interaction, abs=1e-4)
            seen, wanted = token.attention.top[0], expected.attention.top[0]
            assert (seen.position, seen.text) == (wanted.position, wanted.text)


def test_a_cancelled_batch_leaves_every_reply_to_choose() -> None:
    model = tiny.make("llama")
    asked = iter([False, False, True])
    generator = CandidateGenerator(
        **_parts(model, Sampling(temperature=1.0), 200), seeds=SEEDS, cancelled=lambda: next(asked)
    )
    replies = list(generator.generate(PROMPT))
    assert [row for row, _ in replies] == [0, 1, 2] * 3
    assert {outcome.finish for outcome in generator.outcomes} == {"cancelled"}
    generator.choose(2)
    assert generator.cache.tokens[len(PROMPT) :][:3] == [token.id for row, token in replies if row == 2]
    with pytest.raises(ValueError, match="no cache"):
        generator.choose(1)


def test_a_closed_iterator_leaves_the_prompt_in_the_cache() -> None:
    parts = _parts(tiny.make("llama"), Sampling(temperature=1.0), 200)
    generator = CandidateGenerator(**parts, seeds=SEEDS)
    replies = generator.generate(PROMPT)
    next(replies)
    replies.close()
    assert parts["cache"].tokens == PROMPT
    assert parts["cache"].layers[0].offset == len(PROMPT)


def test_an_error_of_the_model_empties_the_cache() -> None:
    parts = _parts(tiny.make("llama"), Sampling(temperature=1.0), 200)
    good = parts["model"]
    calls = iter(range(10))

    def failing(ids: mx.array, cache: list) -> mx.array:
        if next(calls) == 2:
            raise RuntimeError("out of memory")
        return good(ids, cache=cache)

    generator = CandidateGenerator(**{**parts, "model": failing}, seeds=SEEDS)
    with pytest.raises(RuntimeError):
        list(generator.generate(PROMPT))
    assert parts["cache"].tokens == []


def test_no_tokens_asked_for() -> None:
    generator = CandidateGenerator(
        **_parts(tiny.make("llama"), Sampling(), 200), seeds=SEEDS, limits=Limits(max_tokens=0)
    )
    assert list(generator.generate(PROMPT)) == []
    assert [outcome.finish for outcome in generator.outcomes] == ["length"] * 3
