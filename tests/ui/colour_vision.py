"""Colour differences as seen by eyes of different kinds. Formulas from the literature, none from the program.

Simulation: Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB. Difference: CIE 1976 L*a*b* (D65).
"""

from __future__ import annotations

import math

Matrix = tuple[tuple[float, float, float], ...]

EYES: dict[str, Matrix] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def linear(rgb: tuple[int, int, int]) -> list[float]:
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in rgb)]


def lab(rgb: tuple[int, int, int], eyes: str = "usual") -> tuple[float, float, float]:
    seen = [min(1.0, max(0.0, sum(m * c for m, c in zip(row, linear(rgb), strict=True)))) for row in EYES[eyes]]
    r, g, b = seen
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883

    def f(t: float) -> float:
        return t ** (1 / 3) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116

    return 116 * f(y) - 16, 500 * (f(x) - f(y)), 200 * (f(y) - f(z))


def difference(one: tuple[int, int, int], other: tuple[int, int, int], eyes: str) -> float:
    return math.dist(lab(one, eyes), lab(other, eyes))


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """WCAG 2.2 contrast ratio."""
    luminances = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other)))
    return (luminances[1] + 0.05) / (luminances[0] + 0.05)
