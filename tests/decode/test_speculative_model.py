"""On the default model: what speculation and candidates give is what the plain loop gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlx_lm.utils import load

from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.records import Limits
from chatapp.engine.decode.speculative import SpeculativeGenerator
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Sampling
from chatapp.tokens import Token

pytestmark = pytest.mark.model

NAMES = ["Ada", "Boris", "Clara", "David", "Elena", "Fritz"]
LIST = "\n".join(f"{number}. {name} keeps the lighthouse on day {number}." for number, name in enumerate(NAMES, 1))
EDIT = f"{LIST}\n\nRepeat this whole list, but write Anna instead of Ada."


@pytest.fixture(scope="module")
def loaded(default_model_dir: Path) -> tuple[Any, Any]:
    model, tokenizer, *_ = load(str(default_model_dir))
    return model, tokenizer


def _parts(loaded: tuple[Any, Any], sampling: Sampling, capacity: int) -> tuple[dict[str, Any], list[int]]:
    model, tokenizer = loaded
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": EDIT}], add_generation_prompt=True)
    cache = SessionCache(model, CacheLimits(capacity, keep=4))
    cache.prepare(prompt)
    for _ in cache.prefill(prompt[:-1]):
        pass
    config = Standard().configure(sampling, ModelFacts(len(tokenizer)))
    parts = {"model": model, "cache": cache, "tokenizer": tokenizer, "sampler": Standard(), "config": config}
    return {**parts, "limits": Limits(max_tokens=40)}, prompt


def _same(got: list[Token], expected: list[Token]) -> None:
    assert [token.id for token in got] == [token.id for token in expected]
    assert "".join(token.text for token in got) == "".join(token.text for token in expected)
    numbers = [[(token.entropy, token.varentropy, token.surprisal) for token in tokens] for tokens in (got, expected)]
    np.testing.assert_allclose(numbers[0], numbers[1], atol=2e-3)


@pytest.mark.parametrize("capacity", [64, 1024], ids=["rotated", "roomy"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_lookup_gives_the_plain_reply(loaded, temperature: float, capacity: int) -> None:
    sampling = Sampling(temperature=temperature)
    parts, prompt = _parts(loaded, sampling, capacity)
    expected = list(TokenGenerator(**parts, seed=3).generate(prompt))
    parts, _ = _parts(loaded, sampling, capacity)
    generator = SpeculativeGenerator(**parts, seed=3, drafter=LookupDrafter())
    _same(list(generator.generate(prompt)), expected)
    if capacity > len(prompt) and temperature == 0:
        assert generator.accepted >= 10, "the reply copies most of its prompt"


def test_candidates_are_the_replies_of_their_seeds(loaded) -> None:
    sampling = Sampling(temperature=0.7, top_p=0.95)
    parts, prompt = _parts(loaded, sampling, 64)
    generator = CandidateGenerator(**parts, seeds=(1, 2))
    replies: list[list[Token]] = [[], []]
    for row, token in generator.generate(prompt):
        replies[row].append(token)
    for seed, reply in zip((1, 2), replies, strict=True):
        parts, _ = _parts(loaded, sampling, 64)
        _same(reply, list(TokenGenerator(**parts, seed=seed).generate(prompt)))
