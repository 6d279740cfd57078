"""From doubt to levels of heat: one scale for the screen, for one-shot commands and for exported pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Steps of a scale. Few, so that strips and styles are shared; more could not be told apart on a cell's background.
LEVELS = 8


@dataclass(frozen=True, slots=True)
class Scale:
    """A range of one measure, in nats (nats²).

    Attributes:
        low: Up to here a token counts as confident and is not coloured.
        high: From here on the colour is the strongest.
        kind: Where the range comes from.
    """

    low: float
    high: float
    kind: Literal["fixed", "percentile"] = "fixed"

    def level(self, value: float, levels: int = LEVELS) -> int:
        """0 up to ``low``, else 1 to ``levels``, linear in the value."""
        if not value > self.low:  # also NaN
            return 0
        if value >= self.high:
            return levels
        return min(levels, 1 + int((value - self.low) / (self.high - self.low) * levels))


#: 0.67 nats is about the 80th percentile of a reasoning model's tokens (design §5); 4 nats are 55 equal choices.
ENTROPY = Scale(0.67, 4.0)
VARENTROPY = Scale(1.0, 8.0)
SURPRISAL = Scale(1.0, 8.0)
