"""Speculative decoding gives the plain loop's reply and numbers, whatever is guessed and whatever cache is behind."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.draft_model import ModelDrafter
from chatapp.engine.decode.gain import Costs
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.records import Limits
from chatapp.engine.decode.speculative import SpeculativeGenerator
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Sampling
from chatapp.tokens import Token
from tests import tiny
from tests.families.letters import Letters

PROMPT = [int(token) for token in np.random.default_rng(5).integers(0, 96, 20)]
SEED = 4
LONG = Limits(max_tokens=30)
model_of = functools.lru_cache(tiny.make)
GREEDY, WARM = Sampling(temperature=0.0), Sampling(temperature=0.9, top_k=40, repetition_penalty=1.1)


class Prophet:
    """Guesses the given reply, a few tokens or many, with a wrong token at every place that ``wrong`` names.

    Now and then it has nothing to guess, and says so before: the loop is then a step ahead.
    """

    def __init__(self, reply: Sequence[int], wrong: set[int]) -> None:
        self.reply = [(token + 1) % 96 if place in wrong else token for place, token in enumerate(reply)]
        self.drafts: list[tuple[int, int]] = []

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        return [] if _rests(index) else self.reply[index : index + min(most, (2, 5, 16)[index % 3])]

    def resting(self, ids: Sequence[int], most: int) -> bool:
        return _rests(len(ids) + 1 - len(PROMPT))

    def learn(self, drafted: int, accepted: int) -> None:
        self.drafts.append((drafted, accepted))


def _rests(index: int) -> bool:
    return index % 10 in (4, 5, 8)


def _parts(model, sampling: Sampling, capacity: int, prompt=PROMPT, step=7, kv_bits=None) -> dict:
    cache = SessionCache(model, CacheLimits(capacity, keep=4, kv_bits=kv_bits))
    cache.prepare(prompt)
    for _ in cache.prefill(prompt[:-1], step=step):
        pass
    config = Standard().configure(sampling, ModelFacts(96))
    common = {"model": model, "cache": cache, "tokenizer": Letters(), "sampler": Standard(), "config": config}
    return {**common, "seed": SEED}


def _plain(model, sampling, capacity, limits=LONG, prompt=PROMPT) -> tuple[list[Token], TokenGenerator]:
    generator = TokenGenerator(**_parts(model, sampling, capacity, prompt), limits=limits)
    return list(generator.generate(prompt)), generator


def _speculative(model, sampling, capacity, drafter, limits=LONG) -> tuple[list[Token], SpeculativeGenerator]:
    generator = SpeculativeGenerator(**_parts(model, sampling, capacity), limits=limits, drafter=drafter)
    return list(generator.generate(PROMPT)), generator


def _same(got: list[Token], expected: list[Token]) -> None:
    assert [token.id for token in got] == [token.id for token in expected]
    assert [token.text for token in got] == [token.text for token in expected]
    np.testing.assert_allclose(_numbers(got), _numbers(expected), atol=1e-4)
    for a, b in zip(got, expected, strict=True):
        assert [x.logprob for x in a.top] == pytest.approx([x.logprob for x in b.top], abs=1e-4)


def _numbers(tokens: list[Token]) -> np.ndarray:
    return np.array([[t.entropy, t.varentropy, t.surprisal, t.sampled_entropy] for t in tokens])


def _goes_on_exactly(generator: SpeculativeGenerator, model, capacity: int) -> None:
    """A further turn on the cache gives what a cold one gives."""
    cache = generator.cache
    assert isinstance(cache, SessionCache)
    prompt = [*cache.tokens, 1, 2, 3]
    cache.prepare(prompt)
    parts = {**_parts(model, GREEDY, capacity, prompt), "cache": cache}
    got = list(TokenGenerator(**parts, limits=Limits(max_tokens=5)).generate(prompt))
    _same(got, _plain(model, GREEDY, capacity, Limits(max_tokens=5), prompt)[0])


@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("capacity", [16, 32, 200], ids=["rotated", "rotating", "roomy"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_right_and_wrong_guesses_change_nothing(family: str, capacity: int, sampling: Sampling) -> None:
    model = tiny.make(family)
    expected, _ = _plain(model, sampling, capacity)
    wrong = {2, 3, 9, 16, 17, 18, 25}
    got, generator = _speculative(model, sampling, capacity, Prophet([t.id for t in expected], wrong))
    _same(got, expected)
    assert generator.outcome.finish == "length"
    assert 0 < generator.accepted < generator.drafted
    assert generator.passes == len(got) - generator.accepted, "each pass gives a token of its own"
    _goes_on_exactly(generator, model, capacity)


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "qwen3_next"])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    wrong=st.sets(st.integers(0, 29)),
    capacity=st.integers(10, 60),
    chunk=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
)
def test_any_guesses_in_any_cache_change_nothing(
    family: str, wrong: set[int], capacity: int, chunk: int, seed: int
) -> None:
    model = model_of(family)
    parts = {**_parts(model, WARM, capacity, step=chunk), "seed": seed, "limits": LONG}
    expected = list(TokenGenerator(**parts).generate(PROMPT))
    parts = {**_parts(model, WARM, capacity, step=chunk), "seed": seed, "limits": LONG}
    generator = SpeculativeGenerator(**parts, drafter=Prophet([token.id for token in expected], wrong))
    _same(list(generator.generate(PROMPT)), expected)
    _goes_on_exactly(generator, model, capacity)


@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
def test_guesses_in_a_quantized_cache_change_nothing(capacity: int) -> None:
    model = tiny.make("llama", head_dim=32)
    expected = list(TokenGenerator(**_parts(model, WARM, capacity, kv_bits=8), limits=LONG).generate(PROMPT))
    prophet = Prophet([token.id for token in expected], {2, 3, 9, 16, 25})
    generator = SpeculativeGenerator(**_parts(model, WARM, capacity, kv_bits=8), limits=LONG, drafter=prophet)
    _same(list(generator.generate(PROMPT)), expected)


@pytest.mark.parametrize("how", ["stop id", "stop string", "pause"])
@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "qwen3_next"])
def test_ends_inside_a_guess_as_the_plain_loop_does(family: str, capacity: int, how: str) -> None:
    model = tiny.make(family)
    expected, _ = _plain(model, WARM, capacity)
    limits = {
        "stop id": Limits(max_tokens=30, stop_ids=frozenset({expected[13].id})),
        "stop string": Limits(max_tokens=30, stop=(expected[12].text + expected[13].text,)),
        "pause": Limits(max_tokens=30, pause_above=max(token.entropy for token in expected[1:]) - 1e-3),
    }[how]
    ended, plain = _plain(model, WARM, capacity, limits)
    got, generator = _speculative(model, WARM, capacity, Prophet([t.id for t in expected], set()), limits)
    _same(got, ended)
    assert generator.outcome.finish == plain.outcome.finish
    assert generator.outcome.text == plain.outcome.text
    if plain.outcome.pending:
        assert generator.outcome.pending is not None
        assert generator.outcome.pending.id == plain.outcome.pending.id
        assert len(generator.cache.tokens) <= len(PROMPT) + len(got), "the token paused before was not read"
    _goes_on_exactly(generator, model, capacity)


@pytest.mark.parametrize("capacity", [16, 200], ids=["rotated", "roomy"])
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "mamba2"])
@pytest.mark.parametrize("seed", [0, 1], ids=["itself", "stranger"])
def test_a_draft_model_changes_nothing(family: str, capacity: int, seed: int) -> None:
    """A draft model that is the model itself is always right; one with other weights nearly never."""
    model, draft = tiny.make(family), tiny.make(family, seed=seed)
    expected, _ = _plain(model, WARM, capacity)
    parts = _parts(model, WARM, capacity)
    own = SessionCache(draft, CacheLimits(capacity, keep=4))
    drafter = ModelDrafter(draft, own, Standard(), parts["config"], SEED, costs=Costs(token=0.1))
    generator = SpeculativeGenerator(**parts, limits=LONG, drafter=drafter)
    _same(list(generator.generate(PROMPT)), expected)
    assert generator.drafted > 0
    if seed == 0:
        assert generator.accepted == generator.drafted
    else:
        assert generator.accepted < generator.drafted


@pytest.mark.parametrize("family", ["llama", "qwen3_next"])
def test_a_rewound_conversation_goes_on_speculating(family: str) -> None:
    model = tiny.make(family)
    first, generator = _speculative(model, WARM, 32, LookupDrafter())
    cache = generator.cache
    assert isinstance(cache, SessionCache)
    edited = [*PROMPT[:12], 7, 8, 9]
    cache.prepare(edited)
    expected, _ = _plain(model, WARM, 32, prompt=edited)
    parts = {**_parts(model, WARM, 32, edited), "cache": cache}
    prophet = Prophet([token.id for token in expected], {5, 6})
    again = SpeculativeGenerator(**parts, limits=LONG, drafter=prophet)
    _same(list(again.generate(edited)), expected)
    assert len(first) == 30


def test_where_attention_is_watched_nothing_is_guessed() -> None:
    model = tiny.make("llama")
    watched = {"probe": Probe(model), "attention": True, "limits": LONG}
    generator = SpeculativeGenerator(**_parts(model, GREEDY, 200), drafter=LookupDrafter(), **watched)
    got = list(generator.generate(PROMPT))
    assert got == list(TokenGenerator(**_parts(model, GREEDY, 200), **watched).generate(PROMPT))
    assert got[0].attention is not None
    assert generator.drafted == 0


def test_lookup_repeats_a_reply_that_repeats_itself() -> None:
    model = tiny.make("llama")
    loops = Sampling(temperature=0.0, repetition_penalty=0.5)  # below 1: what was said is said again
    expected, _ = _plain(model, loops, 200, Limits(max_tokens=120))
    got, generator = _speculative(model, loops, 200, LookupDrafter(), Limits(max_tokens=120))
    _same(got, expected)
    assert generator.accepted > 20
    assert generator.passes == 120 - generator.accepted


def test_guesses_across_the_beginning_of_rotation_leave_the_way_back() -> None:
    """Earlier edits go back to what the cache held before it rotated."""
    model = tiny.make("llama")
    expected, _ = _plain(model, WARM, 32)
    _, generator = _speculative(model, WARM, 32, Prophet([t.id for t in expected], set()))
    cache = generator.cache
    assert isinstance(cache, SessionCache)
    plan = cache.forecast([*PROMPT[:15], 1, 2])
    assert (plan.method, plan.reused) == ("trim", 15)
