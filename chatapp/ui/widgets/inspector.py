"""Everything known about the token under the cursor."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.style import Style
from rich.text import Text

from chatapp.text import visible
from chatapp.tokens import Attention, Token
from chatapp.ui.heat import Heat, Scales, Unit, shown, unit_name
from chatapp.ui.transcript.app_palette import PaletteWidget
from chatapp.ui.transcript.wrap import text_cells
from chatapp.ui.widgets.marks import fitted, marked

_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, slots=True)
class Inspected:
    """A token and where it stands: number ``index`` (from 0) of ``count``."""

    token: Token
    index: int
    count: int


class Inspector(PaletteWidget):
    """Entropy, varentropy, surprisal, the alternatives as bars, and what the token looked at."""

    DEFAULT_CSS = """
    Inspector { height: auto; width: 1fr; background: $background; color: $foreground; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._inspected: Inspected | None = None
        self._unit: Unit = "nats"
        self._scales = Scales()

    def inspect(self, inspected: Inspected | None, *, unit: Unit = "nats", scales: Scales | None = None) -> None:
        """Shows a token; None shows how to get to one."""
        self._inspected, self._unit = inspected, unit
        self._scales = scales or self._scales
        self.refresh(layout=True)

    def render(self) -> Text:
        width = max(16, self.size.width)
        text = Text(no_wrap=True, end="", overflow="crop")
        if self._inspected is None:
            text.append("no token selected", self._faint)
            return text
        token = self._inspected.token
        if self.screen.has_class("-low"):
            self._brief(text, self._inspected, width)
            return text
        text.append(fitted(marked(token.text), width), self.palette.accent("primary", bold=True))
        place = f"\ntoken {self._inspected.index + 1:,} of {self._inspected.count:,}  id {token.id}\n\n"
        text.append(place, self._faint)
        self._numbers(text, token)
        self._alternatives(text, token, width)
        if token.attention is not None:
            self._attention(text, token.attention, width)
        return text

    @property
    def _faint(self) -> Style:
        return self.palette.accent("foreground", strength=0.55)

    def _brief(self, text: Text, inspected: Inspected, width: int) -> None:
        """What matters most, for a panel of three lines."""
        token = inspected.token
        place = f" {inspected.index + 1:,}/{inspected.count:,}"
        text.append(fitted(marked(token.text), width - len(place)), self.palette.accent("primary", bold=True))
        text.append(f"{place}\n", self._faint)
        for letter, (_, value, heat) in zip("HVS", _measures(token), strict=True):
            level = self._scales[heat].level(value)
            text.append(f"{letter} ", self._faint)
            text.append(shown(value, heat, self._unit), self.palette.heated(self.palette.base, heat, level, 0))
            text.append("  ", self._faint)
        text.append(f"{self._unit}  {visible(token.state)}\n", self._faint)
        used = 0
        for rank, alternative in enumerate(token.top[:9], 1):
            label = f"{rank} {marked(alternative.text)} {100 * math.exp(alternative.logprob):.0f}%"
            if used + text_cells(label) > width:
                break
            used += text_cells(label) + 2
            text.append(f"{label}  ", self.palette.accent("primary", bold=True) if alternative.id == token.id else None)

    def _numbers(self, text: Text, token: Token) -> None:
        for name, value, heat in _measures(token):
            level = self._scales[heat].level(value)
            text.append(f"{name:<16}", self._faint)
            text.append(f"{shown(value, heat, self._unit):>6}", self.palette.heated(self.palette.base, heat, level, 0))
            text.append(f" {unit_name(heat, self._unit)}\n", self._faint)
        text.append(f"{'as sampled':<16}", self._faint)
        text.append(f"{shown(token.sampled_entropy, Heat.ENTROPY, self._unit):>6}", self.palette.base)
        text.append(f" {self._unit}\n", self._faint)
        if token.state:
            text.append(f"{'sampler':<16}", self._faint)
            text.append(f"{visible(token.state)}\n", self.palette.accent("accent"))

    def _alternatives(self, text: Text, token: Token, width: int) -> None:
        if not token.top:
            return
        text.append("\nmight have been\n", self._faint)
        for rank, alternative in enumerate(token.top, 1):
            number = f"{rank:>2} " if rank <= 9 else "   "
            self._bar(text, number, alternative.text, math.exp(alternative.logprob), width, alternative.id == token.id)
        if all(alternative.id != token.id for alternative in token.top):
            self._bar(text, " … ", token.text, math.exp(-token.surprisal), width, chosen=True)

    def _attention(self, text: Text, attention: Attention, width: int) -> None:
        text.append("\nattention\n", self._faint)
        rows = (
            ("entropy", shown(attention.entropy, Heat.ENTROPY, self._unit), self._unit),
            ("over heads", shown(attention.varentropy, Heat.VARENTROPY, self._unit), f"{self._unit}²"),
            ("disagreement", f"{attention.agreement:.4f}", ""),
            ("strength", f"{attention.interaction:.2f}", ""),
        )
        for name, value, unit in rows:
            text.append(f"{name:<16}", self._faint)
            text.append(f"{value:>6}", self.palette.base)
            text.append(f" {unit}\n", self._faint)
        if attention.top:
            text.append("\nlooked at\n", self._faint)
        for attended in attention.top:
            self._bar(text, f"{attended.position:>5} ", attended.text, attended.weight, width, chosen=False)

    def _bar(self, text: Text, lead: str, label: str, share: float, width: int, chosen: bool) -> None:
        palette = self.palette
        name = max(6, min(16, width // 2 - len(lead)))
        text.append(lead, self._faint)
        text.append(fitted(marked(label), name), palette.accent("primary", bold=True) if chosen else palette.base)
        figure = f" {100 * share:5.1f}%"
        cells = width - len(lead) - name - len(figure) - 1
        if cells > 0:
            text.append(" " + bar(share, cells), palette.accent("primary" if chosen else "secondary"))
        text.append(f"{figure}\n", self._faint)


def _measures(token: Token) -> tuple[tuple[str, float, Heat], ...]:
    return (
        ("entropy", token.entropy, Heat.ENTROPY),
        ("varentropy", token.varentropy, Heat.VARENTROPY),
        ("surprisal", token.surprisal, Heat.SURPRISAL),
    )


def bar(share: float, cells: int) -> str:
    """A bar of exactly so many cells, in steps of an eighth; a share above zero always shows."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    eighths = max(1, eighths) if share > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(cells)
