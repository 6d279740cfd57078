"""What the model read: which records a message is shown with."""

from __future__ import annotations

from chatapp.conversation.records import TYPED
from chatapp.protocol import Scored
from chatapp.tokens import Token
from chatapp.ui.scores import PromptScores, spelling


def records(*texts: str, first: int = 0, id: int = 5) -> list[Token]:
    return [Token(first + i, id, text, 1.0, 1.0, 1.0, 1.0) for i, text in enumerate(texts)]


def texts(tokens) -> list[str]:
    return [token.text for token in tokens]


def test_a_whole_message_is_what_was_read():
    assert texts(spelling("one two", (), records("one", " two"))) == ["one", " two"]


def test_white_space_that_the_template_left_out_is_there_again():
    assert texts(spelling("one two \n", (), records("one", " two"))) == ["one", " two", " \n"]


def test_sampled_tokens_stay_before_the_part_that_was_read_again():
    sampled = [*records("The", " cat", id=7), Token(2, TYPED, " dog sat", 0, 0, 0, 0)]
    found = spelling("The cat dog sat", sampled, records(" dog", " sat", first=2))
    assert [(token.text, token.id) for token in found] == [("The", 7), (" cat", 7), (" dog", 5), (" sat", 5)]


def test_a_gap_between_them_is_filled_without_numbers():
    sampled = [*records("The", id=7), Token(1, TYPED, " cat dog sat", 0, 0, 0, 0)]
    found = spelling("The cat dog sat", sampled, records(" sat", first=3))
    assert [(token.text, token.id) for token in found] == [("The", 7), (" cat dog", TYPED), (" sat", 5)]


def test_records_of_another_text_are_not_taken():
    assert spelling("one two", (), records("three")) == []


def test_chunks_of_a_turn_come_together_and_other_turns_are_left_out():
    scores = PromptScores()
    scores.expect([None, "a"])
    scores.take(Scored(1, tuple(records(" two", first=1)), 1))
    scores.take(Scored(1, tuple(records("one")), 1))
    scores.take(Scored(1, tuple(records("system")), 0))
    scores.take(Scored(1, tuple(records("?")), 9))
    assert scores.fresh() == {"a"}
    assert scores.fresh() == set()
    assert texts(scores.over("a", "one two", ())) == ["one", " two"]


def test_what_was_sampled_is_preferred():
    scores = PromptScores()
    scores.expect(["a"])
    scores.take(Scored(1, tuple(records("one")), 0))
    sampled = records("one", id=7)
    assert scores.over("a", "one", sampled) is sampled
