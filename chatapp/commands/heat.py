"""Heat for text on a plain terminal: background by entropy, or underlining and numbers where there is no colour."""

from __future__ import annotations

import os
import sys

from rich.color import ColorSystem
from rich.style import Style

from chatapp.scale import ENTROPY
from chatapp.text import visible
from chatapp.tokens import Token

#: Backgrounds from mild to strong doubt, with a foreground that can be read on them: light to dark, so that they
#: can be told apart without seeing hues.
_RAMP = (
    Style.parse("black on #ffe8a3"),
    Style.parse("black on #ffc069"),
    Style.parse("black on #ff8c4a"),
    Style.parse("white on #d64545"),
    Style.parse("white on #8f1d5b"),
)
_COLOURLESS = (
    Style.parse("underline"),
    Style.parse("underline"),
    Style.parse("underline bold"),
    Style.parse("underline bold"),
    Style.parse("reverse"),
)


class Painter:
    """Paints tokens. A token whose text is not complete yet lends its heat to the one that completes it."""

    def __init__(self) -> None:
        self._dumb = os.environ.get("TERM") == "dumb"
        self._styles = _COLOURLESS if os.environ.get("NO_COLOR") else _RAMP
        self._system = _color_system()
        self._waiting = 0.0

    @property
    def legend(self) -> str:
        """What the marks mean."""
        if self._dumb:
            return f"⟨entropy⟩ in nats after tokens above {ENTROPY.low}"
        scale = "".join(style.render("  ▁  ", color_system=self._system) for style in self._styles)
        return f"entropy {ENTROPY.low} {scale} {ENTROPY.high:g} nats and more; unmarked: below {ENTROPY.low}"

    def paint(self, token: Token) -> str:
        """The token's text, safe to print, with its heat."""
        entropy = max(token.entropy, self._waiting)
        if not token.text:
            self._waiting = entropy
            return ""
        self._waiting = 0.0
        text = visible(token.text)
        strength = ENTROPY.level(entropy, len(_RAMP))
        if not strength:
            return text
        if self._dumb:
            return f"{text}⟨{entropy:.1f}⟩"
        style = self._styles[strength - 1]
        # A background would run on to the terminal's edge over a line's end.
        return "\n".join(style.render(line, color_system=self._system) if line else "" for line in text.split("\n"))


def _color_system() -> ColorSystem:
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return ColorSystem.TRUECOLOR
    if sys.stdout and sys.stdout.isatty() and "256" not in os.environ.get("TERM", ""):
        return ColorSystem.STANDARD
    return ColorSystem.EIGHT_BIT
