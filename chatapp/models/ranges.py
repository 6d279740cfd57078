"""Which values of sampling options make sense, for files that are read where no engine runs.

The samplers check what they are given themselves; a test keeps the two in step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from chatapp.protocol import Sampling
from chatapp.tomlfile import TomlFile

#: The smallest C: K = 4 and a window as large.
MIN_KV_SIZE = 8

#: The samplers that are shipped, and where packages offer others.
SAMPLERS, SAMPLER_GROUP = ("standard", "adaptive"), "chatapp.samplers"

#: Option to its smallest and largest value.
SAMPLING: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_k": (0, math.inf),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 0.5),
    "repetition_penalty": (0.01, 100),
    "presence_penalty": (-100, 100),
    "frequency_penalty": (-100, 100),
    "seed": (0, 2**64 - 1),
    "max_tokens": (1, math.inf),
}

#: Options of the ``adaptive`` sampler, in nats, nats² and percent.
ADAPTIVE: dict[str, tuple[float, float]] = {
    "low_entropy": (0, 100),
    "high_entropy": (0, 100),
    "low_varentropy": (0, 100),
    "high_varentropy": (0, 100),
    "low_percentile": (0, 100),
    "high_percentile": (0, 100),
    "penalty_context": (1, 65_536),
}


def check_sampling(file: TomlFile, keys: tuple[str, ...], sampling: Sampling) -> None:
    """Checks the values of a ``sampling`` table, found under ``keys``.

    Raises:
        UsageError: One is out of range; it names file, line and key.
    """
    given = {name: getattr(sampling, name) for name in SAMPLING}
    _check(file, keys, {name: value for name, value in given.items() if value is not None}, SAMPLING)
    if sampling.sampler and (words := unknown_sampler(sampling.sampler)):
        raise file.error((*keys, "sampler"), words)
    for token, bias in (sampling.logit_bias or {}).items():
        _check(file, (*keys, "logit_bias"), {str(token): bias}, {str(token): (-math.inf, math.inf)})
        if token < 0:
            raise file.error((*keys, "logit_bias", str(token)), "a token id is 0 or more.")
    if "" in (sampling.stop or ()):
        raise file.error((*keys, "stop"), "an empty string would end every reply: remove it.")


def unknown_sampler(name: str) -> str:
    """Which samplers there are, if this is none of them; else nothing."""
    if name in SAMPLERS:
        return ""
    offered = {point.name for point in entry_points(group=SAMPLER_GROUP)} - set(SAMPLERS)
    names = ", ".join([*SAMPLERS, *sorted(offered)])
    return "" if name in offered else f"there is no sampler “{name}”; choose one of {names}."


def out_of_range(name: str, value: float, ranges: Mapping[str, tuple[float, float]] = SAMPLING) -> str:
    """What an option's value must be, if this one makes no sense; else nothing."""
    low, high = ranges[name]
    if not math.isfinite(value):
        return f"must be a finite number, not {value}."
    if not low <= value <= high:
        asked = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        return f"must be {asked}, not {value}."
    return ""


def check_adaptive(file: TomlFile, keys: tuple[str, ...], options: Mapping[str, float]) -> None:
    """Checks an ``adaptive`` table, found under ``keys``.

    Raises:
        UsageError: An option is unknown or out of range; it names file, line and key.
    """
    for name in options:
        if name not in ADAPTIVE:
            raise file.error((*keys, name), f"unknown key: known keys are {', '.join(sorted(ADAPTIVE))}.")
    _check(file, keys, options, ADAPTIVE)
    for kind in ("entropy", "varentropy", "percentile"):
        low, high = options.get(f"low_{kind}"), options.get(f"high_{kind}")
        if low is not None and high is not None and low >= high:
            raise file.error((*keys, f"low_{kind}"), f"must be below high_{kind}, which is {high:g}, not {low:g}.")


def check_capacity(file: TomlFile, keys: tuple[str, ...], max_kv_size: int | None, keep: int | None = None) -> None:
    """Checks C and K, found in the table under ``keys``; None or 0 leaves them open.

    Raises:
        UsageError: One is out of range; it names file, line and key.
    """
    if max_kv_size and max_kv_size < MIN_KV_SIZE:
        raise file.error((*keys, "max_kv_size"), f"must be at least {MIN_KV_SIZE}, not {max_kv_size}.")
    if keep is not None and max_kv_size and keep > max_kv_size // 2:
        raise file.error((*keys, "keep"), f"must be at most half of max_kv_size ({max_kv_size // 2}), not {keep}.")


def _check(
    file: TomlFile, keys: tuple[str, ...], values: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]
) -> None:
    for name, value in values.items():
        if words := out_of_range(name, value, ranges):
            raise file.error((*keys, name), words)
