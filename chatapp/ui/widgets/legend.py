"""The legend of the heat: what is shown, its colours, their range and unit."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from chatapp.ui.heat import LEVELS, Heat, Scales, Unit, shown, unit_name
from chatapp.ui.transcript import Transcript
from chatapp.ui.transcript.app_palette import PaletteWidget

#: What is left out, one after the other, where the line is narrow.
_LEFT_OUT = ("lows", "names", "corner", "kind")


class Legend(PaletteWidget):
    """One line; empty while the heat is off.

    `follow` (on `Transcript.ScalesChanged`) takes over what a transcript shows.
    """

    DEFAULT_CSS = """
    Legend { height: 1; width: 1fr; background: $background; color: $foreground; }
    """

    heat: Heat = Heat.OFF
    unit: Unit = "nats"
    scales: Scales = Scales()

    def follow(self, transcript: Transcript) -> None:
        """Shows the transcript's measure, scale and unit."""
        self.set_scale(transcript.heat, transcript.scales, transcript.unit)

    def set_scale(self, heat: Heat, scales: Scales, unit: Unit) -> None:
        """Shows a measure, its scale and its unit."""
        self.heat, self.scales, self.unit = heat, scales, unit
        self.refresh()

    def render(self) -> Text:
        if self.heat is Heat.OFF:
            return Text(end="")
        line = Text()
        for left_out in range(len(_LEFT_OUT) + 1):
            line = self._line(set(_LEFT_OUT[left_out:]))
            if line.cell_len <= self.size.width:
                break
        return line

    def _line(self, wanted: set[str]) -> Text:
        line = Text(no_wrap=True, end="")
        if self.heat is Heat.BOTH:
            self._both(line, wanted)
        else:
            self._one(line, self.heat)
        if "kind" in wanted:
            percentile = self.scales[self.heat].kind == "percentile"
            line.append("  percentiles" if percentile else "  fixed", self._faint)
        return line

    @property
    def _faint(self) -> Style:
        return self.palette.accent("foreground", strength=0.55)

    def _one(self, line: Text, heat: Heat) -> None:
        scale = self.scales[heat]
        line.append(f"{heat.value} ", self.palette.accent("foreground", strength=0.8))
        line.append(f"{shown(scale.low, heat, self.unit)} ", self._faint)
        for level in range(1, LEVELS + 1):
            self._swatch(line, heat, level, 0)
        line.append(f" {shown(scale.high, heat, self.unit)} {unit_name(heat, self.unit)}", self._faint)

    def _both(self, line: Text, wanted: set[str]) -> None:
        name = self.palette.accent("foreground", strength=0.8)
        for heat, letter, level in ((Heat.ENTROPY, "H", (1, 0)), (Heat.VARENTROPY, "V", (0, 1))):
            scale = self.scales[heat]
            line.append("  " if heat is Heat.VARENTROPY else "")
            line.append(f"{heat.value if 'names' in wanted else letter} ", name)
            if "lows" in wanted:
                line.append(f"{shown(scale.low, heat, self.unit)} ", self._faint)
            for step in range(2, LEVELS + 1, 2):
                self._swatch(line, Heat.BOTH, step * level[0], step * level[1])
            line.append(f" {shown(scale.high, heat, self.unit)} {unit_name(heat, self.unit)}", self._faint)
        if "corner" in wanted:
            line.append("  both " if "names" in wanted else "  H+V ", name)
            for step in range(2, LEVELS + 1, 2):
                self._swatch(line, Heat.BOTH, step, step)

    def _swatch(self, line: Text, heat: Heat, first: int, second: int) -> None:
        line.append("a" if self.palette.plain else " ", self.palette.heated(self.palette.base, heat, first, second))
