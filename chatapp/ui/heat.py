"""How doubt becomes colour: measures, scales, ramps, and the cue where there is no colour.

A scale maps a measure to a level from 0 (confident: not coloured) to `LEVELS`; a ramp maps levels to backgrounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from rich.style import Style
from textual.color import Color, ColorParseError

from chatapp import scale
from chatapp.scale import LEVELS, Scale
from chatapp.tokens import Token

Unit = Literal["nats", "bits"]


class Heat(StrEnum):
    """What the heat shows; the order is that of the key that cycles through it."""

    OFF = "off"
    ENTROPY = "entropy"
    VARENTROPY = "varentropy"
    BOTH = "both"
    SURPRISAL = "surprisal"

    @property
    def next(self) -> Heat:
        """The next one in the cycle."""
        members = list(Heat)
        return members[(members.index(self) + 1) % len(members)]


#: The measures that have a ramp of their own.
MEASURES = (Heat.ENTROPY, Heat.VARENTROPY, Heat.SURPRISAL)


def measure(token: Token, heat: Heat) -> float:
    """The token's value in nats (nats² for varentropy); for ``both`` and ``off`` its entropy."""
    if heat is Heat.VARENTROPY:
        return token.varentropy
    return token.surprisal if heat is Heat.SURPRISAL else token.entropy


def shown(value: float, heat: Heat, unit: Unit) -> str:
    """A value in nats (nats²) as text in the unit asked for, without the unit's name."""
    if unit == "bits":
        value /= math.log(2) ** (2 if heat is Heat.VARENTROPY else 1)
    return f"{value:.2f}" if value < 99.95 else f"{value:.0f}"


def unit_name(heat: Heat, unit: Unit) -> str:
    """The unit of a measure: "nats", "nats²", "bits" or "bits²"."""
    return f"{unit}²" if heat is Heat.VARENTROPY else unit


#: The scales that do not depend on what is shown.
FIXED: Mapping[Heat, Scale] = {
    Heat.ENTROPY: scale.ENTROPY,
    Heat.VARENTROPY: scale.VARENTROPY,
    Heat.SURPRISAL: scale.SURPRISAL,
}

#: The percentiles of the tokens shown that make the range of a percentile scale, and the fewest tokens for one.
PERCENTILES = (0.60, 0.98)
FEWEST = 32


def percentile_scale(values: Iterable[float], fallback: Scale) -> Scale:
    """A scale over the `PERCENTILES` (nearest rank) of the values; the fallback for a few or equal ones."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if len(ordered) < FEWEST:
        return fallback
    low, high = (ordered[min(len(ordered) - 1, math.ceil(p * len(ordered)) - 1)] for p in PERCENTILES)
    return Scale(low, high, "percentile") if high > low else fallback


@dataclass(frozen=True, slots=True)
class Scales:
    """The three scales in force."""

    ranges: Mapping[Heat, Scale] = field(default_factory=lambda: FIXED)

    @classmethod
    def of_tokens(cls, tokens: Sequence[Token]) -> Scales:
        """Percentile scales over these tokens."""
        return cls(
            {heat: percentile_scale((measure(token, heat) for token in tokens), FIXED[heat]) for heat in MEASURES}
        )

    def __getitem__(self, heat: Heat) -> Scale:
        return self.ranges[heat if heat in self.ranges else Heat.ENTROPY]

    def levels(self, token: Token, heat: Heat) -> tuple[int, int]:
        """Level of the measure shown and, for ``both``, the level of the varentropy (else 0)."""
        if heat is Heat.OFF:
            return 0, 0
        first = self[heat].level(measure(token, heat))
        return first, self[Heat.VARENTROPY].level(token.varentropy) if heat is Heat.BOTH else 0


@dataclass(frozen=True, slots=True)
class Ramps:
    """The colours of the heat, of one theme.

    Attributes:
        entropy, varentropy, surprisal: Backgrounds from the weakest to the strongest; interpolated to `LEVELS`.
        both: Corners of the two-dimensional colour: only entropy high, only varentropy high, both high.
        background: What the weak ends fade into.
        underline: Show underlines in place of backgrounds (themes for 16 colours and monochrome).
    """

    entropy: tuple[Color, ...]
    varentropy: tuple[Color, ...]
    surprisal: tuple[Color, ...]
    both: tuple[Color, Color, Color]
    background: Color
    underline: bool = False

    @classmethod
    def of_variables(cls, variables: Mapping[str, str], *, dark: bool, name: str = "") -> Ramps:
        """The ramps of a theme, or the named ones of `RAMPS`.

        Args:
            variables: The theme's variables (``heat-…``, see docs/themes.md).
            dark: The theme is dark.
            name: One of `RAMPS`; empty (or unknown) takes the theme's, and the defaults for what it leaves out.
        """
        defaults = RAMPS.get(name, RAMPS["orange-blue"])[0 if dark else 1]

        named = name in RAMPS

        def colours(measure: str) -> tuple[Color, ...]:
            own = "" if named else variables.get(f"heat-{measure}", "")
            return tuple(parse_colours(own or defaults[measure]))

        first, second, third = colours("both")[:3]
        background = _parse(variables.get("background", "")) or Color.parse("#101010" if dark else "#ffffff")
        return cls(
            entropy=colours("entropy"),
            varentropy=colours("varentropy"),
            surprisal=colours("surprisal"),
            both=(first, second, third),
            background=background,
            underline=variables.get("heat-cue") == "underline",
        )

    def color(self, heat: Heat, first: int, second: int = 0) -> Color | None:
        """Background of a level (and of a second level for ``both``); None where nothing is coloured."""
        if heat is Heat.BOTH:
            return self._mixed(first, second)
        if first <= 0 or heat is Heat.OFF:
            return None
        stops = {Heat.ENTROPY: self.entropy, Heat.VARENTROPY: self.varentropy, Heat.SURPRISAL: self.surprisal}[heat]
        return _along(stops, (first - 1) / (LEVELS - 1))

    def _mixed(self, first: int, second: int) -> Color | None:
        if first <= 0 and second <= 0:
            return None
        h, v = first / LEVELS, second / LEVELS
        only_h, only_v, both = self.both
        # Bilinear between the four corners; the fourth is the background.
        weights = ((1 - h) * (1 - v), h * (1 - v), (1 - h) * v, h * v)
        corners = (self.background, only_h, only_v, both)
        channels = [
            sum(w * c for w, c in zip(weights, values, strict=True))
            for values in zip(*(c.rgb for c in corners), strict=True)
        ]
        red, green, blue = (round(channel) for channel in channels)
        return Color(red, green, blue)


def parse_colours(text: str) -> list[Color]:
    """Colours from a list separated by white space.

    Raises:
        textual.color.ColorParseError: One of them is not a colour.
    """
    return [Color.parse(part) for part in text.split()]


def _parse(text: str) -> Color | None:
    try:
        color = Color.parse(text)
    except ColorParseError:
        return None
    return None if color.ansi is not None else color


def _along(stops: Sequence[Color], position: float) -> Color:
    if len(stops) == 1:
        return stops[0]
    place = position * (len(stops) - 1)
    index = min(int(place), len(stops) - 2)
    if stops[index].ansi is not None:  # the terminal's own colours cannot be mixed
        return stops[round(place)]
    return stops[index].blend(stops[index + 1], place - index)


# Orange against blue stays apart for every kind of colour blindness; lightness rises (falls) along every ramp, so
# that it also reads in grey. The tests measure both.
_DARK = {
    "entropy": "#3a2712 #6b4312 #a8660d #e08a12",
    "varentropy": "#12283f #134a77 #1b6fb3 #3d9be8",
    "surprisal": "#331a33 #5f2a5c #97407f #d8609f",
    "both": "#d07c10 #2272b8 #f0d4e4",
}
_LIGHT = {
    "entropy": "#fbe9cf #f6cf94 #eeac4c #d98618",
    "varentropy": "#dcebfa #b3d4f3 #7db3e6 #4489c9",
    "surprisal": "#f9e0ee #efb9d8 #df88b8 #c4568f",
    "both": "#e8a040 #6aa5dd #7a4a80",
}
_VIRIDIS = "#31446b #21908d #5dc863 #fde725"
_GREY_DARK = "#2a2a2a #505050 #808080 #b8b8b8"
_GREY_LIGHT = "#ececec #d2d2d2 #b0b0b0 #888888"

#: Ramps that a person can prefer to the theme's (``heat.ramp`` in config.toml): name → (on dark, on light).
RAMPS: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "orange-blue": (_DARK, _LIGHT),
    "viridis": (
        {**_DARK, "entropy": _VIRIDIS, "varentropy": _VIRIDIS, "surprisal": _VIRIDIS},
        {**_LIGHT, "entropy": _VIRIDIS, "varentropy": _VIRIDIS, "surprisal": _VIRIDIS},
    ),
    "grey": (
        {**_DARK, "entropy": _GREY_DARK, "varentropy": _GREY_DARK, "surprisal": _GREY_DARK},
        {**_LIGHT, "entropy": _GREY_LIGHT, "varentropy": _GREY_LIGHT, "surprisal": _GREY_LIGHT},
    ),
}

_WEAK, _MIDDLE = LEVELS // 3, 2 * LEVELS // 3


def cue_style(first: int, second: int = 0) -> Style:
    """The cue without colour: underline, bold underline, double underline as the level rises; italic for varentropy."""
    level = max(first, second)
    italic = second > first or None
    if level <= 0:
        return Style.null()
    if level <= _WEAK:
        return Style(underline=True, italic=italic)
    if level <= _MIDDLE:
        return Style(underline=True, bold=True, italic=italic)
    return Style(underline2=True, bold=True, italic=italic)
