"""Measures, scales, ramps and cues."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.color import Color

from chatapp.tokens import Token
from chatapp.ui.heat import (
    FIXED,
    LEVELS,
    Heat,
    Ramps,
    Scale,
    Scales,
    cue_style,
    measure,
    percentile_scale,
    shown,
    unit_name,
)


def token(entropy: float, varentropy: float = 0.0, surprisal: float = 0.0) -> Token:
    return Token(0, 0, "x", entropy, varentropy, surprisal, 9.0)


def test_the_cycle_visits_every_measure_and_comes_back() -> None:
    heat, seen = Heat.OFF, []
    for _ in range(5):
        heat = heat.next
        seen.append(heat.value)
    assert seen == ["entropy", "varentropy", "both", "surprisal", "off"]


def test_each_measure_reads_its_own_field() -> None:
    one = token(1.0, 2.0, 3.0)
    assert [measure(one, heat) for heat in (Heat.ENTROPY, Heat.VARENTROPY, Heat.SURPRISAL)] == [1.0, 2.0, 3.0]


def test_bits_are_nats_over_ln2_and_for_varentropy_over_its_square() -> None:
    assert shown(math.log(2), Heat.ENTROPY, "bits") == "1.00"
    assert shown(math.log(2) ** 2, Heat.VARENTROPY, "bits") == "1.00"
    assert shown(0.6931, Heat.ENTROPY, "nats") == "0.69"
    assert unit_name(Heat.VARENTROPY, "bits") == "bits²"
    assert unit_name(Heat.SURPRISAL, "nats") == "nats"


@given(st.floats(allow_nan=True, allow_infinity=True))
@settings(deadline=None)
def test_a_level_is_in_range_for_any_value(value: float) -> None:
    assert 0 <= Scale(0.5, 4.0).level(value) <= LEVELS


def test_levels_divide_the_range_evenly() -> None:
    scale = Scale(1.0, 9.0)
    assert scale.level(1.0) == 0
    assert [scale.level(1.5 + step) for step in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert scale.level(100.0) == 8
    assert scale.level(math.nan) == 0


def test_confident_tokens_have_no_level_and_both_has_two() -> None:
    scales = Scales()
    assert scales.levels(token(0.1, 0.1, 0.1), Heat.ENTROPY) == (0, 0)
    first, second = scales.levels(token(0.1, 99.0), Heat.BOTH)
    assert (first, second) == (0, LEVELS)
    assert scales.levels(token(9.0, 99.0), Heat.OFF) == (0, 0)


def test_percentiles_by_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    scale = percentile_scale(values, FIXED[Heat.ENTROPY])
    assert (scale.low, scale.high, scale.kind) == (60.0, 98.0, "percentile")


@pytest.mark.parametrize("values", [[], [1.0] * 10, [2.0] * 1000, [math.nan] * 100])
def test_too_little_to_take_percentiles_of_leaves_the_fixed_scale(values: list[float]) -> None:
    assert percentile_scale(values, FIXED[Heat.ENTROPY]) is FIXED[Heat.ENTROPY]


def test_both_is_bilinear_between_its_corners() -> None:
    ramps = Ramps.of_variables({"background": "#000000", "heat-both": "#800000 #000080 #ffffff"}, dark=True)
    assert ramps.color(Heat.BOTH, 0, 0) is None
    assert ramps.color(Heat.BOTH, LEVELS, 0) == Color.parse("#800000")
    assert ramps.color(Heat.BOTH, 0, LEVELS) == Color.parse("#000080")
    assert ramps.color(Heat.BOTH, LEVELS, LEVELS) == Color.parse("#ffffff")
    assert ramps.color(Heat.BOTH, LEVELS // 2, 0) == Color.parse("#400000")


def test_a_theme_without_ramps_gets_the_default_ones() -> None:
    assert Ramps.of_variables({"background": "ansi_default"}, dark=True) == Ramps.of_variables(
        {"background": "#101010"}, dark=True
    )


def test_the_cue_without_colour_grows_with_the_level() -> None:
    def strength(level: int) -> tuple[bool, bool, bool]:
        style = cue_style(level)
        return bool(style.underline2), bool(style.bold), bool(style.underline)

    strengths = [strength(level) for level in range(LEVELS + 1)]
    assert strengths == sorted(strengths)
    assert len(set(strengths)) == 4
    assert cue_style(1, 5).italic
    assert not cue_style(5, 1).italic
