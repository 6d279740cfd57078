"""The ranges that files are checked by are those of the samplers and of the cache."""

from __future__ import annotations

import math

import pytest

from chatapp.engine.cache import session
from chatapp.engine.samplers import create, registry
from chatapp.engine.samplers.base import ModelFacts
from chatapp.errors import UsageError
from chatapp.models import ranges
from chatapp.protocol import Sampling

FACTS = ModelFacts(100)
#: These are not a sampler's business: the first a generation's, the second the decode loop's.
OTHERS = {"seed", "max_tokens"}
OPPOSITE = {"low_entropy": "high_entropy", "low_varentropy": "high_varentropy", "low_percentile": "high_percentile"}


def _ends(table: dict[str, tuple[float, float]], name: str) -> tuple[list[float], list[float]]:
    """Values at the ends of a range, and just beyond them."""
    low, high = table[name]
    step = 1 if name in ("top_k", "penalty_context") else 1e-3
    inside = [low] if math.isinf(high) else [low, high]
    return inside, [low - step, *([] if math.isinf(high) else [high + step])]


@pytest.mark.parametrize("name", sorted(set(ranges.SAMPLING) - OTHERS))
def test_sampling_options(name: str) -> None:
    inside, outside = _ends(ranges.SAMPLING, name)
    for value in inside:
        create("standard").configure(Sampling(**{name: value}), FACTS)
    for value in outside:
        with pytest.raises(UsageError, match=name):
            create("standard").configure(Sampling(**{name: value}), FACTS)


@pytest.mark.parametrize("name", sorted(ranges.ADAPTIVE))
def test_options_of_the_adaptive_sampler(name: str) -> None:
    inside, outside = _ends(ranges.ADAPTIVE, name)
    for value in inside:
        other = OPPOSITE.get(name) or next((low for low, high in OPPOSITE.items() if high == name), "")
        if other and (name.startswith("low") == (value > 0)):
            continue  # the other threshold leaves no room at this end
        create("adaptive").configure(_options(name, value), FACTS)
    for value in outside:
        with pytest.raises(UsageError, match=name):
            create("adaptive").configure(_options(name, value), FACTS)


def _options(name: str, value: float) -> Sampling:
    return Sampling(options={name: int(value) if name == "penalty_context" else value})


def test_names() -> None:
    assert registry.GROUP == ranges.SAMPLER_GROUP
    assert set(ranges.SAMPLERS) <= set(registry.names())
    assert session.MIN_KV_SIZE == ranges.MIN_KV_SIZE
