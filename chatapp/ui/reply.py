"""A reply in flight: one `Generate` from its request to its last event, and the messages it writes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from chatapp.client import EngineClient, EngineLost
from chatapp.conversation.reply import ReplyWriter, setup_of
from chatapp.conversation.session import ROOT, ConversationSession
from chatapp.errors import ChatappError
from chatapp.protocol import AnyEvent, Cancel, Ended, Generate, Loaded, Note, Prefill, Scored, Started, Tokens
from chatapp.tokens import Token
from chatapp.ui.changes import Change, Drawn, Grew, Paused, PromptBack, Rebuilt, Said
from chatapp.ui.link import EngineLink, NotReady


@dataclass(frozen=True)
class Job:
    """A reply to be made.

    Attributes:
        parent: The message that it answers; None where the conversation begins with a reply.
        given: Tokens that it begins with (an alternative that was picked, with all before it).
        continues: The reply that it goes on from.
        candidates: How many to make at once.
        prompt: The new message of the person that asked for it: taken back if the reading is stopped.
    """

    parent: str | None
    given: tuple[Token, ...] = ()
    continues: str | None = None
    candidates: int = 1
    prompt: str | None = None


@dataclass
class Written:
    """A reply as far as it is there."""

    writer: ReplyWriter
    open: bool = True


class Reply:
    """See the module's docstring.

    Attributes:
        stage: "waiting" for the engine or the model, then "prefill", then "decode".
        done, total: Prompt tokens read, and to be read.
        written: The replies by candidate, once decoding has begun.
        started, ended: What the engine said.
        endings: How each of them ended, by message id.
        made: Tokens decoded so far, over all candidates.
    """

    def __init__(
        self,
        session: ConversationSession,
        link: EngineLink,
        job: Job,
        tell: Callable[[Change], None],
        score: Callable[[Scored], None],
    ) -> None:
        self.job = job
        self.stage: Literal["waiting", "prefill", "decode"] = "waiting"
        self.done = 0
        self.total = 0
        self.written: list[Written] = []
        self.started: Started | None = None
        self.ended: Ended | None = None
        self.endings: dict[str, Ended] = {}
        self._session = session
        self._link = link
        self._tell = tell
        self._score = score
        self._client: EngineClient | None = None
        self._request: Generate | None = None
        self._loaded: Loaded | None = None
        self._making: asyncio.Task[None] | None = None
        self._stopped = False
        self._leaving = False
        self._first_token = 0.0
        self.made = 0
        self._entropy = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second so far; 0 while unknown."""
        elapsed = time.monotonic() - self._first_token
        return (self.made - 1) / elapsed if self.made > 1 and elapsed > 0 else 0.0

    @property
    def mean_entropy(self) -> float:
        """Of the tokens so far, in nats."""
        return self._entropy / self.made if self.made else 0.0

    @property
    def model(self) -> str:
        """Name of the model that writes it; empty while none is loaded."""
        return self._loaded.model if self._loaded is not None else ""

    def stop(self, *, leaving: bool = False) -> None:
        """Ends it at the next token or prefill chunk, and at once while it waits for the model or another reply.

        Args:
            leaving: The program ends: a prompt that was not read stays a message, for nobody would see it come back.
        """
        self._stopped = True
        self._leaving = leaving
        if self.stage == "waiting" and self._making is not None:
            self._making.cancel()
        elif self._client is not None and self._request is not None:
            self._client.post(Cancel(self._client.next_request(), target=self._request.request))

    async def run(self, make: Callable[[int, Loaded], Awaitable[Generate]]) -> None:
        """Waits for the engine, asks, and writes what comes; every way it can end is told.

        Args:
            make: Makes the request from its number and the loaded model.
        """
        self._making = asyncio.create_task(self._make(make))
        if self._stopped:  # before anything was begun
            self._making.cancel()
        try:
            await self._making
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            self._take_back()
        except NotReady as error:
            self._tell(Said(f"{error} Your message is saved; r asks again.", "warning"))
        except EngineLost as error:
            self._link.lost(error, self._client)
            self._break_off("The engine ended while it replied; what there was is saved. F5 starts it again.")
        except ChatappError as error:
            self._break_off(str(error))

    async def _make(self, make: Callable[[int, Loaded], Awaitable[Generate]]) -> None:
        self._client, self._loaded = await self._link.ready()
        self._request = await make(self._client.next_request(), self._loaded)
        async with contextlib.aclosing(self._client.request(self._request)) as events:
            async for event in events:
                self._take(event)

    def _take(self, event: AnyEvent) -> None:
        match event:
            case Prefill(done=done, total=total):
                self.stage, self.done, self.total = "prefill", done, total
            case Scored():
                self._score(event)
            case Started():
                self._begin(event)
            case Tokens():
                self._grow(event)
            case Ended():
                self._end(event)
            case Note(message=message):
                self._tell(Said(message))
            case _:
                pass

    def _begin(self, event: Started) -> None:
        assert self._request is not None
        assert self._loaded is not None
        self.started = event
        self.stage = "decode"
        sampling = self._request.sampling.over(self._loaded.sampling)
        for number in range(self.job.candidates):
            if event.seed is not None:
                sampling = msgspec.structs.replace(sampling, seed=event.seed + number)
            writer = self._session.begin_reply(
                self.job.parent or ROOT,
                model=self._loaded.model,
                sampling=sampling,
                continues=self.job.continues,
                given=self.job.given,
                setup=setup_of(self._loaded, self._request, self._link.status.given),
            )
            self.written.append(Written(writer))
        self._tell(Rebuilt())

    def _grow(self, event: Tokens) -> None:
        if not self._first_token:
            self._first_token = time.monotonic()
        written = self.written[event.candidate]
        written.writer.append(event.tokens)
        self.made += len(event.tokens)
        self._entropy += sum(token.entropy for token in event.tokens)
        if event.candidate == 0:
            self._tell(Grew(written.writer.id, event.tokens))

    def _end(self, event: Ended) -> None:
        if not self.written:  # stopped in the prefill, or nothing could be made
            self._take_back()
            return
        self.ended = event
        written = self.written[event.candidate]
        self.endings[written.writer.id] = event
        text = "".join(token.text for token in self.job.given) + event.text
        written.writer.finish(event.finish, text=text, seed=event.seed, show=event.candidate == 0)
        written.open = False
        if any(each.open for each in self.written):
            return
        self._tell(Rebuilt())
        if event.message:
            self._tell(Said(event.message, "error"))
        if event.pending is not None:
            self._tell(Paused(written.writer.id, event.pending))
        if self.job.candidates > 1:
            self._tell(Drawn(tuple(each.writer.id for each in self.written)))

    def _take_back(self) -> None:
        """Nothing was read: the prompt goes back to where it was written."""
        if self._leaving:
            return
        if self.job.prompt is None:
            self._tell(Said("Stopped before anything was read; r asks for a reply."))
            return
        content = self._session.conversation.messages[self.job.prompt].content
        self._session.delete(self.job.prompt)
        self._tell(Rebuilt())
        self._tell(PromptBack(content))

    def _break_off(self, sentence: str) -> None:
        """The request failed: keeps what was written, and says why."""
        for index, written in enumerate(self.written):
            if written.open and written.writer.tokens:
                written.writer.finish("error", show=index == 0)
            elif written.open:
                written.writer.discard()
            written.open = False
        self._tell(Rebuilt())
        self._tell(Said(sentence, "error"))
