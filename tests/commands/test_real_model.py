"""The one-shot commands on the real default model; expected numbers come from NumPy on plain mlx-lm logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.conftest import Program

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def plain(default_model_dir: Path) -> tuple[Any, Any]:
    """The model and tokenizer as mlx-lm loads them, in float32 as the engine computes on CPUs."""
    import mlx.core as mx
    from mlx_lm.utils import load

    model, tokenizer = load(str(default_model_dir))
    model.set_dtype(mx.float32)
    return model, tokenizer


def expected(model: Any, ids: list[int]) -> np.ndarray:
    """H, V and S of each token but the first, in float64: the formulas of the design, on logits of one plain pass."""
    import mlx.core as mx

    logits = np.array(model(mx.array([ids]))[0, :-1].astype(mx.float32)).astype(np.float64)
    highest = logits.max(axis=-1, keepdims=True)
    logp = logits - highest - np.log(np.exp(logits - highest).sum(axis=-1, keepdims=True))
    p = np.exp(logp)
    entropy = -(p * logp).sum(axis=-1)
    varentropy = (p * (logp + entropy[:, None]) ** 2).sum(axis=-1)
    surprisal = -np.take_along_axis(logp, np.array(ids[1:])[:, None], axis=-1)[:, 0]
    return np.stack([entropy, varentropy, surprisal], axis=1)


def test_the_capital_of_france(default_model_dir: Path, program: Program):
    done = program(
        "ask", "-m", default_model_dir, "--temperature", 0, "--max-tokens", 20,
        stdin="What is the capital of France?\n",
    )  # fmt: skip
    assert done.returncode == 0
    assert "Paris" in done.stdout


def test_the_numbers_of_an_answer(default_model_dir: Path, plain: tuple[Any, Any], program: Program):
    model, tokenizer = plain
    done = program(
        "ask", "-m", default_model_dir, "--json", "--temperature", 1, "--seed", 11, "--max-tokens", 24, "Name a colour."
    )
    start, *tokens, _ = [json.loads(line) for line in done.stdout.splitlines()]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "Name a colour."}], add_generation_prompt=True)
    assert start["prompt_tokens"] == len(prompt)
    numbers = expected(model, [*prompt, *(token["id"] for token in tokens)])[len(prompt) - 1 :]
    found = np.array([[token["entropy"], token["varentropy"], token["surprisal"]] for token in tokens])
    np.testing.assert_allclose(found, numbers, atol=1e-4)


def test_the_numbers_of_a_text(default_model_dir: Path, plain: tuple[Any, Any], program: Program):
    model, tokenizer = plain
    text = (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness."
    )
    done = program("score", "-m", default_model_dir, "--json", stdin=text)
    first, *tokens, end = [json.loads(line) for line in done.stdout.splitlines()]
    ids = tokenizer.encode(text)
    assert [token["id"] for token in (first, *tokens)] == ids
    found = np.array([[token["entropy"], token["varentropy"], token["surprisal"]] for token in tokens])
    numbers = expected(model, ids)
    np.testing.assert_allclose(found, numbers, atol=1e-3)
    assert end["perplexity"] == pytest.approx(np.exp(numbers[:, 2].mean()), rel=1e-3)
