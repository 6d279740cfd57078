"""Ids to text: nothing lost, nothing doubled, nothing shown before its bytes are complete; stop strings are cut."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chatapp.engine.decode.text import Detokenizer, StopStrings, TokenTexts, hidden_ids
from chatapp.tokens import Token
from tests.decode.tokenizers import CORPUS, byte_level, sentencepiece

KINDS = {"byte-level": byte_level, "sentencepiece": sentencepiece}
both = pytest.mark.parametrize("kind", KINDS)
texts = st.lists(st.sampled_from([*CORPUS, "🦒", "é", " ", "  ", "\n", "a", "東", "</", "x"]), max_size=6).map("".join)


def pieces(tokenizer, ids, before=()):
    detokenizer = Detokenizer(tokenizer, before)
    return [detokenizer.add(token) for token in ids]


def decoded(tokenizer, ids):
    """The library's own decoding, without a code point that breaks off at the end."""
    return tokenizer.decode(ids, clean_up_tokenization_spaces=False).rstrip("\ufffd")


@both
@given(text=texts | st.text(max_size=30))
@settings(deadline=None, max_examples=120)
def test_pieces_join_to_the_decoded_text(kind, text):
    tokenizer = KINDS[kind]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    ids = [token for token in ids if token not in hidden_ids(tokenizer)]
    joined = pieces(tokenizer, ids)
    assert "".join(joined) == decoded(tokenizer, ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in joined)


@both
@given(data=st.data())
@settings(deadline=None, max_examples=120)
def test_any_ids_even_broken_bytes(kind, data):
    tokenizer = KINDS[kind]()
    usable = [token for token in range(len(tokenizer)) if token not in hidden_ids(tokenizer)]
    ids = data.draw(st.lists(st.sampled_from(usable), max_size=40))
    text = decoded(tokenizer, ids)
    if kind == "byte-level" or "\ufffd" not in tokenizer.decode(
        ids
    ):  # sentencepiece takes back bytes before broken ones
        assert "".join(pieces(tokenizer, ids)) == text


@both
@given(text=texts, data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_continued_reply_reads_as_if_it_had_never_stopped(kind, text, data):
    tokenizer = KINDS[kind]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    at = data.draw(st.integers(0, len(ids)))
    before = Detokenizer(tokenizer)
    head = "".join(before.add(token) for token in ids[:at])
    assert head + "".join(pieces(tokenizer, ids[at:], ids[:at])) == decoded(tokenizer, ids)


@both
def test_a_code_point_over_several_ids_comes_out_once_and_whole(kind):
    tokenizer = KINDS[kind]()
    ids = tokenizer.encode("x🦒y", add_special_tokens=False)
    assert len(ids) > 4
    assert [piece for piece in pieces(tokenizer, ids) if piece] == ["x", "🦒", "y"]


@both
def test_special_tokens_have_no_text(kind):
    tokenizer = KINDS[kind]()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    ids = tokenizer.encode("the fox", add_special_tokens=False)
    assert "".join(pieces(tokenizer, [*ids, end, *ids[1:]])) == tokenizer.decode([*ids, *ids[1:]])


def test_reasoning_markers_are_shown_even_if_they_are_special():
    class Reasoning:
        all_special_ids = (1, 2, 3)
        think_start, think_end = "<think>", "</think>"

        def encode(self, text, add_special_tokens=True):
            return [{"<think>": 2, "</think>": 3}[text]]

    assert hidden_ids(Reasoning()) == {1}


@both
def test_alternatives_keep_their_leading_space(kind):
    tokenizer = KINDS[kind]()
    fox = tokenizer.encode("the fox", add_special_tokens=False)
    texts = TokenTexts(tokenizer)
    shown = [texts[token] for token in fox]
    assert "".join(shown).strip() == "the fox"
    assert any(text.startswith(" ") for text in shown[1:])
    byte = tokenizer.encode("🦒", add_special_tokens=False)[-1]
    assert texts[byte] == "\ufffd"


def records(parts):
    return [Token(number, number, part, 0.0, 0.0, 0.0, 0.0) for number, part in enumerate(parts)]


def through(parts, stops):
    """Records that come out, in the groups they came in, and the filter."""
    stop_strings = StopStrings(stops)
    groups = []
    for token in records(parts):
        groups.append(stop_strings.push(token))
        if stop_strings.found:
            return groups, stop_strings
    groups.append(stop_strings.flush())
    return groups, stop_strings


@given(
    parts=st.lists(st.text("ab ", max_size=3), max_size=14),
    stops=st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3),
)
@example(parts=["ab", "aab", "c"], stops=["aab"])
@settings(deadline=None, max_examples=400)
def test_text_ends_before_the_first_stop_string(parts, stops):
    groups, stop_strings = through(parts, stops)
    kept = [token for group in groups for token in group]
    whole = "".join(parts)
    ends = [whole.find(stop) for stop in stops if stop in whole]
    # What came later than the part that completed the first stop string was never looked at.
    seen = ""
    for part in parts:
        seen += part
        if any(stop in seen for stop in stops):
            break
    begins = [seen.find(stop) for stop in stops if stop in seen]
    expected = seen[: min(begins)] if begins else whole
    assert stop_strings.found == bool(ends)
    assert "".join(token.text for token in kept) == expected
    assert [token.index for token in kept] == list(range(len(kept)))
    for token, part in zip(kept[:-1], parts, strict=False):
        assert token.text == part, "only the last may be cut"
    assert not kept or parts[len(kept) - 1].startswith(kept[-1].text)


def test_only_what_may_be_a_stop_string_is_held_back():
    groups, stop_strings = through(["Hello", "\n", "User", "s", " say"], ["\nUser:"])
    assert [[token.text for token in group] for group in groups] == [
        ["Hello"],
        [],
        [],
        ["\n", "User", "s"],
        [" say"],
        [],
    ]
    assert not stop_strings.found


def test_a_stop_string_inside_a_token_cuts_that_token():
    groups, stop_strings = through(["one", " two.\nUs", "er: x"], ["\nUser:"])
    assert [token.text for group in groups for token in group] == ["one", " two."]
    assert stop_strings.found


def test_bytes_of_the_stop_string_are_not_kept():
    """An id without text may be the head of the stop string's first character."""
    groups, stop_strings = through(["a", "", "", "🦒!"], ["🦒"])
    assert [token.text for group in groups for token in group] == ["a"]
    assert stop_strings.found
