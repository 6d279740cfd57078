"""What does not work as it should with some model families, as found by ``python -m tests.families``.

All of it lies in mlx-lm's own model code; docs/families.md has the whole table.
"""

from __future__ import annotations

from typing import Any

#: Model type to what is not exact with it. A test keeps this in step with the table.
CAVEATS: dict[str, str] = {
    "afm7": (
        "its last layers take positions from the number of tokens held, which are wrong once older ones are dropped"
    ),
    "minimax_m3_vl": "its sparse attention picks blocks of cache slots, which hold other tokens once it rotates",
    "phi3small": (
        "on a CPU its block-sparse attention in mlx-lm gives no numbers for more than one token, or ends the process"
    ),
    "plamo3": "mlx-lm reads a prompt with a window one token wider than the window that it decodes with",
}


def note(config: dict[str, Any]) -> str:
    """What the person should know of a model before trusting its numbers; empty for nearly all.

    Args:
        config: The content of config.json.
    """
    caveat = CAVEATS.get(str(config.get("model_type")))
    return f"Not everything is exact with this model: {caveat}." if caveat else ""
