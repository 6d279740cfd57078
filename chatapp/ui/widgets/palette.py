"""The palette of the app's theme for small widgets."""

from __future__ import annotations

from textual.app import App
from textual.widget import Widget

from chatapp.ui.transcript.palette import Palette


def palette_of(app: App[object]) -> Palette:
    """Styles of the theme in force."""
    plain = app.no_color or app.console.color_system in (None, "standard")
    return Palette(app.theme_variables, dark=app.current_theme.dark, plain=plain)


class PaletteWidget(Widget):
    """A widget that draws with the palette and follows the theme."""

    _palette: Palette | None = None

    @property
    def palette(self) -> Palette:
        """Styles of the theme in force."""
        if self._palette is None:
            self._palette = palette_of(self.app)
        return self._palette

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._repaint())

    def _repaint(self) -> None:
        self._palette = None
        self.refresh()
