"""The window of the model as a bar: kept, live, free."""

from __future__ import annotations

from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from chatapp.ui.transcript.app_palette import PaletteWidget


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens in the model's window.

    Attributes:
        capacity: C, the cache's capacity; 0 while unknown.
        used: Tokens in it now, the kept ones included.
        kept: K, the first tokens that stay for ever.
        evicted: Tokens that had to go.
    """

    capacity: int = 0
    used: int = 0
    kept: int = 0
    evicted: int = 0


class ContextBar(PaletteWidget):
    """One line: a bar of the window and its figures. `set_window` changes it."""

    DEFAULT_CSS = """
    ContextBar { height: 1; width: 1fr; background: $background; color: $foreground; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.window_state = Window()

    def set_window(self, window: Window) -> None:
        """Shows another state."""
        if window != self.window_state:
            self.window_state = window
            self.refresh()

    def render(self) -> Text:
        line = Text(no_wrap=True, end="")
        window = self.window_state
        if window.capacity <= 0:
            return line
        figures = self._figures(window, self.size.width)
        room = self.size.width - len(figures) - 1
        if room >= 5:
            kept, live, free = shares(window, room)
            palette = self.palette
            line.append("■" * kept, palette.accent("secondary"))
            line.append("▪" * live, palette.accent("primary"))
            line.append("·" * free, palette.accent("foreground", strength=0.35))
            line.append(" ")
        line.append(figures[: self.size.width], self._figure_style())
        return line

    def _figure_style(self) -> Style:
        return self.palette.accent("foreground", strength=0.6)

    def _figures(self, window: Window, width: int) -> str:
        if width < 48:
            gone = f"full, {window.evicted:,} gone"
            return gone if window.evicted else f"{window.used:,} of {window.capacity:,}"
        parts = [f"kept {min(window.kept, window.used):,}", f"live {max(0, window.used - window.kept):,}"]
        parts.append(f"free {max(0, window.capacity - window.used):,}")
        if window.evicted:
            parts.append(f"forgotten {window.evicted:,}")
        return "  ".join(parts)


def shares(window: Window, cells: int) -> tuple[int, int, int]:
    """Cells for kept, live and free; at least one for whatever is not zero, all of them together exactly ``cells``."""
    kept_tokens = min(window.kept, window.used)
    amounts = [kept_tokens, window.used - kept_tokens, max(0, window.capacity - window.used)]
    total = sum(amounts) or 1
    result = [max(1, round(amount * cells / total)) if amount else 0 for amount in amounts]
    while sum(result) != cells:
        largest = result.index(max(result))
        result[largest] += 1 if sum(result) < cells else -1
    return result[0], result[1], result[2]
