"""Steps of the token cursor over the tokens of one message. Each returns the index to go to, or None to stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chatapp.tokens import Token
from chatapp.ui.heat import Heat, Scales

#: From the tokens and the index of the cursor to where it goes.
Move = Callable[[Sequence[Token], int], "int | None"]


def step(tokens: Sequence[Token], at: int, by: int) -> int | None:
    """``by`` tokens on, stopped at the ends."""
    to = max(0, min(len(tokens) - 1, at + by))
    return to if tokens and to != at else None


def word(tokens: Sequence[Token], at: int, by: int) -> int | None:
    """The next (previous) token that begins a word."""
    to = at + by
    while 0 <= to < len(tokens):
        if _begins_word(tokens, to):
            return to
        to += by
    return None


def uncertain(tokens: Sequence[Token], at: int, by: int, scales: Scales, heat: Heat) -> int | None:
    """The next (previous) token that the heat colours; with the heat off, that its entropy would colour."""
    heat = Heat.ENTROPY if heat is Heat.OFF else heat
    to = at + by
    while 0 <= to < len(tokens):
        if any(scales.levels(tokens[to], heat)):
            return to
        to += by
    return None


def _begins_word(tokens: Sequence[Token], index: int) -> bool:
    text = tokens[index].text
    if not text or text.isspace():
        return False
    if index == 0 or text[0].isspace():
        return True
    before = tokens[index - 1].text
    return before[-1:].isspace()
