"""How well a colour can be read on another, and colours that can."""

from __future__ import annotations

from functools import lru_cache

from textual.color import Color

#: Contrast of text that says something, and of what only accompanies it (WCAG 2.2: 1.4.3 and 1.4.11).
TEXT, QUIET = 4.5, 3.0
#: The same in themes whose plain text has at least this contrast: who chooses one wants to read everything.
HIGH = 17.0
_TEXT_HIGH, _QUIET_HIGH = 7.0, 4.5

_STEP = 0.05


@lru_cache(4096)
def ratio(one: Color, other: Color) -> float:
    """WCAG 2 contrast ratio (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def readable_on(background: Color, foreground: Color) -> Color:
    """The foreground, or black or white where it would be hard to read on the background."""
    if background.ansi is not None or foreground.ansi is not None:
        return foreground
    if ratio(background, foreground) >= TEXT:
        return foreground
    black, white = Color(0, 0, 0), Color(255, 255, 255)
    return black if ratio(background, black) >= ratio(background, white) else white


@lru_cache(1024)
def faded(color: Color, background: Color, strength: float, *, high: bool = False) -> Color:
    """A colour between the background's and its own, but never too faint to read.

    Args:
        color: The full colour.
        background: What it fades into.
        strength: How much of the colour is wanted; from 0.5 on it is text that says something.
        high: In a theme of high contrast.
    """
    if strength >= 1.0 or color.ansi is not None or background.ansi is not None:
        return color
    text, quiet = (_TEXT_HIGH, _QUIET_HIGH) if high else (TEXT, QUIET)
    least = text if strength >= 0.5 else quiet
    while strength < 1.0:
        mixed = background.blend(color, strength)
        if ratio(background, mixed) >= least:
            return mixed
        strength += _STEP
    return color


def _luminance(color: Color) -> float:
    def linear(channel: int) -> float:
        value = channel / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    r, g, b = (linear(channel) for channel in color.rgb)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
