"""Asks for disk space before it is needed."""

from __future__ import annotations

import shutil
from pathlib import Path

from chatapp.errors import ChatappError

#: Left free on the disk beside what is asked for, in bytes.
RESERVE = 64 * 1024 * 1024


def size_text(count: float) -> str:
    """A size for people, in decimal units: ``98 MB``, ``4.3 GB``."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB"):
        count /= 1000
        if count < 999.5:
            return f"{count:.0f} {unit}"
    return f"{count / 1000:.1f} GB"


def require_space(folder: Path, needed: int) -> None:
    """Checks that a folder's disk has room.

    Args:
        folder: It need not exist yet.
        needed: In bytes.

    Raises:
        ChatappError: It has not; the sentence names the folder, what is needed and what is free.
    """
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed + RESERVE:
        raise ChatappError(
            f"{size_text(needed + RESERVE)} are needed in {folder}, {size_text(RESERVE)} of them to stay free, but "
            f"only {size_text(free)} are free: make room, or let CHATAPP_CACHE_DIR (for hub models HF_HOME) name "
            "a folder on a larger disk.",
            "space",
        )
