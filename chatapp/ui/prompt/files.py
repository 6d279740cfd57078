"""Files of the UI that are small, private and replaced as a whole: drafts and the history of prompts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replaces a file in one step; only its owner can read it.

    Raises:
        OSError: It could not be written; the old file is as it was.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_or_empty(path: Path) -> str:
    """A file's text; empty if there is none or it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
