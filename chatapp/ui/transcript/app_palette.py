"""The palette of the theme in force, for widgets."""

from __future__ import annotations

from textual.app import App
from textual.widget import Widget

from chatapp.ui.transcript.palette import Palette


def palette_of(app: App[object], ramp: str = "") -> Palette:
    """Styles of the theme in force, with the ramps of that name if one is given."""
    plain = app.no_color or app.console.color_system in (None, "standard")
    return Palette(app.theme_variables, dark=app.current_theme.dark, plain=plain, ramp=ramp)


class PaletteWidget(Widget):
    """A widget that draws with the palette and follows the theme."""

    _palette: Palette | None = None
    _ramp = ""

    @property
    def palette(self) -> Palette:
        """Styles of the theme in force."""
        if self._palette is None:
            self._palette = palette_of(self.app, self._ramp)
        return self._palette

    def set_ramp(self, name: str) -> None:
        """Uses the ramps of that name (see `chatapp.ui.heat.RAMPS`); empty for the theme's."""
        if name != self._ramp:
            self._ramp = name
            self._repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._repaint())

    def _repaint(self) -> None:
        self._palette = None
        self.refresh()
