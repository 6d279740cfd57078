"""When something is guessed, and how much: what lookup finds, and that guessing pays or stops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.draft_model import ModelDrafter
from chatapp.engine.decode.gain import LONGEST_DRAFT, Costs, best_length
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.speculative import Drafter
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Sampling
from tests import tiny

FREE = Costs(row=0.0, pass_=0.0)
ALICE = [ord(letter) for letter in (Path(__file__).parents[2] / "bench/texts/alice.txt").read_text("utf-8")[:1500]]


def test_lookup_finds_the_latest_continuation() -> None:
    assert _guess([1, 2, 3, 4, 5, 1, 2], 3) == [3, 4, 5]
    assert _guess([1, 2, 3, 4, 5, 1, 2, 9, 9, 1, 2], 2) == [9, 9]
    assert _guess([1, 2, 3], 4) == []
    assert _guess([1], 4) == []


def test_lookup_prefers_the_longer_match() -> None:
    assert _guess([1, 2, 3, 50, 8, 2, 3, 60, 1, 2, 3], 1) == [50]


def test_lookup_goes_on_beyond_the_end_of_a_loop() -> None:
    assert _guess([9, 1, 2, 3, 1, 2, 3], 8) == [1, 2, 3, 1, 2, 3, 1, 2]


def test_lookup_stays_where_it_was_right_rather_than_take_the_latest_place() -> None:
    """A list is copied whose lines end alike: what follows is the next line of the original, not of the copy."""
    lines = [[10 + number, 1, 2, 3, 4, 5, 6] for number in range(6)]
    text = [token for line in lines for token in line]
    drafter = LookupDrafter(FREE)
    for place, token in enumerate(text[: 3 * 7]):
        guess = drafter.propose(text, place, 7)
        assert place < 2 or guess[0] == token
        text = [*text, token]


def _guess(text: list[int], most: int) -> list[int]:
    return LookupDrafter(FREE).propose(text, 0, most)


@pytest.mark.parametrize("row", [0.05, 0.15, 0.75])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), letters=st.integers(2, 40))
def test_lookup_costs_next_to_nothing_where_nothing_is_copied(row: float, seed: int, letters: int) -> None:
    draw = random.Random(seed)
    text = [draw.randrange(letters) for _ in range(400)]
    assert _cost(LookupDrafter(Costs(row)), text, 200, Costs(row)) < 200 * 1.04


@pytest.mark.parametrize("row", [0.05, 0.15])
def test_lookup_pays_where_the_prompt_is_copied(row: float) -> None:
    edited = [*ALICE[:500], *ALICE[510:900], 7, 8, *ALICE[900:1200], 9, *ALICE[1200:]]
    cost = _cost(LookupDrafter(Costs(row)), [*ALICE, 1, 2, *edited], len(ALICE) + 2, Costs(row))
    assert cost < 0.35 * len(edited)


def test_lookup_learns_within_a_reply_that_it_cannot_guess() -> None:
    """A prompt that repeats itself, and a reply that quotes four letters of it at a time and goes on otherwise."""
    draw = random.Random(3)
    reply: list[int] = []
    while len(reply) < 400:
        place = draw.randrange(len(ALICE) - 4)
        reply += [*ALICE[place : place + 4], 200 + draw.randrange(50)]
    costs = Costs()
    assert _cost(LookupDrafter(costs), [*ALICE, *reply], len(ALICE), costs) < 1.03 * len(reply)


def _cost(drafter: Drafter, text: Sequence[int], start: int, costs: Costs) -> float:
    """What decoding a text's end takes, in passes of one token, if all that is guessed is checked."""
    place, total = start, 0.0
    while place < len(text):
        guess = drafter.propose(list(text[:place]), place - start, LONGEST_DRAFT)
        right = 0
        while right < len(guess) and place + right < len(text) and guess[right] == text[place + right]:
            right += 1
        drafter.learn(len(guess), right)
        total += costs.of(len(guess)) if guess else 1
        place += right + 1
    return total


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    chances=st.lists(st.floats(0, 1), min_size=LONGEST_DRAFT, max_size=LONGEST_DRAFT),
    row=st.floats(0.01, 1),
    token=st.floats(0, 1),
)
def test_the_length_is_the_one_with_the_highest_rate(chances: list[float], row: float, token: float) -> None:
    """Against the expectation written out by the place of the first miss; the model's own token comes on top."""
    costs = Costs(row=row, token=token, pass_=0.1)

    def rate(length: int) -> float:
        expected, reached = 0.0, 1.0
        for place in range(length):
            expected += reached * (1 - chances[place]) * (place + 1)
            reached *= chances[place]
        return (expected + reached * (length + 1)) / (1.1 + length * (row + token)) if length else 1.0

    best = best_length(lambda place: chances[place], costs, LONGEST_DRAFT)
    assert rate(best) >= max(rate(length) for length in range(LONGEST_DRAFT + 1)) - 1e-9


@pytest.mark.parametrize(("token", "most"), [(0.02, 40), (0.5, 20), (2.0, 0)], ids=["small", "large", "too large"])
def test_a_draft_model_that_is_never_right_is_hardly_asked(token: float, most: int) -> None:
    drafter = _drafter(Costs(token=token))
    text, guessed, rests = list(range(20)), 0, 0
    for _ in range(500):
        rested = drafter.resting(text, 16)
        text.append(len(text) % 90)
        guess = drafter.propose(text, len(text) - 20, 16)
        assert not (rested and guess), "who rests has nothing to propose"
        guessed += len(guess)
        rests += rested
        if guess:
            drafter.learn(len(guess), 0)
    assert guessed <= most
    assert rests > 450


def test_a_draft_model_that_comes_to_be_right_is_asked_again() -> None:
    drafter = _drafter(Costs(token=0.1))
    text, lengths = list(range(20)), []
    for step in range(300):
        text.append(step % 90)
        guess = drafter.propose(text, step, 16)
        if guess:
            drafter.learn(len(guess), len(guess) if step > 60 else 0)
            lengths.append(len(guess))
    assert lengths[-1] == LONGEST_DRAFT


def _drafter(costs: Costs) -> ModelDrafter:
    draft = tiny.make("llama")
    config = Standard().configure(Sampling(temperature=0.0), ModelFacts(96))
    return ModelDrafter(draft, SessionCache(draft, CacheLimits(1024)), Standard(), config, 0, costs=costs)
