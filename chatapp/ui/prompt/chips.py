"""Chips: short marks that stand for large pieces of text in a text area.

A text area wraps and highlights everything that it holds again and again; one line of 200 KB makes each key take half
a second. So a large paste is kept here and a mark such as ``⟦paste 1 · 200 KB⟧`` is put into the text instead; it is
taken back when the text is sent, saved or handed to an editor.
"""

from __future__ import annotations

import regex

#: A paste longer than this many characters, or with more lines than the next figure, becomes a chip.
LARGE_CHARACTERS = 4_000
LARGE_LINES = 60

#: In a text that is loaded for editing, only what slows the text area becomes a chip: a line longer than this.
LONG_LINE = 8_000

_MARK = regex.compile(r"⟦paste (\d+) · [^⟧\n]*⟧")


class Chips:
    """The texts behind the marks of one text area."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, text: str) -> str:
        """Keeps a text and returns the mark that stands for it."""
        number = self._next
        self._next += 1
        self._texts[number] = text
        return f"⟦paste {number} · {size_words(text)}⟧"

    def of_paste(self, text: str) -> str:
        """What a paste puts into the text area: itself, or a mark if it is large."""
        if len(text) > LARGE_CHARACTERS or text.count("\n") > LARGE_LINES:
            return self.add(text)
        return text

    def fold(self, text: str) -> str:
        """Replaces the lines that are too long for a text area by marks."""
        if len(text) <= LONG_LINE:
            return text
        return "\n".join(self.add(line) if len(line) > LONG_LINE else line for line in text.split("\n"))

    def unfold(self, text: str) -> str:
        """Puts the texts back in place of their marks; a mark that was typed by hand stays as it is."""
        if not self._texts:
            return text
        return _MARK.sub(lambda match: self._texts.get(int(match[1]), match[0]), text)

    def ending_at(self, line: str, column: int) -> int | None:
        """The column where a mark begins that ends at ``column``: Backspace takes such a mark away whole."""
        for match in _MARK.finditer(line, 0, column):
            if match.end() == column and int(match[1]) in self._texts:
                return match.start()
        return None

    def clear(self) -> None:
        """Forgets all texts."""
        self._texts.clear()


def size_words(text: str) -> str:
    """``200 KB`` or ``120 lines``, whichever says more."""
    lines = text.count("\n") + 1
    if lines > LARGE_LINES:
        return f"{lines:,} lines"
    size = len(text.encode("utf-8", "surrogatepass"))
    return f"{size / 1000:.0f} KB" if size >= 1000 else f"{size} bytes"
