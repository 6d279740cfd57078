"""A token's text on one line, with its white space visible."""

from __future__ import annotations

from rich.cells import set_cell_size

from chatapp.text import visible
from chatapp.ui.transcript.wrap import text_cells

_MARKS = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\u00a0": "⍽"})


def marked(text: str) -> str:
    """The text with marks for white space and for control characters; ``∅`` for the empty text."""
    return visible(text.replace("\r", "␍").translate(_MARKS)) if text else "∅"


def fitted(text: str, cells: int) -> str:
    """The text cut (with an ellipsis) or padded to exactly so many cells."""
    if text_cells(text) > cells:
        return set_cell_size(text, max(0, cells - 1)) + "…" if cells else ""
    return text + " " * (cells - text_cells(text))
