"""Where a model comes from: parses ``hf:``, ``path:``, ``gguf:`` and ``pypi:``, bare ``owner/repo`` and paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from chatapp.errors import UsageError

Kind = Literal["hf", "path", "gguf", "pypi"]

_REPO = re.compile(r"(?P<location>[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_WHEEL = re.compile(r"(?P<location>[A-Za-z0-9][\w.-]*==[\w.!+]+)/(?P<file>[\w./ +-]+\.gguf)")


class Source(msgspec.Struct, frozen=True):
    """One place a model comes from.

    Attributes:
        kind: ``hf`` a Hub repository, ``path`` an mlx-lm folder, ``gguf`` a GGUF file, ``pypi`` a GGUF in a wheel.
        location: ``owner/repo``, an absolute path, or ``project==version``.
        revision: ``hf`` only: commit, tag or branch; empty is ``main``.
        file: ``pypi`` only: the GGUF's path inside the wheel.
    """

    kind: Kind
    location: str
    revision: str = ""
    file: str = ""

    def __str__(self) -> str:
        tail = f"@{self.revision}" if self.revision else f"/{self.file}" if self.file else ""
        return f"{self.kind}:{self.location}{tail}"


def parse_source(text: str, base: Path | None = None) -> Source:
    """Reads a source as models.toml writes it, with its kind in front.

    Args:
        text: ``hf:owner/repo[@revision]``, ``path:folder``, ``gguf:file`` or ``pypi:project==version/inside.gguf``.
        base: What relative paths are relative to; the working folder if None.

    Raises:
        UsageError: It is none of these.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "hf" and (found := _REPO.fullmatch(rest)):
        return Source("hf", found["location"], found["revision"] or "")
    if colon and kind == "pypi" and (found := _WHEEL.fullmatch(rest)):
        return Source("pypi", found["location"], file=found["file"])
    if colon and kind == "path" and rest:
        return Source("path", _absolute(rest, base))
    if colon and kind == "gguf" and rest:
        return Source("gguf", _absolute(rest, base))
    raise UsageError(
        f"“{text}” is not a model source: write hf:owner/repo[@revision], path:folder, gguf:file "
        "or pypi:project==version/file.gguf."
    )


def guess_source(text: str) -> Source | None:
    """Reads what a person gives to ``-m``: a source, an existing folder or .gguf file, or ``owner/repo[@revision]``.

    Returns None where it looks like none of these (it may be a name of the registry).
    """
    if text.startswith(("hf:", "path:", "gguf:", "pypi:")):
        return parse_source(text)
    path = Path(text).expanduser()
    if path.is_dir() and (path / "config.json").exists():
        return Source("path", _absolute(text, None))
    if path.suffix == ".gguf" and (path.exists() or text.startswith(("/", ".", "~"))):
        return Source("gguf", _absolute(text, None))
    if text.startswith(("/", "./", "../", "~")):
        return Source("path", _absolute(text, None))
    if found := _REPO.fullmatch(text):
        return Source("hf", found["location"], found["revision"] or "")
    return None


def _absolute(text: str, base: Path | None) -> str:
    path = Path(text).expanduser()
    return str((base or Path.cwd()).joinpath(path).resolve())
