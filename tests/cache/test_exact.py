"""Whatever was done to a conversation, its next answer is the one that a cold start would give.

A Hypothesis state machine draws sequences of what people do. Every logit that the model gives on the way is compared
with the oracle's. ``CHATAPP_CACHE_OPERATIONS`` sets how many operations are drawn over all families.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as fixed_seed
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chatapp.engine.cache import disk
from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.pool import CachePool
from chatapp.engine.cache.session import CacheLimits
from tests import tiny
from tests.cache import chat
from tests.cache.chat import Conversation, Message, Shown

DEFAULT_OPERATIONS = 10_000
OPERATIONS = int(os.environ.get("CHATAPP_CACHE_OPERATIONS", DEFAULT_OPERATIONS))
STEPS = 50

#: C, with K at most half of it: small enough to rotate several times within `LONGEST`.
CAPACITY = 20
LONGEST = 100


def _some_words(seed: int) -> tuple[int, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(chat.WORDS, chat.WORDS + 60, draw.integers(1, 15)).tolist())


words = st.integers(0, 2**20).map(_some_words)
lengths = st.integers(0, 12)
chunks = st.integers(1, 30)
places = st.integers(0, 1000)
seeds = st.integers(0, 2**20)

performed: Counter[str] = Counter()
model_of = functools.lru_cache(tiny.make)


class ChatMachine(RuleBasedStateMachine):
    """Conversations of one model, and everything that can be done to them."""

    def __init__(self, family: str) -> None:
        super().__init__()
        self.family = family
        self.model: Any = model_of(family)
        self.folder = tempfile.TemporaryDirectory()

    @initialize(
        keep=st.sampled_from([None, None, 0, 3, CAPACITY // 2]),
        budget=st.sampled_from([0, 40_000, 10**9]),
        way=st.sampled_from([8, 1024]),
        thinking=st.booleans(),
        system=words,
    )
    def begin(self, keep: int | None, budget: int, way: int, thinking: bool, system: tuple[int, ...]) -> None:
        limits = CacheLimits(CAPACITY, keep=keep, checkpoint_bytes=budget, way=way)
        self.pool = CachePool(self.model, limits, budget=10**9)
        self.conversations = [
            Conversation(name, thinking, Shown(system), past=[Shown(system)]) for name in ("one", "two", "three")
        ]
        self.at = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    # --- helpers -----------------------------------------------------------------------------------------------

    @property
    def conversation(self) -> Conversation:
        return self.conversations[self.at]

    @property
    def shown(self) -> Shown:
        return self.conversation.shown

    def room(self) -> bool:
        return len(self.shown.render(False)[0]) < LONGEST

    def ends_with_reply(self) -> bool:
        return bool(self.shown.messages) and self.shown.messages[-1].role == "reply"

    def has_messages(self) -> bool:
        return bool(self.shown.messages)

    def mine(self) -> list[int]:
        return [at for at, message in enumerate(self.shown.messages) if message.role == "user"]

    def answer(
        self, shown: Shown, length: int, step: int, in_flight: bool, seed: int, going_on: bool = False
    ) -> tuple[int, ...]:
        """Generates a reply, as the engine does, and compares everything with the cold run."""
        ids, system_end = shown.render(self.conversation.thinking, going_on)
        cache = self.pool.get(self.conversation.name)
        _, reading = chat.prefill(self.model, cache, ids, system_end, step)
        reply = chat.decode(reading, ids[-1], length, in_flight, seed) if length else ()
        reading.check()
        return reply

    def reply(self, shown: Shown, length: int, step: int, in_flight: bool, seed: int) -> None:
        self.conversation.show(shown.add("reply", self.answer(shown, length, step, in_flight, seed)))
        self.did("reply")

    def did(self, what: str) -> None:
        performed[self.family] += 1
        performed[what] += 1

    # --- what people do ----------------------------------------------------------------------------------------

    @precondition(room)
    @rule(said=words, length=lengths, step=chunks, in_flight=st.booleans(), seed=seeds)
    def send(self, said: tuple[int, ...], length: int, step: int, in_flight: bool, seed: int) -> None:
        self.reply(self.shown.add("user", said), length, step, in_flight, seed)

    @precondition(mine)
    @rule(place=places, cut=places, said=words, length=lengths, step=chunks, seed=seeds)
    def edit_and_answer(self, place: int, cut: int, said: tuple[int, ...], length: int, step: int, seed: int) -> None:
        """Edits a message of the user's anywhere, from some word on, and has it answered."""
        mine = self.mine()
        at = mine[place % len(mine)]
        old = self.shown.messages[at].ids
        self.reply(self.shown.upto(at).add("user", old[: cut % (len(old) + 1)] + said), length, step, False, seed)

    @precondition(has_messages)
    @rule(place=places, cut=places, said=words, length=lengths, step=chunks, seed=seeds)
    def edit_in_place(self, place: int, cut: int, said: tuple[int, ...], length: int, step: int, seed: int) -> None:
        """Edits any message and keeps what follows; then the last reply goes on or a new one comes."""
        messages = list(self.shown.messages)
        at = place % len(messages)
        old = messages[at]
        messages[at] = Message(old.role, old.ids[: cut % (len(old.ids) + 1)] + said)
        shown = replace(self.shown, messages=tuple(messages))
        self.conversation.show(shown)
        self.answer(shown, length if self.room() else 0, step, False, seed, going_on=self.ends_with_reply())
        self.did("edit in place")

    @precondition(ends_with_reply)
    @rule(length=lengths, step=chunks, in_flight=st.booleans(), seed=seeds)
    def regenerate(self, length: int, step: int, in_flight: bool, seed: int) -> None:
        self.reply(self.shown.upto(len(self.shown.messages) - 1), length, step, in_flight, seed)

    @precondition(lambda self: self.ends_with_reply() and self.room())
    @rule(length=lengths, step=chunks, in_flight=st.booleans(), seed=seeds)
    def go_on(self, length: int, step: int, in_flight: bool, seed: int) -> None:
        shown = self.shown
        more = self.answer(shown, length, step, in_flight, seed, going_on=True)
        self.conversation.show(shown.upto(len(shown.messages) - 1).add("reply", shown.messages[-1].ids + more))
        self.did("continue")

    @precondition(ends_with_reply)
    @rule(place=places, token=st.integers(chat.WORDS, 90), length=lengths, step=chunks, seed=seeds)
    def pick(self, place: int, token: int, length: int, step: int, seed: int) -> None:
        """Takes another token somewhere in the last reply and goes on from there."""
        old = self.shown.messages[-1].ids
        begun = (*old[: place % (len(old) + 1)], token)
        shown = self.shown.upto(len(self.shown.messages) - 1).add("reply", begun)
        more = self.answer(shown, length, step, False, seed, going_on=True)
        self.conversation.show(shown.upto(len(shown.messages) - 1).add("reply", begun + more))
        self.did("pick")

    @precondition(has_messages)
    @rule(place=places, following=st.booleans(), step=chunks, seed=seeds)
    def delete(self, place: int, following: bool, step: int, seed: int) -> None:
        messages = self.shown.messages
        at = place % len(messages)
        left = messages[:at] if following else messages[:at] + messages[at + 1 :]
        self.conversation.show(replace(self.shown, messages=left))
        self.answer(self.shown, 1, step, False, seed)
        self.did("delete")

    @rule(step=chunks, seed=seeds)
    def undo(self, step: int, seed: int) -> None:
        if self.conversation.past:
            self.conversation.shown = self.conversation.past.pop()
        self.answer(self.shown, 1, step, False, seed)
        self.did("undo")

    @rule(place=places, length=lengths, step=chunks, seed=seeds)
    def switch_branch(self, place: int, length: int, step: int, seed: int) -> None:
        past = self.conversation.past
        if past:
            self.conversation.show(past[place % len(past)])
        self.answer(self.shown, length, step, False, seed)
        self.did("switch branch")

    @precondition(room)
    @rule(said=words, after=st.integers(0, 4), step=st.integers(1, 8))
    def cancel_while_reading(self, said: tuple[int, ...], after: int, step: int) -> None:
        ids, system_end = self.shown.add("user", said).render(self.conversation.thinking)
        cache = self.pool.get(self.conversation.name)
        _, reading = chat.prefill(self.model, cache, ids, system_end, step, stop_after=after)
        reading.check()
        self.did("cancel while reading")

    @rule(said=words, length=lengths, step=chunks, seed=seeds)
    def edit_system(self, said: tuple[int, ...], length: int, step: int, seed: int) -> None:
        """Changes the system message, and with it K."""
        self.conversation.show(replace(self.shown, system=said))
        self.answer(self.shown, length if self.room() else 0, step, False, seed)
        self.did("edit system")

    @rule(place=places, step=chunks, seed=seeds)
    def other_conversation(self, place: int, step: int, seed: int) -> None:
        self.at = place % len(self.conversations)
        self.answer(self.shown, 1, step, False, seed)
        self.did("other conversation")

    @rule(step=chunks, seed=seeds)
    def save_and_reload(self, step: int, seed: int) -> None:
        """Leaves the conversation and opens it again; its cache comes from disk."""
        path = Path(self.folder.name) / f"{self.conversation.name}{disk.SUFFIX}"
        cache = self.pool.get(self.conversation.name)
        assert disk.save(cache, path, "tiny") is None
        tokens = list(cache.tokens)
        self.pool.drop(self.conversation.name)
        cache = self.pool.get(self.conversation.name)
        if tokens:
            assert disk.load(cache, path, "tiny") is None
            assert cache.tokens == tokens
            plan = cache.forecast([*tokens, 9], cache.system_end)
            assert (plan.reused, plan.method) == (len(tokens), "disk")
        self.answer(self.shown, 1, step, False, seed)
        self.did("save and reload")

    @precondition(room)
    @rule(block=words, kept=places, seed=seeds)
    def draft(self, block: tuple[int, ...], kept: int, seed: int) -> None:
        """Reads a drafted block at once and keeps a beginning of it, as speculative decoding does."""
        self.answer(self.shown, 1, 9, True, seed)
        cache = self.pool.get(self.conversation.name)
        keep = kept % (len(block) + 1)
        place = cache.mark(len(block))
        length = len(cache.tokens)
        self.model(mx.array([block]), cache=cache.layers)
        cache.read(block)
        again = block[cache.rollback(place, keep) : keep]
        if again:
            self.model(mx.array([again]), cache=cache.layers)
            cache.read(again)
        assert cache.tokens[length:] == list(block[:keep])
        reading = chat.Reading(self.model, cache, len(cache.tokens))
        chat.step(reading, 9)
        reading.check()
        self.did("draft")

    @precondition(room)
    @rule(replies=st.lists(words, min_size=2, max_size=3), row=places, seed=seeds)
    def candidates(self, replies: list[tuple[int, ...]], row: int, seed: int) -> None:
        """Decodes several replies as a batch and takes one over."""
        self.answer(self.shown, 1, 9, False, seed)
        cache = self.pool.get(self.conversation.name)
        replies = [(reply * 5)[:5] for reply in replies]
        batch = kv.expand(cache.layers, len(replies))
        for column in zip(*replies, strict=True):
            mx.eval(self.model(mx.array(column)[:, None], cache=batch))
        row %= len(replies)
        cache.adopt(kv.select(batch, row), replies[row])
        reading = chat.Reading(self.model, cache, len(cache.tokens))
        chat.step(reading, 9)
        reading.check()
        self.did("candidates")

    @invariant()
    def within_budget(self) -> None:
        """The checkpoints keep their budget, unless all that could go are gone: one is left before rotation at most."""
        for conversation in getattr(self, "conversations", ()):
            if conversation.name not in self.pool:
                continue
            ladder = self.pool.get(conversation.name).ladder
            free = [rung for rung in ladder if rung.kind != "system"]
            early = [rung for rung in free if rung.length < CAPACITY]
            assert ladder.nbytes <= ladder.budget or (len(early) <= 1 and early == free)


@pytest.mark.timeout(max(1800, OPERATIONS // 5))
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_any_sequence_of_operations_answers_as_a_cold_start(family: str) -> None:
    share = -(-OPERATIONS // len(tiny.FAMILIES))
    rounds = 0
    while performed[family] < share:
        missing = share - performed[family]
        run_state_machine_as_test(
            fixed_seed(rounds)(functools.partial(ChatMachine, family)),
            settings=settings(
                max_examples=min(missing // STEPS + 1, 40),
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
        rounds += 1
    print(f"{family}: {performed[family]} operations in {rounds} rounds")
