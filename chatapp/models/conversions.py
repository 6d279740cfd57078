"""The record kept in each converted model's folder: which GGUF content it was made from."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chatapp.models.store import converted_dir

_RECORD = "chatapp.json"


class Conversion(msgspec.Struct, frozen=True):
    """What is noted beside a converted model.

    Attributes:
        source: The GGUF's path.
        sha256: Its content.
        note: What the person should know of the result; usually empty.
    """

    source: str
    sha256: str
    note: str = ""


def write_conversion(folder: Path, record: Conversion) -> None:
    """Notes where a folder's model came from."""
    (folder / _RECORD).write_bytes(msgspec.json.encode(record))


def read_conversion(folder: Path) -> Conversion | None:
    """What was noted when a folder was converted; None for a folder that chatapp did not make."""
    try:
        return msgspec.json.decode((folder / _RECORD).read_bytes(), type=Conversion)
    except (OSError, msgspec.DecodeError):
        return None


def conversions_of(sha256: str = "", source: str = "") -> list[Path]:
    """The finished conversions of a content, or of the file at a path; newest first."""
    found: list[Path] = []
    for folder in converted_dir().iterdir():
        record = None if folder.name.startswith(".") else read_conversion(folder)
        if record and ((sha256 and record.sha256 == sha256) or (source and record.source == source)):
            found.append(folder)
    return sorted(found, key=lambda folder: folder.stat().st_mtime, reverse=True)
