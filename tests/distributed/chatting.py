"""The chat as the terminal UI has it, without a screen, over several ranks one of which is killed; nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from chatapp.client import Engine
from chatapp.conversation.store import Store
from chatapp.launch import Hosts
from chatapp.protocol import Ended, Generate, Load, Sampling
from chatapp.settings import Settings
from chatapp.ui.changes import Grew
from chatapp.ui.chat import Chat
from chatapp.ui.link import EngineLink
from chatapp.ui.workspace import Workspace
from tests.distributed.processes import family, keeper_of, meets, ranks_of
from tests.distributed.talk import END

CAPACITY = 16384

#: Far beyond what anything takes, in seconds; a loss that nobody notices would never end.
PATIENCE = 180.0

#: Each with the longest random wait before the kill, in seconds.
MOMENTS = {
    "starting": 1.0,
    "meeting": 0.1,
    "loading": 0.2,
    "reading": 0.5,
    "writing": 2.0,
    "idle": 0.5,
    "saving": 0.05,
}
EARLY = ("starting", "meeting", "loading")

SHORT = "What is the capital of France?"
LONG = "The quick brown fox jumps over the lazy dog. " * 160


@dataclass(frozen=True)
class Death:
    """What became of a kill.

    Attributes:
        how: What was done to whom.
        seconds: Until it was noticed.
        where: What the chat was at when the rank was killed.
        processes: Of the engine, all of which have to end.
    """

    how: str
    seconds: float
    where: str
    processes: list[psutil.Process]


class Chatting:
    """A workspace on several ranks, and one process by which its answers are judged."""

    def __init__(self, model: Path, ranks: int, chance: random.Random) -> None:
        self._model = str(model)
        self._ranks = ranks
        self._chance = chance
        self._engines: list[Engine] = []
        self._judge: Engine | None = None
        self._broken: list[Chat] = []
        self._store = Store()
        self._link = EngineLink(self._start, self._load)
        settings = Settings(model=self._model, sampling=Sampling(temperature=0.0))
        self._workspace = Workspace(self._store, self._link, settings, self._store.new(self._model, "You are brief."))

    async def _start(self) -> Engine:
        self._engines.append(await Engine.start(hosts=Hosts.here(self._ranks)))
        return self._engines[-1]

    def _load(self, number: int, model: str) -> Load:
        return Load(number, model, max_kv_size=CAPACITY)

    async def open(self) -> None:
        self._judge = await Engine.start()
        await self._judge.ask(self._load(self._judge.next_request(), self._model))
        self._link.open(self._model)
        await self._link.ready()

    async def close(self) -> None:
        await self._workspace.close()
        if self._judge:
            await self._judge.close()

    async def go_on(self) -> None:
        """F5; then the next answers in the conversations that were broken off are those of one process."""
        if not self._broken:
            return
        self._link.restart()
        await asyncio.wait_for(self._link.ready(), PATIENCE)
        for chat in self._broken:
            await self._assert_answers(chat)
        self._broken = []

    async def lost(self, rank: int, moment: str, kill: bool) -> Death:
        """Kills a rank or its keeper at a moment, or stops the rank; all that was said is there then.

        Raises:
            AssertionError: It was not noticed, or something was lost.
        """
        if moment not in EARLY:
            await self.go_on()
        chat = self._workspace.new()
        chat.set_option("sampling", {"temperature": 0, "max_tokens": 400, "logit_bias": {END: -1000.0}})
        ranks = await self._reach(moment, chat, rank)
        await asyncio.sleep(self._chance.random() * MOMENTS[moment])
        processes = family(self._engines[-1].pid)
        how, victim, number = self._chance.choice(
            [
                ("killed rank", ranks[rank], signal.SIGKILL),
                ("killed keeper of rank", keeper_of(ranks[rank]), signal.SIGKILL),
            ]
            if kill
            else [("stopped rank", ranks[rank], signal.SIGSTOP)]
        )
        where = f"{self._link.status.phase}, {chat.reply.stage if chat.reply else 'no reply'}"
        victim.send_signal(number)
        seconds = await self._noticed(rank, "was killed" if kill else "was stopped by a signal")
        await asyncio.wait_for(chat.settled(), PATIENCE)
        self._assert_saved(chat)
        self._broken.append(chat)
        return Death(how, seconds, where, [*processes, *ranks.values()])

    async def _reach(self, moment: str, chat: Chat, rank: int) -> dict[int, psutil.Process]:
        """Brings the chat to a moment; returns the ranks."""
        if moment in EARLY:
            before = len(self._engines)
            self._link.restart()
            chat.send(SHORT)  # it waits for the engine
            await _until(lambda: len(self._engines) > before)
        await _until(lambda: len(ranks_of(family(self._engines[-1].pid))) == self._ranks)
        ranks = ranks_of(family(self._engines[-1].pid))
        if moment == "meeting":
            await _until(lambda: meets(ranks[rank]) or self._link.status.phase != "starting")
        elif moment == "loading":
            await _until(lambda: self._link.status.phase != "starting")
        elif moment == "reading":
            chat.send(LONG)
            await _until(lambda: chat.reply is None or chat.reply.stage != "waiting")
        elif moment == "writing":
            chat.send(SHORT)
            await _until(lambda: chat.reply is None or chat.reply.made > 0)
        elif moment in ("idle", "saving"):
            chat.set_option("sampling", {"temperature": 0, "max_tokens": 8})
            chat.send(SHORT)
            await chat.settled()
        if moment == "saving":
            self._workspace.new()
        return ranks

    async def _noticed(self, rank: int, how: str) -> float:
        began = time.monotonic()

        def noticed() -> bool:
            self._link.check()  # as the screen's clock does
            return self._link.status.phase == "lost"

        await _until(noticed)
        seconds = time.monotonic() - began
        last = rf"Its log .* ends: .*rank {rank} on "
        words = re.compile(rf"Rank {rank} on 127\.0\.0\.1 {how}.*; start the engine again\. {last}")
        await _until(lambda: words.match(self._link.status.message), lambda: self._link.status.message)
        return seconds

    def _assert_saved(self, chat: Chat) -> None:
        """What a person wrote, and all that was shown of the reply, is in the file."""
        question, shown = chat.path()[0], "".join(t.text for c in chat.changes if isinstance(c, Grew) for t in c.tokens)
        with contextlib.closing(Store().open(chat.id, read_only=True)) as session:
            saved = [(message.role, message.content) for message in session.conversation.path()]
        assert question.content in (SHORT, LONG)
        assert saved[0] == ("user", question.content), saved
        # A reply of which nothing can be shown yet, half a character, may be there or not.
        assert saved[1:] in ([("assistant", shown)], [] if not shown else None), f"{saved}, but {shown!r} was shown"

    async def _assert_answers(self, before: Chat) -> None:
        chat = self._workspace.open(before.id)
        chat.set_option("sampling", {"temperature": 0, "max_tokens": 8})
        path = chat.path()
        if path[-1].role == "user":
            chat.regenerate(path[-1].id)
        else:
            chat.send("And of Spain?")
        await asyncio.wait_for(chat.settled(), PATIENCE)
        *_, asked, answer = chat.path()
        assert self._judge is not None
        turns = chat.session.turns(self._model, to=asked.id)
        sampling = Sampling(temperature=0.0, max_tokens=8)
        expected = await self._judge.ask(Generate(self._judge.next_request(), "", turns, sampling))
        assert isinstance(expected, Ended)
        assert (answer.role, answer.finish) == ("assistant", expected.finish)
        assert answer.content == expected.text


async def _until(condition: object, words: object = None) -> None:
    """Waits until something holds."""
    assert callable(condition)
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, words() if callable(words) else condition
        await asyncio.sleep(0.02)
