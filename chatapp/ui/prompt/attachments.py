"""``@path`` in a prompt attaches a text file: it is read when the prompt is sent and put below it in a fence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import regex

from chatapp.errors import ChatappError

#: Largest file that can be attached, in bytes.
LARGEST = 1_000_000

# At the start or after a space; a path with spaces is quoted.
_MENTION = regex.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


@dataclass(frozen=True)
class Attachment:
    """A file named in a prompt.

    Attributes:
        name: As it was written.
        size: In bytes.
    """

    name: str
    path: Path
    size: int


class AttachmentError(ChatappError):
    """A file cannot be attached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "usage")


def mentioned(text: str, folder: Path) -> list[Attachment]:
    """The files that a text names with ``@``, each once; a word that names no file is just a word."""
    found: dict[Path, Attachment] = {}
    for match in _MENTION.finditer(text):
        name = match[1] or match[2]
        path = _resolve(name, folder)
        if path is not None and path not in found:
            found[path] = Attachment(name, path, path.stat().st_size)
    return list(found.values())


def attach(text: str, folder: Path) -> str:
    """The text with the contents of the files that it names below it.

    Raises:
        AttachmentError: A file is too large, cannot be read or is not text.
    """
    parts = [text]
    for attachment in mentioned(text, folder):
        content = _read(attachment)
        fence = "`" * max(3, _longest_run(content) + 1)
        kind = attachment.path.suffix.lstrip(".")
        end = "" if content.endswith("\n") else "\n"
        parts.append(f"`{attachment.name}`:\n{fence}{kind}\n{content}{end}{fence}")
    return "\n\n".join(parts)


def candidates(fragment: str, folder: Path, limit: int = 8) -> list[str]:
    """Paths that go on from what was typed after ``@``, folders with a slash at the end."""
    start = fragment.strip('"')
    base = Path(start).expanduser()
    parent, prefix = (base, "") if start.endswith("/") or not start else (base.parent, base.name)
    where = parent if parent.is_absolute() else folder / parent
    try:
        entries = sorted(where.iterdir(), key=lambda path: (not path.is_dir(), path.name.lower()))
    except OSError:
        return []
    shown = start.rpartition("/")[0]
    lead = f"{shown}/" if shown or start.startswith("/") else ""
    names = (
        f"{lead}{path.name}{'/' if path.is_dir() else ''}"
        for path in entries
        if path.name.lower().startswith(prefix.lower()) and (prefix.startswith(".") or not path.name.startswith("."))
    )
    return [name for name, _ in zip(names, range(limit), strict=False)]


def written(name: str) -> str:
    """How a path is written after ``@``."""
    return f'@"{name}"' if " " in name else f"@{name}"


def _resolve(name: str, folder: Path) -> Path | None:
    try:
        path = (folder / Path(name).expanduser()).resolve()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _read(attachment: Attachment) -> str:
    if attachment.size > LARGEST:
        raise AttachmentError(
            f"{attachment.name} has {attachment.size / 1e6:.1f} MB; files up to {LARGEST / 1e6:.0f} MB can be attached."
        )
    try:
        data = attachment.path.read_bytes()
    except OSError as error:
        raise AttachmentError(f"{attachment.name} cannot be read: {error.strerror}.") from error
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttachmentError(f"{attachment.name} is not a UTF-8 text file; only text can be attached.") from error
    if "\0" in content:
        raise AttachmentError(f"{attachment.name} holds binary data; only text can be attached.")
    return content


def _longest_run(text: str) -> int:
    return max((len(run) for run in regex.findall(r"`+", text)), default=0)
