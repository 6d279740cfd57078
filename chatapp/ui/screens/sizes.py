"""Sizes at which screens change their layout; the classes are used in app.tcss."""

from __future__ import annotations

WIDTHS: list[tuple[int, str]] = [(0, "-narrow"), (60, "-normal"), (110, "-wide")]
TALL = 20  # rows
LOW: list[tuple[int, str]] = [(0, "-low"), (TALL, "-tall")]
