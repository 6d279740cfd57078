"""Which characters of a rendered prompt are the template's and which are a message's.

Rendered once with the messages and once with a placeholder word for each, the template's own text is the same in both;
walking along it finds each message as the template shows it: as it is, trimmed, or rewritten (its reasoning dropped).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from chatapp.engine.encoding import Piece
from chatapp.protocol import Turn

#: Renders the conversation with these contents in place of the turns' own.
Render = Callable[[Sequence[str]], str]

#: A marker around reasoning in a reply, with the space beside it.
_MARKER = re.compile(r"(\s*<[|/]{0,2}(?:think|thinking|thought|reasoning|channel)[|]?>\s*)", re.IGNORECASE)


def lay_out(turns: Sequence[Turn], text: str, render: Render) -> list[Piece]:
    """Splits a prompt's text.

    Args:
        turns: The conversation.
        text: What ``render`` makes of the turns' contents.
        render: The template.

    Returns:
        Pieces that spell ``text``. A turn's piece is its content as the template shows it.
    """
    words = _placeholders(turns)
    present = [index for index, turn in enumerate(turns) if turn.content.strip()]
    # A template may treat reasoning in ways that placeholders do not show; the other messages can still be found.
    untouched = [index for index in present if not _MARKER.search(turns[index].content)]
    for chosen in (present, untouched):
        pieces = _align(_mark(turns, words, chosen, render), turns, text)
        if pieces is not None:
            return pieces
    return [Piece(text)]


def _align(marked: Sequence[Piece], turns: Sequence[Turn], text: str) -> list[Piece] | None:
    """Walks along ``text`` by the template's own stretches; None if they are not the same in it."""
    pieces: list[Piece] = []
    position = 0
    for piece, following in zip(marked, [*marked[1:], Piece("")], strict=True):
        shown: str | None = piece.text if text.startswith(piece.text, position) else None
        if piece.turn >= 0:
            shown = _shown(text, position, turns[piece.turn].content, following.text)
        if shown is None:
            return None
        pieces.append(Piece(shown, piece.turn, piece.role))
        position += len(shown)
    return [piece for piece in pieces if piece.text] if position == len(text) else None


def _shown(text: str, position: int, content: str, following: str) -> str | None:
    """What stands at ``position`` for a message, given the template's text that follows it."""
    for same in (content, content.strip()):
        if text.startswith(same + following, position):
            return same
    end = text.find(following, position) if following else -1
    return text[position:end] if end >= 0 else None


def _mark(turns: Sequence[Turn], words: Sequence[_Word], chosen: Iterable[int], render: Render) -> list[Piece]:
    """Renders with placeholders for the chosen turns and cuts there; always starts and ends with template text."""
    numbers = {form: index for index in chosen for form in (words[index].whole, words[index].answer)}
    marked = set(numbers.values())
    text = render([words[index].whole if index in marked else turn.content for index, turn in enumerate(turns)])
    if not numbers:
        return [Piece(text)]
    longest_first = sorted(numbers, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
    return [Piece(part, numbers[part], turns[numbers[part]].role) if part in numbers else Piece(part) for part in parts]


@dataclass(frozen=True)
class _Word:
    """What stands for a message.

    Attributes:
        whole: In place of the message; reasoning markers stay, so that a template sees them.
        answer: The part of it that stands for what follows the reasoning, which templates show alone.
    """

    whole: str
    answer: str


def _placeholders(turns: Sequence[Turn]) -> list[_Word]:
    """A word for each turn that no turn contains and that trimming or changing case of its neighbours leaves alone."""
    for number in itertools.count():
        stem = f"Qz{number}x"
        if not any(stem in turn.content for turn in turns):
            return [_word(f"{stem}{index}", turn.content) for index, turn in enumerate(turns)]
    raise AssertionError("itertools.count() does not end")


def _word(stem: str, content: str) -> _Word:
    parts = _MARKER.split(content.strip())  # texts at even places, markers at odd ones
    stood = [f"{stem}p{n}Zq" if n % 2 == 0 and part else part for n, part in enumerate(parts)]
    whole = "".join(stood)
    return _Word(whole, stood[-1] or whole)
