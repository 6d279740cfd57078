"""The record kept in each converted model's folder: which GGUF content it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from chatapp.models.progress import Report
from chatapp.models.store import converted_dir, sha256

_RECORD = "chatapp.json"


class Conversion(msgspec.Struct, frozen=True):
    """What is noted beside a converted model.

    Attributes:
        source: The GGUF's path.
        sha256: Its content.
        size, mtime_ns: Of the GGUF when it was hashed, to see that it is still the same without reading it.
        note: What the person should know of the result; usually empty.
    """

    source: str
    sha256: str
    size: int = 0
    mtime_ns: int = 0
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


def conversions_of(digest: str = "", source: str = "") -> list[Path]:
    """The finished conversions of a content, or of the file at a path; newest first."""
    found = [
        folder
        for folder, record in _all()
        if (digest and record.sha256 == digest) or (source and record.source == source)
    ]
    return sorted(found, key=lambda folder: folder.stat().st_mtime, reverse=True)


def content_hash(gguf: Path, report: Report) -> str:
    """The sha256 of a GGUF; read again only if the file is not as it was when it was converted.

    Raises:
        Interrupted: ``report`` raised it.
        OSError: The file cannot be read.
    """
    facts = gguf.stat()
    for _, record in _all():
        if (record.source, record.size, record.mtime_ns) == (str(gguf), facts.st_size, facts.st_mtime_ns):
            return record.sha256
    return sha256(gguf, report)


def _all() -> Iterator[tuple[Path, Conversion]]:
    for folder in converted_dir().iterdir():
        record = None if folder.name.startswith(".") else read_conversion(folder)
        if record is not None:
            yield folder, record
