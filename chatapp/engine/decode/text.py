"""From token ids to text: pieces come out when their bytes are complete, stop strings are held back and cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from chatapp.tokens import Token

_INCOMPLETE = "\ufffd"


class Detokenizer:
    """Turns a stream of ids into text, a piece for each id, for any tokenizer.

    The text of an id depends on those before it (a leading space, a code point split over ids), so a short window of
    ids is decoded again with each new one and the piece is what the text grew by. A trailing replacement character
    may be the head of a code point that is not complete yet: it is held back, and never comes out if the reply ends
    there, so that the text is right when the reply is continued.

    Attributes:
        hidden: Ids that have no text: the tokenizer's special tokens, but not its markers of reasoning parts.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int] = ()) -> None:
        """Starts a text.

        Args:
            tokenizer: mlx-lm's ``TokenizerWrapper`` or a Hugging Face tokenizer.
            before: Ids of the same reply that were there before; the text goes on from them.
        """
        self._tokenizer = tokenizer
        self.hidden = hidden_ids(tokenizer)
        self._window: list[int] = []
        self._seen = ""
        self._start = 0
        for token in before:  # one by one: what came out depends on where a code point was broken off
            self.add(token)

    def add(self, token: int) -> str:
        """The text that became complete with this id; empty for a hidden id and inside a code point."""
        if token in self.hidden:
            return ""
        self._window.append(token)
        text = decode(self._tokenizer, self._window)
        complete = text.rstrip(_INCOMPLETE)
        piece = complete[len(self._seen) :]
        self._seen = complete if len(complete) > len(self._seen) else self._seen
        if complete == text:
            self._shorten()
        return piece

    def _shorten(self) -> None:
        """Drops ids that the next piece cannot depend on, keeping those of the last piece as its context."""
        previous, self._start = self._start, len(self._window)
        if previous:
            self._window = self._window[previous:]
            self._start -= previous
            self._seen = decode(self._tokenizer, self._window)


class TokenTexts:
    """The text of an id on its own, for lists of alternatives; remembered, since the same ids come up again."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Decoded behind another id, because some tokenizers drop a leading space at the start of a text.
        anchor = tokenizer.encode("a", add_special_tokens=False)
        self._anchor: list[int] = list(anchor)
        self._anchor_text = decode(tokenizer, self._anchor)
        self._texts: dict[int, str] = {}

    def __getitem__(self, token: int) -> str:
        text = self._texts.get(token)
        if text is None:
            text = decode(self._tokenizer, [*self._anchor, token])
            text = text[len(self._anchor_text) :] if text.startswith(self._anchor_text) else text
            self._texts[token] = text
        return text


class StopStrings:
    """Holds back records whose text may be the head of a stop string, and cuts at the first that is complete.

    Where it begins inside a token, the last record's text is shorter than what its id spells; a later prompt leaves
    that id out and has the text tokenized (`chatapp.engine.template`).

    Attributes:
        found: A stop string came up; nothing more is to be pushed.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held: list[Token] = []
        self.found = False

    def push(self, token: Token) -> list[Token]:
        """Takes the next record and gives those that no stop string can reach any more, in order."""
        if not self._stops:
            return [token]
        self._held.append(token)
        text = "".join(held.text for held in self._held)
        begins = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if begins:
            self.found = True
            return self._cut_at(min(begins))
        return self._release(_safe_length(text, self._stops))

    def flush(self) -> list[Token]:
        """What is still held back, when the reply ends for another reason."""
        held, self._held = self._held, []
        return held

    def _release(self, safe: int) -> list[Token]:
        """Records that end before ``safe``. One without text waits for the next, which may complete its bytes."""
        end = count = 0
        for place, token in enumerate(self._held):
            end += len(token.text)
            if end > safe:
                break
            if token.text:
                count = place + 1
        released, self._held = self._held[:count], self._held[count:]
        return released

    def _cut_at(self, place: int) -> list[Token]:
        kept: list[Token] = []
        begin = 0
        for token in self._held:
            if begin >= place:
                break
            end = begin + len(token.text)
            if end > place:
                token = msgspec.structs.replace(token, text=token.text[: place - begin])
            kept.append(token)
            begin = end
        while kept and not kept[-1].text:  # bytes of the stop string's first character
            kept.pop()
        self._held = []
        return kept


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of ids, special tokens included, spaces as they are."""
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)


def hidden_ids(tokenizer: Any) -> frozenset[int]:
    """Special ids that have no text in a reply; markers of reasoning parts are shown."""
    special = set(getattr(tokenizer, "all_special_ids", ()))
    for marker in (getattr(tokenizer, "think_start", None), getattr(tokenizer, "think_end", None)):
        if isinstance(marker, str):
            special -= set(tokenizer.encode(marker, add_special_tokens=False))
    return frozenset(special)


def _safe_length(text: str, stops: tuple[str, ...]) -> int:
    """Length of the part of the text in which no stop string can begin any more."""
    for place in range(max(0, len(text) - max(map(len, stops)) + 1), len(text)):
        if any(stop.startswith(text[place:]) for stop in stops):
            return place
    return len(text)
