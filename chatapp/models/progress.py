"""How long tasks of this package say how far they are, and how they are stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Stage = Literal["resolve", "download", "verify", "convert", "load"]


class Step(msgspec.Struct, frozen=True):
    """A long task advances; the fields are those of `chatapp.protocol.Progress`.

    Attributes:
        total: 0 while unknown.
        unit: "bytes", "files" or "steps".
        file: The file at hand; empty for the task as a whole.
    """

    stage: Stage
    done: int
    total: int
    unit: str = "bytes"
    file: str = ""


#: Called a few times a second. It stops the task by raising `chatapp.errors.Interrupted`: what was downloaded so far
#: is kept where it can be resumed, and nothing half-finished takes the place of a finished file.
Report = Callable[[Step], None]


def silent(step: Step) -> None:
    """For callers that show nothing."""
