"""Ranks that die or hang, at any moment: noticed, named, nothing said is lost, and nothing of the engine stays behind.

``CHATAPP_TEST_KILLS`` says how many ranks are killed at random moments (3 unless it is set).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from chatapp import launch
from chatapp.client import Engine, EngineLost
from chatapp.conversation.store import Store
from chatapp.launch import Hosts
from chatapp.protocol import Generate, Load, Loaded, Sampling, Tokens, Turn
from chatapp.text import visible
from tests.distributed.chatting import MOMENTS, PATIENCE, Chatting, Death
from tests.distributed.processes import assert_none_left, family, hook, keeper_of, meets, ranks_of
from tests.distributed.talk import END
from tests.models.fake_hub import FakeHub

KILLS = int(os.environ.get("CHATAPP_TEST_KILLS", "3"))
RANKS = 3
LONG = Turn("user", "The quick brown fox jumps over the lazy dog. " * 80)


async def all_ranks(pid: int) -> dict[int, psutil.Process]:
    """Waits until every rank has been started."""
    while len(found := ranks_of(family(pid))) < RANKS:
        await asyncio.sleep(0.05)
    return found


async def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE)
    assert not alive, alive


async def use(engine: Engine, model: Path, moment: str, now: asyncio.Event) -> None:
    """Uses an engine until it is lost; sets ``now`` at a moment."""

    def at(here: str) -> None:
        if here == moment:
            now.set()

    at("starting")
    await engine.hello()
    at("loading")
    await engine.ask(Load(engine.next_request(), str(model), max_kv_size=16384))
    if moment == "idle":
        at("idle")
        while engine.alive:
            await asyncio.sleep(0.05)
    while True:
        at("reading")
        request = Generate(
            engine.next_request(), "", (LONG,), Sampling(temperature=1.0, max_tokens=200, logit_bias={END: -1000.0})
        )
        async for event in engine.request(request):
            if isinstance(event, Tokens):
                at("decoding")


async def reached(now: asyncio.Event, using: asyncio.Task[None]) -> None:
    """Waits for a moment; an engine that is lost before it fails the test with what it said."""
    waiting = asyncio.create_task(now.wait())
    await asyncio.wait({waiting, using}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
    if using.done():
        await using
    assert now.is_set()


@pytest.mark.slow
@pytest.mark.timeout(KILLS * 240)
async def test_each_rank_killed_in_turn_at_random_moments(divisible_model: Path):
    """After many kills some are stopped instead, which nothing but their keepers can tell."""
    chance = random.Random(8)
    moments = list(MOMENTS)
    deaths: list[Death] = []
    chatting = Chatting(divisible_model, RANKS, chance)
    await chatting.open()
    for number in range(KILLS + KILLS // 5):
        if number % len(moments) == 0:
            chance.shuffle(moments)
        rank, moment, kill = number % RANKS, moments[number % len(moments)], number < KILLS
        death = await chatting.lost(rank, moment, kill)
        await assert_gone(death.processes)
        print(
            f"{number}: {death.how} {rank}, {moment} ({death.where}), noticed after {death.seconds:.1f} s", flush=True
        )
        deaths.append(death)
    await chatting.go_on()
    await chatting.close()
    await asyncio.to_thread(assert_none_left)
    print(f"{KILLS} kills, noticed within {max(death.seconds for death in deaths[:KILLS]):.1f} s")


#: Has rank 2 wait for ever where a test wants it; with a cache of its own for downloads, as on machines of their own.
HELD_UP = """
import os, sys, threading
if "--rank" in sys.orig_argv:
    rank = sys.orig_argv[sys.orig_argv.index("--rank") + 1]
    moment = os.environ["CHATAPP_TEST_HELD_UP"]
    if moment == "meeting" and rank == "2":
        threading.Event().wait()
    if moment == "loading" and rank == "2":
        from chatapp.models import folder
        folder.read_config = lambda *_: threading.Event().wait()
    if moment == "downloading":
        os.environ["HF_HOME"] += rank
"""


async def held_up(engine: Engine, moment: str, hub: FakeHub) -> dict[int, psutil.Process]:
    """Waits until ranks 0 and 1 are where they wait for what does not come."""
    ranks = await asyncio.wait_for(all_ranks(engine.pid), PATIENCE)
    while moment == "meeting" and not (meets(ranks[0]) and meets(ranks[1])):
        await asyncio.sleep(0.05)
    while moment != "meeting" and engine.log.read_text().count("begins Load") < RANKS:
        await asyncio.sleep(0.05)
    while moment == "downloading" and len(hub.asked("GET /cdn/model.safetensors")) < RANKS:
        await asyncio.sleep(0.05)
    return ranks


#: The rank's last ones, by moment.
WORDS = {"meeting": "looks for the other ranks", "loading": "begins Load", "downloading": "(begins Load|GET )"}


@pytest.mark.parametrize("moment", WORDS)
async def test_a_rank_that_is_stopped_is_noticed(
    divisible_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
):
    """Where no rank gets on anyway, so that nothing but the stop itself can tell which one it is."""
    files = {path.name: path.read_bytes() for path in divisible_model.iterdir()}
    with FakeHub(files=files, stall_after={"model.safetensors": 20_000}) as hub:
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "hub"),
            "HF_TOKEN": "",
            "PYTHONPATH": hook(tmp_path / "hook", HELD_UP),
            "CHATAPP_TEST_HELD_UP": moment,
        }.items():
            monkeypatch.setenv(name, value)
        engine = await Engine.start(hosts=Hosts.here(RANKS))
        model = "hf:owner/tiny" if moment == "downloading" else str(divisible_model)
        loading = asyncio.create_task(engine.ask(Load(engine.next_request(), model)))
        ranks = await held_up(engine, moment, hub)
        processes = family(engine.pid)
        ranks[1].send_signal(signal.SIGSTOP)
        with pytest.raises(
            EngineLost, match=r"Rank 1 on 127.0.0.1 was stopped by a signal; .* ends: .*rank 1 on .*" + WORDS[moment]
        ):
            await asyncio.wait_for(loading, PATIENCE)
        await engine.close()
        await assert_gone(processes)


#: Has rank 1 hold Python's lock while it loads: what is called through `PyDLL` does not give it up.
BUSY = """
import ctypes, sys
if "--rank" in sys.orig_argv and sys.orig_argv[sys.orig_argv.index("--rank") + 1] == "1":
    from chatapp.models import folder
    read = folder.read_config
    def slowly(*arguments):
        ctypes.PyDLL(None).sleep(5)
        return read(*arguments)
    folder.read_config = slowly
"""


async def test_a_rank_that_is_busy_is_not_taken_for_dead(
    divisible_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Even if no other thread of it can run for longer than the silence after which a host counts as gone."""
    monkeypatch.setattr(launch, "SILENCE", 2.0)
    monkeypatch.setenv("PYTHONPATH", hook(tmp_path, BUSY))
    engine = await Engine.start(hosts=Hosts.here(RANKS))
    loaded = await asyncio.wait_for(engine.ask(Load(engine.next_request(), str(divisible_model))), PATIENCE)
    assert isinstance(loaded, Loaded)
    await engine.close()


async def test_a_keeper_that_is_stopped_goes_silent(divisible_model: Path, monkeypatch: pytest.MonkeyPatch):
    """As a host does that is gone."""
    monkeypatch.setattr(launch, "SILENCE", 2.0)
    engine = await Engine.start(hosts=Hosts.here(RANKS))
    using = asyncio.create_task(use(engine, divisible_model, "decoding", now := asyncio.Event()))
    await reached(now, using)
    ranks = await all_ranks(engine.pid)
    processes = family(engine.pid)
    keeper_of(ranks[1]).send_signal(signal.SIGSTOP)
    with pytest.raises(EngineLost, match=r"Rank 1 on 127.0.0.1 has given no sign of life for 2 seconds"):
        await asyncio.wait_for(using, PATIENCE)
    await engine.close()
    await assert_gone(processes)


@pytest.mark.parametrize("ticks", [1, 2, 3, 5, 8])
async def test_an_engine_whose_start_is_given_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: int
):
    """As the chat does when it is left, or F5 is pressed again, at that moment."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    starting = asyncio.create_task(Engine.start(hosts=Hosts.here(2)))
    for _ in range(ticks):
        await asyncio.sleep(0)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await starting).close()
    await asyncio.to_thread(assert_none_left)
    assert not list(tmp_path.iterdir())


#: Makes a rank's main thread wait for ever when it gets a signal, and shortens what the ranks are patient for.
HANGING = """
import os, signal, threading
if "MLX_RANK" in os.environ:
    from chatapp.engine import progress
    progress.WAITING = progress.REPEATED = 6.0
    signal.signal(signal.SIGUSR1, lambda *_: threading.Event().wait())
"""


@pytest.mark.parametrize("moment", ["decoding", "idle"])
async def test_a_rank_whose_main_thread_hangs_is_noticed(
    divisible_model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
):
    """It is alive and gives signs of life, and the others wait for it."""
    monkeypatch.setenv("PYTHONPATH", hook(tmp_path, HANGING))
    engine = await Engine.start(hosts=Hosts.here(RANKS))
    using = asyncio.create_task(use(engine, divisible_model, moment, now := asyncio.Event()))
    await reached(now, using)
    ranks = await all_ranks(engine.pid)
    processes = family(engine.pid)
    ranks[1].send_signal(signal.SIGUSR1)
    words = (
        r"Rank 1 on 127.0.0.1 is alive, but no longer gets on; start the engine again. .* this rank no longer gets on"
    )
    with pytest.raises(EngineLost, match=words):
        await asyncio.wait_for(using, PATIENCE)
    await engine.close()
    await assert_gone(processes)


async def test_no_rank_outlives_mlx_launch(divisible_model: Path):
    engine = await Engine.start(hosts=Hosts.here(RANKS))
    ranks = await asyncio.wait_for(all_ranks(engine.pid), PATIENCE)
    await engine.hello()
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineLost):
        await engine.ask(Load(engine.next_request(), str(divisible_model)))
    await assert_gone(list(ranks.values()))
    await engine.close()


async def test_a_message_survives_the_death_of_a_rank(divisible_model: Path):
    """The question and what came of the answer are saved, and the sentence names the rank."""
    store = Store()
    session = store.new(str(divisible_model), "")
    session.rename("kept")
    session.close()
    command = [sys.executable, "-m", "chatapp.cli", "ask", "-n", str(RANKS), "-m", str(divisible_model)]
    options = ["-C", "kept", "--max-tokens", "5000", "--temperature", "0", "--logit-bias", f"{END}=-1000", "a question"]
    asking = await asyncio.create_subprocess_exec(
        *command, *options, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert asking.stdout is not None
    first = await asyncio.wait_for(asking.stdout.read(1), PATIENCE)
    processes = family(asking.pid)[1:]
    ranks_of(processes)[2].kill()
    rest, errors = await asyncio.wait_for(asking.communicate(), PATIENCE)
    assert asking.returncode == 1
    assert b"Rank 2 on 127.0.0.1 was killed" in errors
    assert b"Traceback" not in errors
    await assert_gone(processes)
    session = store.open(store.find("kept"))
    question, reply = session.conversation.path()
    assert question.content == "a question"
    assert visible(reply.content).strip() == (first + rest).decode().strip()
    session.close()
