"""Ranks that die or hang, at any moment: noticed, named, and nothing of the engine stays behind.

``CHATAPP_TEST_KILLS`` says how many ranks are killed at random moments (3 unless it is set).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from chatapp.client import Engine, EngineLost
from chatapp.conversation.store import Store
from chatapp.launch import Hosts
from chatapp.protocol import Generate, Load, Sampling, Tokens, Turn
from tests.distributed.talk import END

KILLS = int(os.environ.get("CHATAPP_TEST_KILLS", "3"))
RANKS = 3

#: Far beyond what it takes; a loss that nobody notices would never end.
PATIENCE = 180.0

MOMENTS = ("starting", "loading", "reading", "decoding", "idle")
LONG = Turn("user", "The quick brown fox jumps over the lazy dog. " * 80)


def family(pid: int) -> list[psutil.Process]:
    """A process and everything that it started."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def ranks_of(processes: list[psutil.Process]) -> dict[int, psutil.Process]:
    """The engine's ranks among some processes, by number."""
    found: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            line = process.cmdline()
            if "chatapp.engine" in line and "--rank" in line:
                found[int(line[line.index("--rank") + 1])] = process
        except psutil.Error:
            continue
    return found


async def all_ranks(pid: int) -> dict[int, psutil.Process]:
    """Waits until every rank has been started."""
    while len(found := ranks_of(family(pid))) < RANKS:
        await asyncio.sleep(0.05)
    return found


async def assert_gone(processes: list[psutil.Process]) -> None:
    gone, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE)
    assert not alive, alive
    assert len(gone) == len(processes)


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
    chance = random.Random(8)
    for number in range(KILLS):
        rank, moment, delay = number % RANKS, chance.choice(MOMENTS), chance.random()
        engine = await Engine.start(hosts=Hosts.here(RANKS))
        ranks = await asyncio.wait_for(all_ranks(engine.pid), PATIENCE)
        processes = family(engine.pid)
        now = asyncio.Event()
        using = asyncio.create_task(use(engine, divisible_model, moment, now))
        await reached(now, using)
        await asyncio.sleep(delay)
        ranks[rank].kill()
        killed = time.monotonic()
        with pytest.raises(EngineLost, match=f"Rank {rank} on 127.0.0.1 was killed") as lost:
            await asyncio.wait_for(using, PATIENCE)
        print(f"kill {number}: rank {rank} while {moment}, noticed after {time.monotonic() - killed:.1f} s")
        assert str(engine.log) in str(lost.value)
        await engine.close()
        await assert_gone(processes)


async def test_a_rank_that_hangs_is_noticed_and_ended(divisible_model: Path):
    engine = await Engine.start(hosts=Hosts.here(RANKS))
    processes = family(engine.pid)
    using = asyncio.create_task(use(engine, divisible_model, "decoding", now := asyncio.Event()))
    await reached(now, using)
    ranks = await all_ranks(engine.pid)
    ranks[1].send_signal(signal.SIGSTOP)
    with pytest.raises(EngineLost, match=r"Rank 1 on 127.0.0.1 was stopped by a signal"):
        await asyncio.wait_for(using, PATIENCE)
    await engine.close()
    await assert_gone([*processes, *ranks.values()])


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
    (tmp_path / "sitecustomize.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
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


CLIENT = """
import asyncio, sys
from chatapp.client import Engine
from chatapp.launch import Hosts

async def main():
    engine = await Engine.start(hosts=Hosts.here(3))
    await engine.hello()
    print(engine.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_no_rank_outlives_the_client():
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    pid = int(await asyncio.to_thread(client.stdout.readline))
    processes = family(pid)
    assert len(ranks_of(processes)) == RANKS
    client.kill()
    client.wait()
    await assert_gone(processes)


async def test_a_message_survives_the_death_of_a_rank(divisible_model: Path):
    """The question and what came of the answer are saved, and the sentence names the rank."""
    store = Store()
    session = store.new(str(divisible_model), "")
    session.rename("kept")
    session.close()
    command = [sys.executable, "-m", "chatapp.cli", "ask", "-n", str(RANKS), "-m", str(divisible_model)]
    options = ["-C", "kept", "--max-tokens", "5000", "--temperature", "1", "--logit-bias", f"{END}=-1000", "a question"]
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
    assert reply.content
    assert (first + rest).decode().strip().startswith(reply.content[:1].strip())
    session.close()
