"""Sizes at which screens change their layout; the classes are used in app.tcss."""

from __future__ import annotations

WIDTHS: list[tuple[int, str]] = [(0, "-narrow"), (60, "-normal"), (110, "-wide")]
LOW: list[tuple[int, str]] = [(0, "-low"), (20, "-tall")]
