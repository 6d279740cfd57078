"""Thirty turns with the default model at C = 512, which rotates: every next-token distribution is a cold run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.utils import load

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.session import CacheLimits, Plan, SessionCache
from tests.cache.chat import complete
from tests.cache.oracle import assert_same, cold_caches, logprobs

CAPACITY = 512
REPLY = 6

SYSTEM = (
    "You are a terse guide to Italy for people who travel by train. Answer in few words, and never in more than one "
    "sentence. Give prices in euros and distances in kilometres. When you do not know something, say so and name an "
    "office, a station or a website where it can be found out. Do not recommend hotels that you have not been asked "
    "about, and do not repeat what was said before. If a question is about food, name one dish and the town that it "
    "comes from. Be kind to people who are late, tired or hungry, and do not make jokes about trains."
)
QUESTIONS = [
    "What is the capital of France?",
    "And of Italy?",
    "Which of them is larger?",
    "Name a river there.",
    "And a mountain.",
    "What grows there?",
    "Is it warm in May?",
    "What should I pack?",
    "How far is Rome by train?",
    "What does that cost?",
    "Where do I change?",
    "Can I bring a bicycle?",
    "What if it rains?",
    "Name a museum.",
    "When does it open?",
    "Who painted the ceiling?",
    "In which year?",
    "For whom?",
    "What is it about?",
    "How long did it take?",
    "Is photography allowed?",
    "Where do I eat nearby?",
    "Is that place cheap?",
    "What is their best dish?",
    "Is it spicy?",
    "What wine goes with it?",
    "And without alcohol?",
    "Where do I sleep?",
    "Is breakfast included?",
    "How do I say thanks?",
]


class Talk:
    """The scripted conversation: exchanges of ids, and the logits seen on the way."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model
        self.encode = lambda text: tokenizer.encode(text, add_special_tokens=False)
        self.cache = SessionCache(model, CacheLimits(CAPACITY))
        self.system = self.encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n")
        self.opening = self.encode("<|im_start|>assistant\n")
        self.closing = self.encode("<|im_end|>\n")
        self.exchanges: list[tuple[list[int], list[int]]] = []
        self.seen: list[tuple[list[int], mx.array]] = []
        self.plans: list[Plan] = []

    def ask(self, question: str) -> None:
        self.exchanges.append((self.encode(f"<|im_start|>user\n{question}<|im_end|>\n") + self.opening, []))
        self.answer()

    def regenerate(self) -> None:
        self.exchanges[-1][1].clear()
        self.answer()

    def edit(self, back: int, question: str) -> None:
        """Asks another question ``back`` exchanges ago (1 is the last) and forgets what followed."""
        del self.exchanges[-back:]
        self.ask(question)

    def answer(self) -> None:
        """The last exchange's reply begins, or goes on."""
        ids = list(self.system)
        for question, reply in self.exchanges[:-1]:
            ids += question + reply + self.closing
        question, reply = self.exchanges[-1]
        ids += question + reply
        forecast = self.cache.forecast(ids, len(self.system))
        self.plans.append(self.cache.prepare(ids, len(self.system)))
        assert self.plans[-1] == forecast
        for _ in self.cache.prefill(ids[len(self.cache.tokens) : -1], 64):
            pass
        self.cache.checkpoint("start")
        token = ids[-1]
        for _ in range(REPLY):
            logits = self.model(mx.array([[token]]), cache=self.cache.layers)[0]
            self.cache.read([token])
            self.seen.append((list(self.cache.tokens), logits))
            token = int(logits[-1].argmax().item())
            reply.append(token)
        self.cache.checkpoint("end")
        assert kv.offset(self.cache.layers) == len(self.cache.tokens)

    def check(self) -> None:
        """Compares every distribution with that of one cold pass over the longest sequence that begins alike."""
        left = sorted(self.seen, key=lambda pair: -len(pair[0]))
        while left:
            longest = left[0][0]
            mine = [pair for pair in left if longest[: len(pair[0])] == pair[0]]
            left = [pair for pair in left if longest[: len(pair[0])] != pair[0]]
            cold = self.model(
                mx.array([longest]), cache=cold_caches(self.model, len(longest), CAPACITY, self.cache.keep)
            )
            rows = mx.array([len(ids) - 1 for ids, _ in mine])
            assert_same(logprobs(mx.concatenate([logits for _, logits in mine])), logprobs(cold[0][rows]))


@pytest.mark.model
def test_thirty_turns_at_512_tokens_are_those_of_a_cold_start(default_model_dir: Path) -> None:
    model, tokenizer = load(str(default_model_dir))[:2]
    talk = Talk(model, tokenizer)
    rotated = 0
    for turn, question in enumerate(QUESTIONS, start=1):
        talk.ask(question)
        if turn == 3:
            talk.edit(1, "Which of them is older?")
        if turn == 26:
            talk.answer()
        if turn == 27:
            talk.regenerate()
            assert talk.plans[-1].prefilled == 1
        if turn == 28:
            talk.edit(5, "Is that place crowded?")
            assert talk.plans[-1].method == "trim"
            assert talk.plans[-1].prefilled < 40
        rotated += not complete(talk.cache)
    assert rotated >= 12  # turns
    assert len(talk.cache.tokens) > 1.25 * CAPACITY
    assert talk.cache.keep == len(talk.system) > 100
    talk.edit(len(talk.exchanges) - 2, "What is the capital of Spain?")  # the third question of all
    assert len(talk.exchanges) == 3
    assert talk.plans[-1].prefilled < 30
    talk.check()
