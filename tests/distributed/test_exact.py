"""Several ranks give what one process gives: ids, what was reused, and the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chatapp.protocol import Sampling, Turn
from tests.distributed.conftest import Start
from tests.distributed.talk import ADAPTIVE, SEEDED, Said, Talk, assert_alike, assert_took_place, everything
from tests.engine.folder import write_deeper, write_model
from tests.models.test_loading import make_adapter

#: Two words only, of which a random model makes something that can be guessed in part.
REPEATING: dict[str, Any] = {"logit_bias": {17: 40.0, 18: 40.0}, "max_tokens": 40}

#: Another rank's machine has other settings and another matrix library; rank 0's count.
OTHER_MACHINE = """
import os
if os.environ.get("MLX_RANK") == "1":
    os.environ["CHATAPP_CONFIG_DIR"] = os.path.dirname(__file__)
    os.environ["CHATAPP_BLAS"] = "stock"
"""


@pytest.mark.parametrize(("family", "ranks"), [("llama", 3), ("gpt_oss", 2), ("deepseek_v2", 2)])
async def test_a_long_conversation_with_a_tiny_model(
    start: Start, divisible_model: Path, family: str, ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Full attention; windows, sinks and experts; one latent for all heads."""
    model = divisible_model if family == "llama" else write_model(tmp_path / family, family=family)
    one = await everything(await start(1), model, capacity=128, words=6)
    (tmp_path / "sitecustomize.py").write_text(OTHER_MACHINE)
    (tmp_path / "config.toml").write_text("[cache]\ncheckpoint_bytes = 1\npool_bytes = 1\ndisk = false\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    several = await everything(await start(ranks), model, capacity=128, words=6)
    assert_alike(one, several)
    assert_took_place(several, 128)


@pytest.mark.model
@pytest.mark.timeout(1800)
async def test_three_ranks_with_the_default_model(start: Start, default_model_dir: Path):
    one = await everything(await start(1), default_model_dir, capacity=96, words=2)
    three = await everything(await start(3), default_model_dir, capacity=96, words=2)
    assert_alike(one, three)
    assert_took_place(three, 96)


async def test_guesses_are_checked_alike(
    start: Start, divisible_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On two ranks prompt lookup and a draft model give the reply of the plain loop on one."""
    question = Turn("user", "one, two, three, four, one, two, three, four, one, two, three,")
    model = write_deeper(tmp_path / "deeper", divisible_model, 12)
    (tmp_path / "sitecustomize.py").write_text(OTHER_MACHINE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    one, two = await start(1), await start(2)
    said: list[list[Said]] = []
    for engine, draft in ((one, None), (two, "lookup"), (two, str(divisible_model))):
        talk = Talk(engine)
        await talk.load(model, max_kv_size=256, draft=draft)
        await talk.reply("greedy", question, sampling=Sampling(temperature=0.0, **REPEATING))
        await talk.reply("seeded", question, sampling=Sampling(temperature=0.7, seed=3, **REPEATING))
        await talk.cancelled(question)
        assert bool(talk.guessed) == bool(draft)
        said.append(talk.said)
    assert_alike(said[0], said[1])
    assert_alike(said[0], said[2])
    # Each rank draws a seed of its own then: rank 0's counts, also for what is guessed.
    await talk.reply("without a seed", question, sampling=Sampling(temperature=0.7, **REPEATING))
    again = Talk(one)
    await again.reply("again", question, sampling=Sampling(temperature=0.7, seed=talk.seed, **REPEATING))
    assert again.said[-1].ids == talk.said[-1].ids


def write_odd(folder: Path) -> Path:
    """Layers instead of heads: of three heads two ranks cannot have equally many."""
    sizes = {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 3}
    return write_model(folder, family="deepseek_v2", **sizes)


@pytest.mark.parametrize("kind", ["tensor", "pipeline"])
async def test_an_adapter(start: Start, divisible_model: Path, tmp_path: Path, kind: str):
    """Of LoRA, which changes what the model says; the ranks have it in their share of the weights."""
    model = divisible_model if kind == "tensor" else write_odd(tmp_path / "odd")
    adapter = make_adapter(model, tmp_path)
    question = Turn("user", "What is the capital of France?")
    said: list[list[Said]] = []
    for ranks in (1, 2):
        talk = Talk(await start(ranks))
        for option in (None, str(adapter)):
            loaded = await talk.load(model, max_kv_size=256, adapter=option)
            assert loaded.parallel == ("" if ranks == 1 else f"{kind} ×2")
            await talk.reply(f"adapter {option}", question, sampling=SEEDED)
        said.append(talk.said)
    assert said[0][0].ids != said[0][1].ids
    assert_alike(*said)


async def test_a_pipeline_of_unlike_layers(start: Start, tmp_path: Path):
    """Recurrent layers on one rank, attention on another: they go back to different places by themselves."""
    model = write_model(tmp_path / "hybrid", family="qwen3_next", head_dim=32, num_hidden_layers=4)
    question = Turn("user", "one, two, three, four, one, two, three, four, one, two, three,")
    said: list[list[Said]] = []
    for ranks in (1, 3):
        engine = await start(ranks)
        found = await everything(engine, model, capacity=128, words=6)
        talk = Talk(engine, conversation="guessed")
        loaded = await talk.load(model, max_kv_size=256, draft="lookup" if ranks > 1 else None)
        assert loaded.parallel == ("" if ranks == 1 else "pipeline ×3")
        await talk.reply("guessed", question, sampling=Sampling(temperature=0.7, seed=3, **REPEATING))
        assert bool(talk.guessed) == (ranks > 1)
        await talk.load(model, max_kv_size=256, kv_bits=8)
        await talk.reply("quantized", question)
        said.append([*found, *talk.said])
    assert_alike(*said)
    assert_took_place(said[1], 128)


async def test_a_pipeline(start: Start, tmp_path: Path):
    model = write_odd(tmp_path / "odd")
    said: list[list[Said]] = []
    for ranks, stopped in ((1, 1), (2, 60)):
        talk = Talk(await start(ranks))
        loaded = await talk.load(model, max_kv_size=64, keep=6)
        assert loaded.parallel == ("" if ranks == 1 else "pipeline ×2")
        question = Turn("user", "What is the capital of France?")
        answer = await talk.reply("first", question, attention=True)
        # Leaves the first reply for long enough that it gets a checkpoint; "beyond C" goes back to that.
        await talk.reply("another branch", Turn("user", "What is the capital of Italy?"))
        # At its first token, or beyond C: what the later steps reuse does not depend on it.
        await talk.cancelled(question, after=stopped)
        other = await talk.reply("edited", Turn("user", "What is the capital of Spain?"), sampling=SEEDED)
        more = await talk.reply("adaptive", Turn("user", "Yes!"), sampling=ADAPTIVE, attention=True)
        assert more.tokens
        attention = talk.said[-1].tokens[0].attention
        assert attention is not None
        assert len(attention.layers) == 3
        candidates = {"sampling": SEEDED, "candidates": 2, "attention": True}
        await talk.reply("beyond C", question, answer, question, other, question, **candidates)
        assert talk.said[-1].facts[2] == "checkpoint"
        said.append(talk.said)
    assert_alike(*said)
