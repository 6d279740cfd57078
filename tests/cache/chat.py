"""A chat in token ids: just enough of conversations, templates and decoding to drive the cache as the engine does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.rotating import RotatingLayer
from chatapp.engine.cache.session import Plan, SessionCache
from tests.cache import oracle

#: Ids with a meaning; messages are made of ids from `WORDS` on.
SYSTEM, USER, REPLY, END, THOUGHT = 1, 2, 3, 4, 5
WORDS = 8

Role = Literal["user", "reply"]


@dataclass(frozen=True)
class Message:
    role: Role
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Shown:
    """One state of a conversation: what an undo brings back."""

    system: tuple[int, ...]
    messages: tuple[Message, ...] = ()

    def render(self, thinking: bool, going_on: bool = False) -> tuple[list[int], int]:
        """The prompt and where its system message ends.

        Args:
            thinking: The template drops from earlier replies what comes before their last `THOUGHT`.
            going_on: The last reply goes on, instead of a new one being opened.
        """
        ids = [SYSTEM, *self.system, END]
        system_end = len(ids)
        last = len(self.messages) - 1
        for at, message in enumerate(self.messages):
            said = message.ids
            if thinking and message.role == "reply" and at < last and THOUGHT in said:
                said = said[len(said) - said[::-1].index(THOUGHT) :]
            ids += [USER if message.role == "user" else REPLY, *said]
            if not (going_on and at == last):
                ids.append(END)
        return (ids if going_on else [*ids, REPLY]), system_end

    def upto(self, count: int) -> Shown:
        return replace(self, messages=self.messages[:count])

    def add(self, role: Role, ids: tuple[int, ...]) -> Shown:
        return replace(self, messages=(*self.messages, Message(role, ids)))


@dataclass
class Conversation:
    """What was ever shown, the latest last; and its cache's name."""

    name: str
    thinking: bool
    shown: Shown
    past: list[Shown] = field(default_factory=list)

    def show(self, shown: Shown) -> None:
        self.past.append(self.shown)
        self.shown = shown


@dataclass
class Reading:
    """Logits that the model gave on the way, to be compared with a cold run's."""

    model: Any
    cache: SessionCache
    first: int
    rows: list[mx.array] = field(default_factory=list)

    def add(self, logits: mx.array) -> None:
        self.rows.append(logits[0])

    def check(self) -> None:
        """All of them are a cold run's, and the record is what the layers hold."""
        ids = self.cache.tokens
        assert kv.offset(self.cache.layers) in (len(ids), None)
        if not self.rows:
            return
        actual = oracle.logprobs(mx.concatenate(self.rows))
        expected = oracle.cold_logprobs(self.model, ids, self.cache.limits.max_kv_size, self.cache.keep)
        oracle.assert_same(actual, expected[self.first : self.first + len(actual)])
        assert self.first + len(actual) == len(ids)


def complete(cache: SessionCache) -> bool:
    """Whether nothing has rotated out of it yet."""
    return all(layer.dropped == 0 for layer in kv.flat(cache.layers) if isinstance(layer, RotatingLayer))


def prepare(cache: SessionCache, ids: list[int], system_end: int) -> Plan:
    """Rewinds, and sees that the forecast told it."""
    before = list(cache.tokens)
    all_held = kv.prefix_of_longer(cache.layers) and complete(cache)
    all_held = all_held and kv.offset(cache.layers) == len(before)
    all_held = all_held and cache.keep == cache.limits.kept(system_end)
    forecast = cache.forecast(ids, system_end)
    assert cache.tokens == before
    plan = cache.prepare(ids, system_end)
    assert plan == forecast
    assert cache.tokens == ids[: plan.reused]
    assert plan.reused + plan.prefilled == len(ids)
    assert plan.prefilled >= 1
    if all_held:  # nothing that changed is no reason to read again
        same = next((n for n, pair in enumerate(zip(before, ids, strict=False)) if pair[0] != pair[1]), len(before))
        assert plan.reused >= min(same, len(ids) - 1)
    return plan


def prefill(
    model: Any, cache: SessionCache, ids: list[int], system_end: int, step: int, stop_after: int | None = None
) -> tuple[Plan, Reading]:
    """Brings all but the last id of a prompt into the cache, or as many chunks of it as ``stop_after``."""
    plan = prepare(cache, ids, system_end)
    reading = Reading(model, cache, plan.reused)
    asked = iter(range(10**9))
    stops = lambda: stop_after is not None and next(asked) >= stop_after  # noqa: E731
    done = 0
    for done in cache.prefill(ids[plan.reused : -1], step, stops, reading.add):
        assert cache.tokens == ids[: plan.reused + done]
    if plan.reused + done == len(ids) - 1:
        cache.checkpoint("start")
    return plan, reading


def step(reading: Reading, token: int) -> int:
    """Feeds one token and returns the likeliest next one."""
    logits = reading.model(mx.array([[token]]), cache=reading.cache.layers)
    reading.cache.read([token])
    reading.add(logits)
    return int(logits[0, -1].argmax().item())


def decode(reading: Reading, token: int, length: int, in_flight: bool, seed: int) -> tuple[int, ...]:
    """Decodes a reply after the prompt's last id.

    Args:
        reading: Of the prompt.
        token: The prompt's last id, not fed yet.
        length: How many ids to give out.
        in_flight: The last id was already fed when decoding ended (a cancel, an end-of-turn).
        seed: Draws ids now and then that are not the likeliest.
    """
    draw = np.random.default_rng(seed)
    reply: list[int] = []
    for _ in range(length):
        token = step(reading, token)
        if draw.random() < 0.4:
            token = int(draw.choice([THOUGHT, *range(WORDS, WORDS + 40)]))
        reply.append(token)
    if in_flight and reply:
        step(reading, token)
    reading.cache.checkpoint("end")
    return tuple(reply)
