"""Which characters of a rendered prompt are the template's and which are a message's.

Rendered once with the messages and once with a placeholder word for each: if the messages put in the placeholders'
places give the first text again, the split is right. A message that the template rewrites (drops its reasoning, say)
is looked for on its own, by what the text before and after it leaves; one that cannot be found is template text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from chatapp.engine.encoding import Piece
from chatapp.protocol import Turn

#: Renders the conversation with these contents in place of the turns' own.
Render = Callable[[Sequence[str]], str]

_REASONING = re.compile(r"</?(think|thought|reasoning)|<\|?channel", re.IGNORECASE)


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
    contents = [turn.content for turn in turns]
    present = [index for index, content in enumerate(contents) if content.strip()]
    untouched = [index for index in present if not _REASONING.search(contents[index])]
    for chosen in (present, untouched):
        marked = _mark(turns, words, chosen, render)
        for shown in (contents, [content.strip() for content in contents]):
            pieces = _fill(marked, shown)
            if _spell(pieces) == text:
                return pieces
    return _one_by_one(turns, words, present, text, render)


def _one_by_one(
    turns: Sequence[Turn], words: Sequence[str], present: Iterable[int], text: str, render: Render
) -> list[Piece]:
    shown = [""] * len(turns)
    found: list[int] = []
    for index in present:
        marked = _mark(turns, words, [index], render)
        if [piece.turn for piece in marked if piece.turn >= 0] != [index]:
            continue
        before, after = (marked[0].text, marked[-1].text)
        if text.startswith(before) and text.endswith(after) and len(before) + len(after) <= len(text):
            shown[index] = text[len(before) : len(text) - len(after)]
            found.append(index)
    pieces = _fill(_mark(turns, words, found, render), shown)
    return pieces if _spell(pieces) == text else [Piece(text)]


def _mark(turns: Sequence[Turn], words: Sequence[str], chosen: Iterable[int], render: Render) -> list[Piece]:
    """Renders with placeholders for the chosen turns and cuts there; always starts and ends with template text."""
    numbers = {words[index]: index for index in chosen}
    text = render([words[index] if words[index] in numbers else turn.content for index, turn in enumerate(turns)])
    if not numbers:
        return [Piece(text)]
    parts = re.split(f"({'|'.join(map(re.escape, numbers))})", text)
    return [Piece(part, numbers[part], turns[numbers[part]].role) if part in numbers else Piece(part) for part in parts]


def _fill(marked: Iterable[Piece], shown: Sequence[str]) -> list[Piece]:
    filled = (piece if piece.turn < 0 else Piece(shown[piece.turn], piece.turn, piece.role) for piece in marked)
    return [piece for piece in filled if piece.text]


def _spell(pieces: Iterable[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _placeholders(turns: Sequence[Turn]) -> list[str]:
    """A word for each turn that no turn contains and that trimming or changing case of its neighbours leaves alone."""
    for number in itertools.count():
        stem = f"Qz{number}x"
        if not any(stem in turn.content for turn in turns):
            return [f"{stem}{index}Zq" for index in range(len(turns))]
    raise AssertionError("itertools.count() does not end")
