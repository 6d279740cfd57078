"""An engine without a model: typed events, scripted replies, tokens at a given rate.

It follows the contract of `chatapp.client.EngineClient`, keeps every request it got in `requests`, and answers a
`Forecast` by comparing turns with what it has "read" before, so that tests can watch what the UI asks for.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from chatapp.client import EngineLost, RequestFailed
from chatapp.protocol import (
    AnyEvent,
    AnyRequest,
    Cancel,
    Choose,
    Done,
    Ended,
    Failed,
    Fetch,
    Fetched,
    Forecast,
    Forecasted,
    Generate,
    Hello,
    Leave,
    Load,
    Loaded,
    Prefill,
    Progress,
    Scored,
    Started,
    Tokens,
    Turn,
)
from chatapp.tokens import Alternative, Finish, Token

Script = Callable[[Generate, int], str]


def pieces(text: str) -> list[str]:
    """Text cut into word-like tokens; joined they are the text again."""
    return re.findall(r"\s*\S+|\s+$", text)


def token(index: int, text: str, entropy: float | None = None) -> Token:
    """A token record whose numbers depend on its text only."""
    doubt = (sum(map(ord, text)) % 40) / 10 if entropy is None else entropy
    words = [text, " maybe", " perhaps", " never", " often", " a", " the", " one", " two", " so"]
    top = tuple(Alternative(token_id(word), word, -0.2 - 0.7 * rank) for rank, word in enumerate(words))
    return Token(
        index=index,
        id=token_id(text),
        text=text,
        entropy=doubt,
        varentropy=doubt / 2,
        surprisal=0.2,
        sampled_entropy=doubt * 0.8,
        top=top,
    )


def token_id(text: str) -> int:
    return sum((place + 1) * ord(character) for place, character in enumerate(text)) % 50_000


def echo(request: Generate, candidate: int) -> str:
    """The default script: says what it was asked, so that tests see which turns arrived."""
    last = request.turns[-1]
    if request.continue_last:
        return f" and so on ({candidate})."
    return f"You said **{last.content[:60]}**. This is answer number {candidate}."


class FakeEngine:
    """See the module's docstring.

    Attributes:
        requests: Everything that was asked, oldest first.
        rate: Tokens per second; 0 is as fast as the event loop allows.
        prefill_steps: How many `Prefill` events come before a reply; each waits ``prefill_delay`` seconds.
        gate: While it is cleared, no token comes: for tests that need a reply in flight.
        loading: While it is cleared, models stay half loaded and half fetched.
        failure: A `Failed` to answer the next `Generate` with.
        loaded: Name of the model that is loaded.
        spares: A model that cannot be loaded leaves the loaded one as it is.
    """

    def __init__(
        self,
        script: Script = echo,
        rate: float = 0,
        models: Sequence[str] = ("fake-model",),
        load_delay: float = 0,
        prefill_steps: int = 2,
        prefill_delay: float = 0,
    ) -> None:
        self.script = script
        self.rate = rate
        self.models = list(models)
        self.load_delay = load_delay
        self.prefill_steps = prefill_steps
        self.prefill_delay = prefill_delay
        self.requests: list[AnyRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.loading = asyncio.Event()
        self.loading.set()
        self.failure: Failed | None = None
        self.loaded = ""
        self.spares = True
        self._numbers = itertools.count(1)
        self._busy = asyncio.Lock()
        self._cancelled: set[int] = set()
        self._read: dict[str, list[str]] = {}
        self._lost: EngineLost | None = None
        self._alive = True

    @property
    def alive(self) -> bool:
        return self._alive

    async def hello(self) -> Hello:
        await asyncio.sleep(0)
        return Hello(0, version=1, pid=1, mlx="0", mlx_lm="0", device="cpu", blas="none")

    def next_request(self) -> int:
        return next(self._numbers)

    def die(self, message: str = "The engine was killed (out of memory?).") -> None:
        """Ends as a killed process does: requests in flight raise `EngineLost`."""
        self._alive = False
        self._lost = EngineLost(message)
        self.gate.set()

    def asked(self, kind: type[AnyRequest]) -> list[AnyRequest]:
        """The requests of one kind."""
        return [request for request in self.requests if isinstance(request, kind)]

    async def request(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        self._check()
        self.requests.append(request)
        match request:
            case Load():
                events = self._load(request)
            case Fetch():
                events = self._fetch(request)
            case Generate():
                events = self._in_turn(request)
            case Forecast():
                events = self._forecast(request)
            case Choose() | Leave():
                events = self._done(request)
            case _:
                raise AssertionError(f"the fake engine does not know {request}")
        async for event in events:
            self._check()
            if isinstance(event, Failed):
                raise RequestFailed(event.message, event.kind, event.kept)
            yield event

    async def ask(self, request: AnyRequest) -> AnyEvent:
        last: AnyEvent | None = None
        async for event in self.request(request):
            last = event
        assert last is not None
        return last

    def post(self, request: AnyRequest) -> None:
        self.requests.append(request)
        if isinstance(request, Cancel):
            self._cancelled.add(request.target)

    async def close(self) -> None:
        self._alive = False
        self.gate.set()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _load(self, request: Load) -> AsyncGenerator[AnyEvent, None]:
        yield Progress(request.request, "load", 1, 2, "steps")
        await asyncio.sleep(self.load_delay)
        await self.loading.wait()
        if request.model not in self.models:
            self.loaded = self.loaded if self.spares else ""
            sentence = f"No model is called {request.model}; chatapp models lists them."
            yield Failed(request.request, "model", sentence, kept=bool(self.loaded))
            return
        self.loaded = request.model
        yield Loaded(
            request.request,
            model=request.model,
            title=request.model.title(),
            max_kv_size=request.max_kv_size or 2048,
            context=2048,
        )

    async def _fetch(self, request: Fetch) -> AsyncGenerator[AnyEvent, None]:
        for done in range(0, 101, 20):
            if request.request in self._cancelled:
                yield Failed(request.request, "cancelled", "The download was stopped; starting it again resumes it.")
                return
            yield Progress(request.request, "download", done, 100, "bytes", "weights")
            await asyncio.sleep(self.load_delay / 5)
            await self.loading.wait()
        self.models.append(request.model)
        yield Fetched(request.request, request.model, "/nowhere", 100)

    async def _done(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        yield Done(request.request)

    async def _forecast(self, request: Forecast) -> AsyncGenerator[AnyEvent, None]:
        prompt = _prompt(request.turns)
        reused = self._reused(request.conversation, prompt)
        yield Forecasted(request.request, len(prompt), reused, len(prompt) - reused, "trim" if reused else "cold")

    def _reused(self, conversation: str, prompt: list[str]) -> int:
        known = self._read.get(conversation, [])
        same = next((i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b), None)
        return min(len(known), len(prompt) - 1) if same is None else same

    async def _in_turn(self, request: Generate) -> AsyncGenerator[AnyEvent, None]:
        """One reply after another, as a real engine makes them."""
        async with self._busy:
            async for event in self._generate(request):
                yield event

    async def _generate(self, request: Generate) -> AsyncGenerator[AnyEvent, None]:
        number = request.request
        if self.failure is not None:
            failure, self.failure = self.failure, None
            yield Failed(number, failure.kind, failure.message)
            return
        prompt = _prompt(request.turns)
        reused = self._reused(request.conversation, prompt)
        for step in range(self.prefill_steps):
            await asyncio.sleep(self.prefill_delay)
            if number in self._cancelled:
                for candidate in range(request.candidates):
                    yield _ended(number, "cancelled", [], candidate, reused)
                return
            yield Prefill(number, (step + 1) * (len(prompt) - reused) // self.prefill_steps, len(prompt) - reused)
        if request.score_prompt:
            for turn, each in enumerate(request.turns):
                yield Scored(number, tuple(token(i, piece) for i, piece in enumerate(pieces(each.content))), turn)
        yield Started(number, len(prompt), reused, len(prompt) - reused, "trim" if reused else "cold", keep=4)
        replies = [pieces(self.script(request, candidate)) for candidate in range(request.candidates)]
        given = len(request.turns[-1].tokens) if request.continue_last else 0
        finish: Finish = "stop"
        made: list[list[Token]] = [[] for _ in replies]
        pending: Token | None = None
        begin = time.monotonic()
        for index in range(max(map(len, replies))):
            while not self.gate.is_set() and number not in self._cancelled:
                await asyncio.sleep(0.002)
            self._check()
            # By the clock, so that the rate holds also where this process gets little of the processor.
            due = begin + index / self.rate - time.monotonic() if self.rate else 0
            await asyncio.sleep(max(0.0, due))
            if number in self._cancelled:
                finish = "cancelled"
                break
            for candidate, reply in enumerate(replies):
                if index >= len(reply):
                    continue
                record = token(given + index, reply[index])
                if request.pause_above is not None and record.entropy > request.pause_above:
                    finish, pending = "paused", record
                    break
                made[candidate].append(record)
                yield Tokens(number, (record,), candidate)
            if pending is not None:
                break
        self._read[request.conversation] = prompt + [record.text for record in made[0]]
        for candidate, records in enumerate(made):
            yield _ended(number, finish, records, candidate, len(prompt) + len(records), pending)


def _prompt(turns: Sequence[Turn]) -> list[str]:
    return [piece for turn in turns for piece in (f"<{turn.role}>", *pieces(turn.content))]


def _ended(
    number: int, finish: Finish, records: list[Token], candidate: int, cached: int, pending: Token | None = None
) -> Ended:
    mean = math.fsum(record.entropy for record in records) / len(records) if records else 0.0
    return Ended(
        number,
        finish=finish,
        tokens=len(records),
        text="".join(record.text for record in records),
        prompt_tps=100.0,
        generation_tps=50.0,
        mean_entropy=mean,
        seed=7,
        cached=cached,
        candidate=candidate,
        pending=pending,
    )
