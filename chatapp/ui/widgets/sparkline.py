"""The course of a reply's doubt, in one line that can be walked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text
from textual import events
from textual.message import Message

from chatapp.tokens import Token
from chatapp.ui.heat import Heat, Scales, measure
from chatapp.ui.transcript.app_palette import PaletteWidget

_BARS = "▁▂▃▄▅▆▇█"


class DoubtSparkline(PaletteWidget, can_focus=True):
    """A column is the highest value of the tokens that fall into it. Posts `Walked`; binds no keys itself."""

    DEFAULT_CSS = """
    DoubtSparkline { height: 1; width: 1fr; background: $background; color: $foreground; }
    """

    @dataclass
    class Walked(Message):
        """Go to this token of the message shown."""

        sparkline: DoubtSparkline
        message_id: str
        index: int

        @property
        def control(self) -> DoubtSparkline:
            return self.sparkline

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._message = ""
        self._tokens: Sequence[Token] = ()
        self._cursor: int | None = None
        self._heat = Heat.ENTROPY
        self._scales = Scales()

    def set_tokens(self, message_id: str, tokens: Sequence[Token], cursor: int | None = None) -> None:
        """Shows a reply's tokens and where the token cursor is."""
        self._message, self._tokens, self._cursor = message_id, tokens, cursor
        self.refresh()

    def set_scale(self, heat: Heat, scales: Scales) -> None:
        """Shows another measure; entropy for ``off`` and ``both``."""
        self._heat = heat if heat in (Heat.VARENTROPY, Heat.SURPRISAL) else Heat.ENTROPY
        self._scales = scales
        self.refresh()

    def columns(self, width: int) -> list[range]:
        """Which tokens fall into which column: as many columns as tokens, at most ``width``."""
        count = min(len(self._tokens), max(0, width))
        edges = [column * len(self._tokens) // count for column in range(count + 1)] if count else []
        return [range(first, last) for first, last in pairwise(edges)]

    def walk(self, by: int) -> None:
        """Goes ``by`` columns on: to the token of highest doubt there."""
        columns = self.columns(self.size.width)
        if not columns:
            return
        at = self._cursor
        here = None if at is None else next((i for i, tokens in enumerate(columns) if at in tokens), None)
        self._go(columns[0 if here is None else max(0, min(len(columns) - 1, here + by))])

    def on_click(self, event: events.Click) -> None:
        columns = self.columns(self.size.width)
        if event.x < len(columns):
            self._go(columns[event.x])

    def _go(self, tokens: range) -> None:
        index = max(tokens, key=lambda one: measure(self._tokens[one], self._heat))
        self.post_message(self.Walked(self, self._message, index))

    def render(self) -> Text:
        line = Text(no_wrap=True, end="")
        top = self._scales[self._heat].high
        palette = self.palette
        faint = palette.accent("foreground", strength=0.35)
        for tokens in self.columns(self.size.width):
            value = max(measure(self._tokens[index], self._heat) for index in tokens)
            level = self._scales[self._heat].level(value)
            color = None if palette.plain else palette.ramps.color(self._heat, max(level, 4) if level else 0)
            style = faint if color is None else palette.on_background(color)
            if self._cursor is not None and self._cursor in tokens:
                style = palette.cursor
            share = value / top if top > 0 else 0.0
            line.append(_BARS[max(0, min(len(_BARS) - 1, int(share * len(_BARS))))], style)
        return line
