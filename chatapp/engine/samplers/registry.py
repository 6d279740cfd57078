"""Samplers by name: the shipped ones, and those that other packages offer as entry points.

A package registers one under ``[project.entry-points."chatapp.samplers"]`` as ``name = "module:Class"``; the class is
called without arguments and must give an `EntropySampler`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from chatapp.engine.samplers.adaptive import Adaptive
from chatapp.engine.samplers.base import EntropySampler
from chatapp.engine.samplers.standard import Standard
from chatapp.errors import ChatappError, UsageError

GROUP = "chatapp.samplers"
DEFAULT = "standard"

_SHIPPED: dict[str, type[EntropySampler[Any, Any]]] = {"standard": Standard, "adaptive": Adaptive}


def names() -> list[str]:
    """Names of all samplers, the shipped ones first."""
    return list(_SHIPPED) + sorted(point.name for point in _offered() if point.name not in _SHIPPED)


def create(name: str | None) -> EntropySampler[Any, Any]:
    """A sampler by its name; None means the default.

    Raises:
        UsageError: No sampler has this name.
        ChatappError: The package that offers it cannot be imported, or it is not a sampler.
    """
    name = name or DEFAULT
    if name in _SHIPPED:
        return _SHIPPED[name]()
    for point in _offered():
        if point.name == name:
            return _load(point)
    raise UsageError(f"There is no sampler {name!r}; choose one of {', '.join(names())}.")


def _offered() -> list[EntryPoint]:
    return list(entry_points(group=GROUP))


def _load(point: EntryPoint) -> EntropySampler[Any, Any]:
    try:
        sampler = point.load()()
    except (ImportError, AttributeError, TypeError) as error:
        raise ChatappError(
            f"The sampler {point.name!r} ({point.value}) could not be loaded: {error}. Repair or remove its package."
        ) from error
    parts = ("states", "configure", "start", "lookback", "wants_scores", "__call__")
    missing = [part for part in parts if not hasattr(sampler, part)]
    if missing:
        raise ChatappError(
            f"The sampler {point.name!r} ({point.value}) lacks {', '.join(missing)}. Repair or remove its package."
        )
    return sampler
