"""The building blocks of a laid-out message: looks, runs and lines.

The runs of a message's lines, taken in order, cover every character of its source exactly once and in order;
decoration (hanging indents, table padding) consists of runs that cover nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Look(NamedTuple):
    """How a run looks, by role; the palette turns it into colours.

    Attributes:
        role: ``text``, ``marker``, ``heading``, ``code``, ``link``, ``quote``, ``rule``, ``table``, or
            ``syntax-…`` for a class of code token.
    """

    role: str = "text"
    bold: bool = False
    italic: bool = False
    strike: bool = False


TEXT = Look()
MARKER = Look("marker")


class Run(NamedTuple):
    """Some cells of one look.

    Attributes:
        text: What is shown. Where it has as many characters as the source range, they map one to one; else the
            whole run stands for the whole range (a tab, a mark for a control character, a fold).
        start, end: The source characters covered; equal for decoration.
    """

    text: str
    start: int
    end: int
    look: Look

    @property
    def exact(self) -> bool:
        """Characters shown and source characters map one to one."""
        return len(self.text) == self.end - self.start


class Line(NamedTuple):
    """One row of cells.

    Attributes:
        start, end: The source range covered, the newline included.
        cells: Width in cells.
        fill: Role of the background to the right edge (``code`` for code blocks), or empty.
    """

    runs: tuple[Run, ...]
    start: int
    end: int
    cells: int
    fill: str = ""

    @property
    def text(self) -> str:
        """What the row shows."""
        return "".join(run.text for run in self.runs)

    def source_at(self, index: int) -> int:
        """Source offset of the character shown at ``index`` (the line's end beyond the last one)."""
        seen = 0
        for run in self.runs:
            if index < seen + len(run.text):
                return run.start + (index - seen) if run.exact else run.start
            seen += len(run.text)
        return self.end_of_text

    @property
    def end_of_text(self) -> int:
        """Source offset after the last character shown (before the newline, if the line ends with one)."""
        for run in reversed(self.runs):
            if run.text and run.end > run.start:
                return run.end
        return self.start
