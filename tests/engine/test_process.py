"""The engine as a process: what it answers, how it stops, and that nothing of it stays behind."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from chatapp import paths
from chatapp.client import Engine, EngineLost, RequestFailed
from chatapp.protocol import (
    AnyEvent,
    Cancel,
    Choose,
    Done,
    Ended,
    Forecast,
    Forecasted,
    Generate,
    Leave,
    Load,
    Loaded,
    Note,
    Prefill,
    Sampling,
    Score,
    Scored,
    Started,
    Tokens,
    Turn,
)
from chatapp.tokens import Token
from tests.engine.folder import write_deeper

HOT = Sampling(temperature=1.0, seed=7, max_tokens=12)
LONG = Turn("user", "The quick brown fox jumps over the lazy dog. " * 2500)


async def generate(engine: Engine, *turns: Turn, sampling: Sampling = HOT, **options: object) -> list[AnyEvent]:
    request = Generate(engine.next_request(), options.pop("conversation", "c"), turns, sampling, **options)  # pyright: ignore
    return [event async for event in engine.request(request)]


def one(events: list[AnyEvent], kind: type) -> AnyEvent:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1
    return found[0]


def tokens_of(events: list[AnyEvent], candidate: int = 0) -> list[Token]:
    return [t for e in events if isinstance(e, Tokens) and e.candidate == candidate for t in e.tokens]


async def test_start_returns_before_the_engine_has_imported_mlx(tiny_model: Path):
    engine = await Engine.start()
    assert engine.alive
    assert engine._hello.done() is False
    hello = await engine.hello()
    assert hello.pid == engine.pid
    assert hello.blas in ("mkl", "openblas", "stock", "accelerate")
    await engine.close()
    assert not engine.alive
    assert "terminate called" not in engine.log.read_text()


async def test_a_reply_from_load_to_end(tiny_model: Path):
    engine = await Engine.start()
    loaded = await engine.ask(Load(engine.next_request(), str(tiny_model), max_kv_size=4096))
    assert isinstance(loaded, Loaded)
    assert loaded.max_kv_size == 4096
    assert loaded.context == 65536
    events = await generate(engine, Turn("user", "Hello"))
    started, ended = one(events, Started), one(events, Ended)
    assert started.reused + started.prefilled == started.prompt_tokens
    assert started.method == "cold"
    tokens = tokens_of(events)
    assert [token.index for token in tokens] == list(range(ended.tokens))
    assert ended.text.startswith("".join(token.text for token in tokens))
    assert ended.seed == 7
    assert all(token.entropy >= 0 and token.varentropy >= 0 for token in tokens)
    await engine.close()


async def test_same_seed_same_ids(engine: Engine):
    runs = [await generate(engine, Turn("user", "Hello"), conversation="") for _ in range(2)]
    other = await generate(
        engine, Turn("user", "Hello"), conversation="", sampling=Sampling(temperature=1.0, seed=8, max_tokens=12)
    )
    first, second = ([token.id for token in tokens_of(run)] for run in runs)
    assert first == second
    assert first != [token.id for token in tokens_of(other)]


async def test_the_second_turn_reads_only_what_is_new(engine: Engine):
    question = Turn("user", "What is the capital of France?")
    first = await generate(engine, question)
    ids = tuple(token.id for token in tokens_of(first))
    turns = (question, Turn("assistant", one(first, Ended).text, ids), Turn("user", "And?"))
    forecast = await engine.ask(Forecast(engine.next_request(), "c", turns))
    second = await generate(engine, *turns)
    started = one(second, Started)
    assert isinstance(forecast, Forecasted)
    assert (forecast.reused, forecast.prefilled, forecast.method) == (
        started.reused,
        started.prefilled,
        started.method,
    )
    # The last sampled id is in the cache only when another one followed it.
    assert started.reused >= one(first, Started).prompt_tokens + len(ids) - 1
    cold = await generate(engine, *turns, conversation="")
    assert one(cold, Started).reused == 0
    assert [t.id for t in tokens_of(cold)] == [t.id for t in tokens_of(second)]


async def test_going_on_from_a_token_draws_the_same_tokens(engine: Engine):
    question = Turn("user", "Tell me a story")
    whole = await generate(engine, question, conversation="")
    tokens = tokens_of(whole)
    kept = tokens[:5]
    last = Turn("assistant", "".join(t.text for t in kept), tuple(t.id for t in kept))
    rest = await generate(
        engine, question, last, conversation="", continue_last=True,
        sampling=Sampling(temperature=1.0, seed=7, max_tokens=12 - 5),
    )  # fmt: skip
    assert [(t.index, t.id) for t in tokens_of(rest)] == [(t.index, t.id) for t in tokens[5:]]


async def test_cancel_while_the_prompt_is_read(engine: Engine):
    request = engine.next_request()
    seen: list[Prefill] = []
    async for event in engine.request(Generate(request, "c", (LONG,), HOT)):
        if isinstance(event, Prefill):
            seen.append(event)
            engine.post(Cancel(engine.next_request(), target=request))
        else:
            assert isinstance(event, Ended)
            assert (event.finish, event.tokens, event.text) == ("cancelled", 0, "")
            assert event.cached == seen[-1].done < seen[-1].total
    forecast = await engine.ask(Forecast(engine.next_request(), "c", (LONG,)))
    assert forecast.reused == event.cached


async def test_cancel_while_decoding(engine: Engine):
    request = engine.next_request()
    endless = Sampling(temperature=1.0, seed=1, max_tokens=50_000, logit_bias={2: -100.0})
    cancelled = False
    async for event in engine.request(Generate(request, "c", (Turn("user", "Hello"),), endless)):
        if isinstance(event, Tokens) and not cancelled:
            cancelled = True
            engine.post(Cancel(engine.next_request(), target=request))
    assert isinstance(event, Ended)
    assert event.finish == "cancelled"
    assert 0 < event.tokens < 50_000


async def test_leaving_the_loop_cancels(engine: Engine):
    endless = Sampling(temperature=1.0, seed=1, max_tokens=50_000, logit_bias={2: -100.0})
    events = engine.request(Generate(engine.next_request(), "c", (Turn("user", "Hello"),), endless))
    async for event in events:
        if isinstance(event, Tokens):
            break
    await events.aclose()
    assert isinstance(await engine.ask(Leave(engine.next_request(), "c")), Done)


async def test_what_fails_leaves_the_engine_running(engine: Engine, tiny_model: Path, tmp_path: Path):
    hello = (Turn("user", "Hello"),)
    wrong = [
        (Generate(1001, "c", hello, Sampling(sampler="nosuch")), "nosuch"),
        (Generate(1002, "c", hello, Sampling(temperature=-1.0)), "temperature"),
        (Generate(1003, "c", hello, continue_last=True), "reply"),
        (Generate(1004, "c", (Turn("user", LONG.content * 10),)), "65536"),
        (Generate(1008, "c", hello, candidates=0), "candidates"),
        (Choose(1005, 77, 0), "candidates"),
    ]
    for request, word in wrong:
        with pytest.raises(RequestFailed, match=word):
            await engine.ask(request)
    assert one(await generate(engine, *hello), Ended).finish in ("stop", "length")
    with pytest.raises(RequestFailed) as refused:
        await engine.ask(Load(1006, str(tmp_path / "nothing")))
    assert refused.value.kept
    assert one(await generate(engine, *hello), Ended).finish in ("stop", "length")
    damaged = shutil.copytree(tiny_model, tmp_path / "damaged")
    for weights in damaged.glob("*.safetensors"):
        weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(RequestFailed) as refused:
        await engine.ask(Load(1006, str(damaged)))
    assert not refused.value.kept
    with pytest.raises(RequestFailed, match="load one"):
        await engine.ask(Generate(1007, "c", hello))


@pytest.mark.parametrize("wrong", [{"kv_bits": 7}, {"max_kv_size": 4}, {"max_kv_size": 64, "keep": 40}])
async def test_a_load_with_impossible_numbers_leaves_the_model(engine: Engine, tiny_model: Path, wrong: dict[str, int]):
    name = "|".join(wrong).replace("_", "-")
    with pytest.raises(RequestFailed, match=name):
        await engine.ask(Load(engine.next_request(), str(tiny_model), **wrong))
    assert one(await generate(engine, Turn("user", "Hello")), Ended).finish in ("stop", "length")


async def test_the_registrys_options_of_a_model_are_in_force(tiny_model: Path):
    (paths.config_dir() / "models.toml").write_text(
        f"""
        [models.mine]
        source = "path:{tiny_model}"
        max_kv_size = 128
        stop = ["e"]
        ask = "two tokens at least"
        sampling.max_tokens = 40
        sampling.temperature = 1.5
        """
    )
    engine = await Engine.start()
    loaded = await engine.ask(Load(engine.next_request(), "mine"))
    assert (loaded.max_kv_size, loaded.sampling.temperature, loaded.sampling.stop) == (128, 1.5, ("e",))
    ended = one(await generate(engine, Turn("user", "Hello"), sampling=Sampling(seed=3)), Ended)
    assert "e" not in ended.text
    assert ended.tokens <= 40
    with pytest.raises(RequestFailed, match="ask must be a single token"):
        await generate(engine, Turn("user", "Hello"), sampling=Sampling(sampler="adaptive"))
    given = Sampling(sampler="adaptive", options={"ask": 5}, max_tokens=3)
    assert one(await generate(engine, Turn("user", "Hello"), sampling=given), Ended).finish in ("length", "stop")
    await engine.close()


async def test_a_message_larger_than_the_window_is_refused(tiny_model: Path):
    engine = await Engine.start()
    await engine.ask(Load(engine.next_request(), str(tiny_model), max_kv_size=64))
    with pytest.raises(RequestFailed, match="64") as failure:
        await generate(engine, Turn("user", "one two three " * 100))
    assert failure.value.kind == "too_long"
    await engine.close()


async def test_a_chat_that_outgrew_the_window_goes_on(tiny_model: Path):
    engine = await Engine.start()
    await engine.ask(Load(engine.next_request(), str(tiny_model), max_kv_size=64))
    turns: list[Turn] = []
    for number in range(6):
        turns.append(Turn("user", f"Question {number}"))
        events = await generate(engine, *turns)
        ids = tuple(token.id for token in tokens_of(events))
        turns.append(Turn("assistant", one(events, Ended).text, ids))
    assert one(events, Started).prompt_tokens > 64
    assert one(events, Started).reused > 64
    await engine.close()


async def test_edits_in_a_rotating_chat_answer_as_a_cold_start_would(tiny_model: Path):
    """Draws sends, edits, regenerations, deletions and continuations; every answer is compared with a cold one."""
    engine = await Engine.start()
    await engine.ask(Load(engine.next_request(), str(tiny_model), max_kv_size=48))
    draw = random.Random(11)
    greedy = Sampling(temperature=0.0, max_tokens=6, logit_bias={2: -100.0})
    turns = [Turn("system", "Be brief.")]
    longest = 0
    for step in range(30):
        users = [n for n, turn in enumerate(turns) if turn.role == "user"]
        match draw.choice(("send", "send", "send", "edit", "regenerate", "continue", "delete") if users else ("send",)):
            case "send":
                turns.append(Turn("user", f"Question {step}?"))
            case "edit":
                del turns[draw.choice(users) :]
                turns.append(Turn("user", f"Edited {step}?"))
            case "regenerate":
                turns.pop()
            case "delete" if len(users) > 1:
                del turns[users[-2] : users[-1]]
                turns.pop()
            case _:
                turns[-1] = Turn("assistant", turns[-1].content, turns[-1].tokens)
        more = turns[-1].role == "assistant"
        forecast = await engine.ask(Forecast(engine.next_request(), "c", tuple(turns), more))
        warm = await generate(engine, *turns, sampling=greedy, continue_last=more)
        cold = await generate(engine, *turns, sampling=greedy, continue_last=more, conversation="")
        started = one(warm, Started)
        assert (forecast.reused, forecast.method) == (started.reused, started.method)
        assert [t.id for t in tokens_of(warm)] == [t.id for t in tokens_of(cold)]
        assert started.reused > 0 or step == 0  # the system message at least
        longest = max(longest, started.prompt_tokens)
        ids = tuple(t.id for t in tokens_of(warm))
        old = turns.pop() if more else Turn("assistant", "")
        text = old.content + "".join(token.text for token in tokens_of(warm))
        turns.append(Turn("assistant", text, (*old.tokens, *ids)))
    assert longest > 2 * 48
    await engine.close()


async def test_candidates_and_choice(engine: Engine):
    question = Turn("user", "Hello")
    events = await generate(engine, question, candidates=3)
    ends = [event for event in events if isinstance(event, Ended)]
    assert sorted(end.candidate for end in ends) == [0, 1, 2]
    assert [end.seed for end in sorted(ends, key=lambda end: end.candidate)] == [7, 8, 9]
    generation = ends[0].request
    assert isinstance(await engine.ask(Choose(engine.next_request(), generation, 1)), Done)
    ids = tuple(token.id for token in tokens_of(events, 1))
    text = next(end.text for end in ends if end.candidate == 1)
    turns = (question, Turn("assistant", text, ids), Turn("user", "And?"))
    after = await generate(engine, *turns)
    cold = await generate(engine, *turns, conversation="")
    assert one(after, Started).reused >= one(events, Started).prompt_tokens + len(ids) - 1
    assert [t.id for t in tokens_of(after)] == [t.id for t in tokens_of(cold)]
    with pytest.raises(RequestFailed, match="gone"):
        await engine.ask(Choose(engine.next_request(), generation, 0))


async def test_the_prompts_own_tokens_are_scored_on_request(engine: Engine):
    turns = (Turn("system", "Be brief."), Turn("user", "What is the capital of France?"))
    events = await generate(engine, *turns, score_prompt=True)
    spans = one(events, Started).spans
    with pytest.raises(RequestFailed, match="nothing to score"):
        await engine.ask(Score(engine.next_request(), "x"))
    for number, turn in enumerate(turns):
        tokens = [t for e in events if isinstance(e, Scored) and e.turn == number for t in e.tokens]
        assert "".join(token.text for token in tokens) == turn.content
        assert [token.index for token in tokens] == list(range(spans[number][1] - spans[number][0]))
        assert all(token.surprisal > 0 for token in tokens)
    again = await generate(engine, *turns, score_prompt=True)  # all of it is in the cache
    assert not [event for event in again if isinstance(event, Scored)]


async def test_attention_is_reported_where_it_is_asked_for(engine: Engine):
    question = Turn("user", "Hello")
    watched = await generate(engine, question, attention=True)
    prompt = one(watched, Started).prompt_tokens
    for token in tokens_of(watched):
        assert token.attention is not None
        assert token.attention.entropy >= 0
        assert all(place.position < prompt + token.index for place in token.attention.top)
    plain = await generate(engine, question)
    assert all(token.attention is None for token in tokens_of(plain))
    assert [t.id for t in tokens_of(plain)] == [t.id for t in tokens_of(watched)]


@pytest.mark.parametrize("draft", ["lookup", "model"])
async def test_drafting_changes_no_token(tiny_model: Path, tmp_path: Path, draft: str):
    deeper = str(write_deeper(tmp_path / "deeper", tiny_model, 12))  # the small model drafts for it, and is right
    turns = (Turn("user", "one two three one two three one two three one two"),)
    greedy = Sampling(temperature=0.0, max_tokens=40)
    engine = await Engine.start()
    await engine.ask(Load(engine.next_request(), deeper))
    plain = await generate(engine, *turns, sampling=greedy)
    await engine.ask(Load(engine.next_request(), deeper, draft=str(tiny_model) if draft == "model" else draft))
    events = await generate(engine, *turns, sampling=greedy)
    assert [t.id for t in tokens_of(events)] == [t.id for t in tokens_of(plain)]
    ended = one(events, Ended)
    assert 0 <= ended.accepted <= ended.drafted
    if draft == "model":
        assert ended.accepted > 0
    await engine.close()


async def test_a_saved_cache_is_read_by_the_next_engine(tiny_model: Path, tmp_path: Path):
    file = str(tmp_path / "c.cache.safetensors")
    question = Turn("user", "What is the capital of France?")
    first = await Engine.start()
    await first.ask(Load(first.next_request(), str(tiny_model)))
    events = await generate(first, question)
    assert isinstance(await first.ask(Leave(first.next_request(), "c", cache_file=file)), Done)
    await first.close()
    ids = tuple(token.id for token in tokens_of(events))
    turns = (question, Turn("assistant", one(events, Ended).text, ids), Turn("user", "And?"))
    second = await Engine.start()
    await second.ask(Load(second.next_request(), str(tiny_model)))
    forecast = await second.ask(Forecast(second.next_request(), "c", turns, cache_file=file))
    after = await generate(second, *turns, cache_file=file)
    cold = await generate(second, *turns, conversation="")
    assert (forecast.method, one(after, Started).method) == ("disk", "disk")
    assert forecast.reused == one(after, Started).reused > 0
    assert [t.id for t in tokens_of(after)] == [t.id for t in tokens_of(cold)]
    Path(file).write_bytes(b"no cache")
    noted = await generate(second, question, conversation="other", cache_file=file)
    assert "ignored" in one(noted, Note).message
    assert one(noted, Started).method == "cold"
    await second.close()


async def test_a_killed_engine_is_reported_and_another_one_starts(engine: Engine, tiny_model: Path):
    endless = Sampling(temperature=1.0, seed=1, max_tokens=50_000, logit_bias={2: -100.0})

    async def kill_it_while_it_decodes() -> None:
        async for event in engine.request(Generate(engine.next_request(), "c", (Turn("user", "Hi"),), endless)):
            if isinstance(event, Tokens):
                os.kill(engine.pid, signal.SIGKILL)

    with pytest.raises(EngineLost, match="killed"):
        await kill_it_while_it_decodes()
    assert not engine.alive
    with pytest.raises(EngineLost):
        await engine.ask(Leave(engine.next_request(), "c"))
    again = await Engine.start()
    assert isinstance(await again.ask(Load(again.next_request(), str(tiny_model))), Loaded)
    await again.close()


CLIENT = """
import asyncio, sys
from chatapp.client import Engine
from chatapp.protocol import Generate, Load, Prefill, Turn

async def main(model, text):
    engine = await Engine.start()
    print(engine.pid, flush=True)
    if model:
        await engine.ask(Load(1, model))
        async for event in engine.request(Generate(2, "c", (Turn("user", text),))):
            if isinstance(event, Prefill):
                print("reading", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(sys.argv[1], "The quick brown fox. " * 4000))
"""


@pytest.mark.parametrize("phase", ["starting", "reading"])
async def test_no_orphan_when_the_client_is_killed(tiny_model: Path, phase: str):
    model = str(tiny_model) if phase == "reading" else ""
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, model, stdout=asyncio.subprocess.PIPE)
    assert client.stdout is not None
    pid = int(await client.stdout.readline())
    if phase == "reading":
        assert await client.stdout.readline() == b"reading\n"
    client.kill()
    await client.wait()
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the engine outlived its client"
        await asyncio.sleep(0.05)
