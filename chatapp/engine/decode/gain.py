"""Whether a guess is worth checking: what it may bring and what it costs, counted in passes of the model.

No clock is looked at, although costs differ from machine to machine: ranks that decode together must guess alike, and
a reply that is drawn again must be read in the same passes, whose sums differ in their last bits otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: The most tokens guessed at once: beyond, a pass on a CPU costs nearly as much more as the tokens are worth.
LONGEST_DRAFT = 16

#: How much of its weight an observation keeps with each later one, so that the latest ten or so count.
_FADING = 0.9


@dataclass(frozen=True)
class Costs:
    """What guessing takes, over a pass of the model that reads one token.

    Attributes:
        row: Checking one token more (`chatapp.engine.precision.row_cost`).
        token: Guessing one token.
        pass_: That a pass with guesses cannot be prepared while the one before it runs.
    """

    row: float = 0.15
    token: float = 0.0
    pass_: float = 0.1

    def of(self, length: int) -> float:
        """The cost of a pass with so many guesses."""
        return 1 + self.pass_ + length * (self.row + self.token)


def best_length(chance: Callable[[int], float], costs: Costs, most: int) -> int:
    """How many tokens to guess for the most tokens in a given time; 0 where the plain loop is expected to be faster.

    Args:
        chance: How likely the guess at a place, from 0, is right if those before it are.
        costs: What guessing takes.
        most: The most tokens to guess.
    """
    best, best_rate = 0, 1.0
    expected, all_right = 1.0, 1.0
    for length in range(1, most + 1):
        all_right *= chance(length - 1)
        expected += all_right
        rate = expected / costs.of(length)
        if rate > best_rate:
            best, best_rate = length, rate
    return best


class Odds:
    """How often guesses of one kind were right lately.

    Args:
        chance: What is expected before anything was seen.
        weight: For how many observations that stands.
    """

    def __init__(self, chance: float, weight: float = 2.0) -> None:
        self._right, self._seen = chance * weight, weight

    @property
    def chance(self) -> float:
        """From 0 to 1."""
        return self._right / self._seen

    def note(self, right: bool) -> None:
        """Takes note of a guess."""
        self._right = self._right * _FADING + right
        self._seen = self._seen * _FADING + 1
