"""Text to token ids, where part of the text comes from people and must not turn into control tokens.

A template's own text may hold control tokens (``<|im_end|>``); a message that merely contains the same characters may
not. Everything is tokenized in as long runs as possible, because a tokenizer merges across the border of a message
and the model was trained on that. Only where a message spells a control token is the run cut, after the token's first
character: neither half is the token any more, and together they still spell the same text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlx_lm.tokenizer_utils import TokenizerWrapper

from chatapp.protocol import Role


@dataclass(frozen=True)
class Piece:
    """A stretch of prompt text: the template's own (``turn`` is -1) or a turn's content.

    Attributes:
        role: Whose content it is; an assistant's may hold markers such as ``<think>`` as tokens.
        ids: The ids that this text was sampled as; empty where it has to be tokenized.
    """

    text: str
    turn: int = -1
    role: Role | None = None
    ids: tuple[int, ...] = ()


@dataclass
class Encoded:
    """Ids, and for each the range of characters it covers."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    def append(self, other: Encoded, shift: int) -> None:
        """Adds what follows; ``shift`` is where it starts in the whole text."""
        self.ids += other.ids
        self.offsets += [(start + shift, end + shift) for start, end in other.offsets]


class Encoder:
    """Tokenizes prompt text for one tokenizer (mlx-lm's wrapper or a Hugging Face one)."""

    def __init__(self, tokenizer: Any) -> None:
        # mlx-lm's wrapper hands attributes on but not calls, and only a call returns offsets.
        self._tokenizer: Any = tokenizer._tokenizer if isinstance(tokenizer, TokenizerWrapper) else tokenizer  # pyright: ignore[reportPrivateUsage]

    def encode(self, pieces: Sequence[Piece], first: bool) -> Encoded:
        """Ids of one run of text.

        Args:
            pieces: What the run consists of.
            first: It opens the prompt; otherwise it follows other ids, and a tokenizer that puts a space before every
                text must not put one here.
        """
        text = "".join(piece.text for piece in pieces)
        encoded = Encoded([], [])
        start = 0
        for cut in (*self._cuts(text, pieces), len(text)):
            part = self._plain(text[start:cut], first and start == 0)
            encoded.append(part, start)
            start = cut
        return encoded

    def _cuts(self, text: str, pieces: Iterable[Piece]) -> list[int]:
        """Where to cut so that no control token touches a message's characters."""
        cuts: list[int] = []
        end = 0
        for piece in pieces:
            start, end = end, end + len(piece.text)
            if piece.turn < 0:
                continue
            pattern = self._control if piece.role == "assistant" else self._control_and_markers
            # A match may begin in the template's text before the message, or end in that after it.
            position = max(0, start - self._longest)
            while pattern and (match := pattern.search(text, position)) and match.start() < end:
                if match.end() > start:
                    cuts.append(match.start() + 1)
                position = match.start() + 1
        return sorted(set(cuts))

    def _plain(self, text: str, first: bool) -> Encoded:
        if not text:
            return Encoded([], [])
        if first or not self._adds_space:
            return self._call(text)
        anchor = self._call("\n")
        both = self._call("\n" + text)
        if both.ids[: len(anchor.ids)] != anchor.ids:
            return self._call(text)
        kept = len(anchor.ids)
        return Encoded(both.ids[kept:], [(max(0, start - 1), end - 1) for start, end in both.offsets[kept:]])

    def _call(self, text: str) -> Encoded:
        if getattr(self._tokenizer, "is_fast", False):
            result = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            return Encoded(list(result["input_ids"]), [tuple(pair) for pair in result["offset_mapping"]])
        ids = list(self._tokenizer.encode(text, add_special_tokens=False))
        return Encoded(ids, self._guessed_offsets(text, ids))

    def _guessed_offsets(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Offsets of a tokenizer that cannot tell: by the length of each token's own text."""
        offsets: list[tuple[int, int]] = []
        end = 0
        for token in ids:
            start, end = end, min(len(text), end + len(self._tokenizer.decode([token])))
            offsets.append((start, end))
        return offsets

    @cached_property
    def _adds_space(self) -> bool:
        """Whether the tokenizer puts a space before any text (SentencePiece's dummy prefix)."""
        tokens = self._tokenizer.convert_ids_to_tokens(self._call("a").ids)
        return str(tokens[0]).startswith(("▁", "Ġ"))

    @cached_property
    def _added(self) -> list[tuple[str, bool]]:
        """Added tokens that could be spelled by a message: text, and whether it is a control token."""
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        tokens = [(str(token.content), bool(token.special)) for token in added.values()]
        return [(text, special) for text, special in tokens if len(text) > 1]

    @cached_property
    def _longest(self) -> int:
        return max((len(text) for text, _ in self._added), default=0)

    @cached_property
    def _control(self) -> re.Pattern[str] | None:
        return _alternation(text for text, special in self._added if special)

    @cached_property
    def _control_and_markers(self) -> re.Pattern[str] | None:
        """Control tokens and tokens such as ``<think>``, but not runs of spaces and added words."""
        return _alternation(text for text, special in self._added if special or text[0] + text[-1] in ("<>", "[]"))


def _alternation(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
