"""Looks as terminal styles, from the theme in force."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from rich.style import Style
from textual.color import Color, ColorParseError

from chatapp.ui.contrast import HIGH, faded, ratio, readable_on
from chatapp.ui.heat import Heat, Ramps, cue_style
from chatapp.ui.transcript.lines import Look

#: Role of a look → theme variable its colour comes from, where it is not the plain text colour.
_ROLES = {
    "heading": "primary",
    "link": "accent",
    "code": "secondary",
    "table": "foreground",
    "bullet": "primary",
    "bar": "primary",
    "syntax-keyword": "primary",
    "syntax-string": "success",
    "syntax-number": "warning",
    "syntax-name": "accent",
    "syntax-type": "secondary",
    "syntax-error": "error",
}
#: Roles in a colour between the text's and the background's: how much of the text's.
_FAINT = {
    "marker": 0.42,
    "rule": 0.35,
    "syntax-comment": 0.55,
    "syntax-punctuation": 0.75,
    "quote": 0.78,
    "hint": 0.6,
    "bar": 0.5,
}
_EVICTED = 0.42
_EVICTED_HEAT = 0.35
_THINK = 0.62


class Palette:
    """Styles of one theme; made anew when the theme changes.

    Args:
        variables: The theme's variables (`App.theme_variables`).
        dark: The theme is dark.
        plain: The terminal shows no colours (NO_COLOR, monochrome) or 16 of them: the heat becomes underlines.
        ramp: Name of ramps to use in place of the theme's (see `chatapp.ui.heat.RAMPS`).
    """

    def __init__(self, variables: Mapping[str, str], *, dark: bool, plain: bool = False, ramp: str = "") -> None:
        self._variables = variables
        self.ramps = Ramps.of_variables(variables, dark=dark, name=ramp)
        self.plain = plain or self.ramps.underline
        self.background = self._color("background", "#121212" if dark else "#ffffff")
        self.foreground = self._color("foreground", "#e0e0e0" if dark else "#202020")
        self._high = not self._is_ansi and ratio(self.background, self.foreground) >= HIGH
        self._looks: dict[tuple[Look, bool, bool, str], Style] = {}
        self._heats: dict[tuple[Heat, int, int], tuple[Style, Color | None]] = {}
        self._readable: dict[tuple[Color, Style], Style] = {}

    def _color(self, name: str, default: str) -> Color:
        try:
            return Color.parse(self._variables.get(name) or default)
        except ColorParseError:
            return Color.parse(default)

    def look(self, look: Look, *, think: bool = False, evicted: bool = False, fill: str = "") -> Style:
        """Style of a look; ``think`` and ``evicted`` text is dimmed."""
        key = (look, think, evicted, fill)
        style = self._looks.get(key)
        if style is None:
            style = self._looks[key] = self._make(look, think=think, evicted=evicted, fill=fill)
        return style

    def _make(self, look: Look, *, think: bool, evicted: bool, fill: str) -> Style:
        strength = _FAINT.get(look.role, 1.0) * (_THINK if think else 1.0) * (_EVICTED if evicted else 1.0)
        background = self.panel if fill == "code" else self.background
        color = faded(self.role_color(look.role), background, strength, high=self._high)
        return Style(
            color=color.rich_color,
            bgcolor=background.rich_color,
            bold=look.bold or look.role == "heading" or None,
            italic=look.italic or think or None,
            strike=look.strike or None,
            underline=(look.role == "link") or None,
            dim=(strength < 0.6 and self._is_ansi) or None,
        )

    def role_color(self, role: str) -> Color:
        """The full colour of a role."""
        override = self._variables.get(role)
        if override and role.startswith("syntax-"):
            return self._color(role, "#808080")
        return self._color(_ROLES.get(role, "foreground"), "#808080")

    @property
    def _is_ansi(self) -> bool:
        return self.background.ansi is not None

    @cached_property
    def panel(self) -> Color:
        """Background of code blocks."""
        if self._is_ansi:
            return self.background
        return self.background.blend(self.foreground, 0.05)

    @cached_property
    def base(self) -> Style:
        """Empty cells."""
        return Style(color=self.foreground.rich_color, bgcolor=self.background.rich_color)

    def accent(self, variable: str, *, bold: bool = False, strength: float = 1.0) -> Style:
        """Text in one of the theme's colours on the plain background."""
        color = faded(self._color(variable, "#808080"), self.background, strength, high=self._high)
        dim = (self._is_ansi and strength < 0.7) or None
        return Style(color=color.rich_color, bgcolor=self.background.rich_color, bold=bold or None, dim=dim)

    def heated(self, style: Style, heat: Heat, first: int, second: int, *, evicted: bool = False) -> Style:
        """A style with the heat of a level laid over it; a faint one where the model does not see the text any more."""
        if first <= 0 and second <= 0:
            return style
        key = (heat, first, second)
        known = self._heats.get(key)
        if known is None:
            color = None if self.plain else self.ramps.color(heat, first, second)
            known = self._heats[key] = (cue_style(first, second) if self.plain else Style.null(), color)
        cue, color = known
        if color is None:
            return style + cue
        return self._on(style, self.background.blend(color, _EVICTED_HEAT) if evicted else color, evicted)

    def _on(self, style: Style, background: Color, evicted: bool) -> Style:
        key = (background, style)
        known = self._readable.get(key)
        if known is None:
            if evicted:
                text = faded(self.foreground, background, _EVICTED, high=self._high)
            else:
                text = readable_on(background, Color.from_rich_color(style.color) if style.color else self.foreground)
            known = style + Style(color=text.rich_color, bgcolor=background.rich_color)
            self._readable[key] = known
        return known

    def on_background(self, color: Color) -> Style:
        """Text in a colour on the plain background."""
        return Style(color=color.rich_color, bgcolor=self.background.rich_color)

    @cached_property
    def cursor(self) -> Style:
        """Laid over the cells of the token under the cursor."""
        if self.plain or self._is_ansi:
            return Style(reverse=True, bold=True)
        return Style(color=self.background.rich_color, bgcolor=self.foreground.rich_color, bold=True)

    def under_cursor(self, style: Style) -> Style:
        """A style with the token cursor laid over it."""
        return style + self.cursor

    @cached_property
    def selection(self) -> Style:
        """Laid over selected cells."""
        if self.plain or self._is_ansi:
            return Style(reverse=True)
        color = self.background.blend(self._color("primary", "#4080c0"), 0.45)
        return Style(bgcolor=color.rich_color, color=readable_on(color, self.foreground).rich_color)
