"""Checks of sampling options: every complaint is one sentence that names the option and its range."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from chatapp.errors import UsageError


def number(name: str, value: object, default: float, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number between ``low`` and ``high``, or the default for None.

    Raises:
        UsageError: It is out of range or not a number.
    """
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} must be a number, not {value!r}.")
    if not low <= value <= high:
        raise UsageError(f"{name} must be {_range(low, high)}, not {value}.")
    return float(value)


def whole(name: str, value: object, default: int, low: int = 0, high: int | None = None) -> int:
    """A whole number between ``low`` and ``high``, or the default for None.

    Raises:
        UsageError: It is out of range or not a whole number.
    """
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number, not {value!r}.")
    if value < low or (high is not None and value > high):
        raise UsageError(f"{name} must be {_range(low, math.inf if high is None else high)}, not {value}.")
    return value


def known(options: Mapping[str, object], names: Collection[str], sampler: str) -> None:
    """Every option must be one that the sampler has.

    Raises:
        UsageError: One is not; the sentence lists those that are.
    """
    for name in options:
        if name not in names:
            raise UsageError(f"The sampler {sampler} has no option {name!r}; it has {', '.join(sorted(names))}.")


def _range(low: float, high: float) -> str:
    if math.isinf(high):
        return f"at least {low:g}"
    if math.isinf(low):
        return f"at most {high:g}"
    return f"from {low:g} to {high:g}"
