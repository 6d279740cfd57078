"""A conversation with everything in it, told to an engine; what came of it can be compared with another engine's."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from chatapp.client import Engine
from chatapp.protocol import (
    AnyEvent,
    Cancel,
    Choose,
    Ended,
    Forecast,
    Forecasted,
    Generate,
    Leave,
    Load,
    Loaded,
    Note,
    Sampling,
    Score,
    Scored,
    Started,
    Tokens,
    Turn,
)
from chatapp.tokens import Token

#: The end of a turn, in the tiny models' vocabulary and in the default model's.
END = 2
GREEDY = Sampling(temperature=0.0, max_tokens=8)
SEEDED = Sampling(temperature=1.0, top_p=0.95, seed=11, max_tokens=8)
ADAPTIVE = Sampling(sampler="adaptive", seed=5, max_tokens=8)
FILTERED = Sampling(
    temperature=0.8,
    top_k=20,
    min_p=0.02,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    logit_bias={5: 1.0},
    stop=("never said",),
    seed=3,
    max_tokens=5,
)


@dataclass
class Said:
    """What an engine answered to one step.

    Attributes:
        step: Names it.
        facts: What has to be equal on engines of any size.
        tokens: Records, of all candidates one after another.
    """

    step: str
    facts: tuple[object, ...]
    tokens: list[Token] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


@dataclass
class Talk:
    """Talks to one engine."""

    engine: Engine
    said: list[Said] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    guessed: int = 0
    seed: int = 0
    cache_file: str | None = None
    conversation: str = "c"

    async def load(self, model: Path, **options: object) -> Loaded:
        loaded = await self.engine.ask(Load(self.engine.next_request(), str(model), **options))  # pyright: ignore
        assert isinstance(loaded, Loaded)
        return loaded

    async def reply(
        self,
        step: str,
        *turns: Turn,
        sampling: Sampling = GREEDY,
        continue_last: bool = False,
        **options: object,
    ) -> Turn:
        """One reply (the first candidate's), as a turn for later prompts."""
        asked = Forecast(
            self.engine.next_request(),
            self.conversation,
            turns,
            continue_last=continue_last,
            cache_file=self.cache_file,
        )
        told = [event async for event in self.engine.request(asked)]
        forecast = next(event for event in told if isinstance(event, Forecasted))
        request = Generate(
            self.engine.next_request(),
            self.conversation,
            turns,
            sampling,
            continue_last=continue_last,
            cache_file=self.cache_file,
            **options,  # pyright: ignore
        )
        events = [event async for event in self.engine.request(request)]
        started = next(event for event in events if isinstance(event, Started))
        ended = sorted((event for event in events if isinstance(event, Ended)), key=lambda end: end.candidate)
        by_candidate = [_tokens(events, end.candidate) for end in ended]
        assert (forecast.reused, forecast.prefilled) == (started.reused, started.prefilled)
        ends = ((end.finish, end.text, end.pending and end.pending.id) for end in ended)
        facts = (started.reused, started.prefilled, started.method, *ends)
        self.said.append(Said(step, facts, [token for tokens in by_candidate for token in tokens]))
        if scored := _scored(events):
            self.said.append(Said(f"{step}, its prompt", (), scored))
        self.seed = ended[0].seed
        self.guessed += sum(end.drafted for end in ended)
        self.notes += [event.message for event in [*told, *events] if isinstance(event, Note)]
        if len(ended) > 1:
            await self.engine.ask(Choose(self.engine.next_request(), request.request, 1))
            return Turn("assistant", ended[1].text, tuple(token.id for token in by_candidate[1]))
        return Turn("assistant", ended[0].text, tuple(token.id for token in by_candidate[0]))

    async def cancelled(self, *turns: Turn, after: int = 1) -> None:
        """A reply that is stopped once ``after`` tokens have come; how far it gets is a matter of speed.

        What of it can be gone back to depends on that: a short branch gets no checkpoint, and one that was left beyond
        C cannot be trimmed. So that later steps reuse the same wherever it was stopped, they must not need it.
        """
        # With a seed, because a reply that happens to begin as an earlier one did is reused a token further.
        endless = Sampling(temperature=1.0, seed=23, max_tokens=5000, logit_bias={END: -1000.0})
        request = Generate(self.engine.next_request(), self.conversation, turns, endless)
        ended: Ended | None = None
        came = 0
        async for event in self.engine.request(request):
            if isinstance(event, Tokens):
                came += len(event.tokens)
                if came >= after:
                    self.engine.post(Cancel(self.engine.next_request(), target=request.request))
            if isinstance(event, Ended):
                ended = event
        assert ended is not None
        assert ended.finish == "cancelled"
        assert ended.tokens >= after

    async def cancelled_while_reading(self, *turns: Turn) -> None:
        """A reply that the client no longer wants when its prompt begins to be read: only rank 0 knows of it."""
        request = Generate(self.engine.next_request(), self.conversation, turns, GREEDY)
        self.engine.post(Cancel(self.engine.next_request(), target=request.request))
        ended = await self.engine.ask(request)
        assert isinstance(ended, Ended)
        assert (ended.finish, ended.tokens) == ("cancelled", 0)

    async def scored(self, text: str) -> None:
        events = [event async for event in self.engine.request(Score(self.engine.next_request(), text))]
        self.said.append(Said("score", (), _scored(events)))

    async def left(self) -> None:
        await self.engine.ask(Leave(self.engine.next_request(), self.conversation, self.cache_file))


def _scored(events: list[AnyEvent]) -> list[Token]:
    return [token for event in events if isinstance(event, Scored) for token in event.tokens]


def _tokens(events: list[AnyEvent], candidate: int) -> list[Token]:
    return [t for e in events if isinstance(e, Tokens) and e.candidate == candidate for t in e.tokens]


async def everything(engine: Engine, model: Path, *, capacity: int, words: int) -> list[Said]:
    """Edits, regenerations, cancels, candidates and rotation, in one conversation.

    Args:
        engine: Just started.
        model: Folder.
        capacity: C; the conversation grows beyond it.
        words: Length of the longer messages.
    """
    talk = Talk(engine)
    await talk.load(model, max_kv_size=capacity, keep=6)
    system = Turn("system", "You are brief.")
    first = Turn("user", "What is the capital of France?")
    answer = await talk.reply("first", system, first)
    seeded = await talk.reply("regenerated with a seed", system, first, sampling=SEEDED)
    second = Turn("user", "And " + "the queen of the castle and " * words + "the sea?")
    more = await talk.reply("second", system, first, seeded, second, attention=True)
    await talk.reply("another branch", system, first, answer, second)
    await talk.cancelled(system, first, seeded, second, more, Turn("user", "Go on."))
    edited = Turn("user", "What is the capital of Spain?")
    await talk.cancelled_while_reading(system, edited)
    again = await talk.reply("edited", system, edited, sampling=SEEDED)
    chosen = await talk.reply("candidates", system, edited, again, second, sampling=SEEDED, candidates=3)
    third = Turn("user", "Tell me a story about " + "one, two, three and " * words + "a king.")
    long = await talk.reply("beyond C", system, edited, again, second, chosen, third, sampling=ADAPTIVE)
    await talk.reply("rotated", system, edited, again, second, chosen, third, long, Turn("user", "Yes!"))
    await talk.reply("back, where C was passed", system, edited, again, second, chosen, Turn("user", "No?"))
    await talk.reply("far back", system, first, seeded, second, Turn("assistant", more.content, more.tokens[:5]), third)
    cut = Turn("assistant", chosen.content, chosen.tokens[:4])
    await talk.reply("continued", system, edited, again, second, cut, continue_last=True)
    above, place = _hesitation(talk.said[1].tokens)
    await talk.reply("paused", system, first, sampling=SEEDED, pause_above=above)
    other = talk.said[1].tokens[place].top[1].id
    picked = Turn("assistant", seeded.content, (*seeded.tokens[:place], other))
    await talk.reply("picked", system, first, picked, continue_last=True, sampling=SEEDED)
    await talk.reply("continuations", system, first, picked, continue_last=True, sampling=SEEDED, candidates=2)
    await talk.reply("filtered", system, Turn("user", "Yes, but no?"), sampling=FILTERED, score_prompt=True)
    await talk.scored("The quick brown fox jumps over the lazy dog. Yes! No?")
    return talk.said


def _hesitation(tokens: list[Token]) -> tuple[float, int]:
    """An entropy that a reply first exceeds in its middle, and where."""
    highest = tokens[0].entropy
    for place, token in enumerate(tokens):
        if token.entropy > highest + 0.01:
            return (highest + token.entropy) / 2, place
        highest = max(highest, token.entropy)
    raise AssertionError("the reply begins with its most uncertain token: take another seed")


def assert_took_place(said: list[Said], capacity: int) -> None:
    """What the script is for really happened."""
    steps = {found.step: found for found in said}
    assert {"cold", "trim", "checkpoint"} <= {found.facts[2] for found in said if found.facts}
    assert sum(steps["beyond C"].facts[:2]) > capacity  # pyright: ignore
    assert steps["edited"].facts[0] > 0  # pyright: ignore
    assert steps["first"].ids != steps["regenerated with a seed"].ids
    assert len(steps["candidates"].facts) == 3 + 3
    assert all(token.attention for token in steps["second"].tokens)
    assert all(token.state for token in steps["beyond C"].tokens)
    assert steps["paused"].facts[3][0] == "paused"  # pyright: ignore
    assert steps["paused"].ids == steps["regenerated with a seed"].ids[: len(steps["paused"].ids)] != []
    assert steps["filtered, its prompt"].tokens


def assert_alike(one: list[Said], several: list[Said], tolerance: float = 1e-4) -> None:
    """Equal ids and facts; H, V, S and attention within ``tolerance``."""
    assert [said.step for said in one] == [said.step for said in several]
    for expected, found in zip(one, several, strict=True):
        assert found.facts == expected.facts, expected.step
        assert found.ids == expected.ids, expected.step
        assert expected.ids
        for a, b in zip(expected.tokens, found.tokens, strict=True):
            for x, y in zip(_numbers(a), _numbers(b), strict=True):
                assert abs(x - y) <= tolerance, (expected.step, a, b)


def _numbers(token: Token) -> list[float]:
    found = [token.entropy, token.varentropy, token.surprisal, token.sampled_entropy]
    if attention := token.attention:
        found += [attention.entropy, attention.varentropy, attention.agreement, attention.interaction]
        found += [*attention.layers, *(seen.weight for seen in attention.top)]
    return found
