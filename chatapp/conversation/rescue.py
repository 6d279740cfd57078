"""Lines that could not be written before the program ended: kept on another disk, put back when the file is opened."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from chatapp import paths
from chatapp.conversation.appendlog import AppendLog
from chatapp.conversation.files import FILES, Files, write_atomically


class _Start(msgspec.Struct):
    """First line of a rescue file: where in its file the lines belong, in bytes."""

    at: int


def places() -> list[Callable[[], Path]]:
    """Folders to try, in this order: the cache folder is often on the same disk, the one for temporary files seldom."""
    return [lambda: paths.cache_dir() / "rescue", lambda: Path(tempfile.gettempdir()) / f"chatapp-{os.getuid()}"]


class Rescue:
    """The rescued lines of one folder of conversations, a file of the same name for each file."""

    def __init__(self, folder: Path, files: Files = FILES) -> None:
        self._name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
        self._files = files

    def keep(self, logs: Sequence[AppendLog]) -> list[Path]:
        """Writes down what waits in these logs, into the first place that takes all of it.

        Returns:
            The files; empty where no place takes them.
        """
        for place in places():
            try:
                folder = place() / self._name
                self._files.mkdir(folder.parent)
                self._files.mkdir(folder)
                if not _is_private(folder):
                    continue
                kept = [self._keep(log, folder) for log in logs if log.waiting[1]]
            except OSError:
                continue
            for log in logs:
                self._forget(log.path, but=kept)
            return kept
        return []

    def _keep(self, log: AppendLog, folder: Path) -> Path:
        at, lines = log.waiting
        target = folder / log.path.name
        write_atomically(self._files, target, msgspec.json.encode(_Start(at)) + b"\n" + b"".join(lines))
        return target

    def lines(self, log: AppendLog) -> list[bytes]:
        """The rescued lines of a loaded file, without their newlines; those that it has by now are left out."""
        for kept in self._kept(log.path):
            try:
                first, *lines = kept.read_bytes().split(b"\n")
                at = msgspec.json.decode(first, type=_Start).at
            except (OSError, msgspec.DecodeError):
                continue
            lines = [line for line in lines if line]
            there = log.content()[at:].split(b"\n")
            same = next((i for i, line in enumerate(lines) if i >= len(there) or there[i] != line), len(lines))
            return lines[same:]
        return []

    def has(self, path: Path) -> bool:
        """Whether lines of a file are kept."""
        return bool(self._kept(path))

    def names(self) -> set[str]:
        """Names of the files of which lines are kept."""
        found: set[str] = set()
        for folder in self._folders():
            with suppress(OSError):
                found.update(name for name in os.listdir(folder) if not name.startswith("."))  # noqa: PTH208 - names
        return found

    def forget(self, *files: Path) -> None:
        """The lines of these files are in them again."""
        for path in files:
            self._forget(path)

    def _forget(self, path: Path, but: Sequence[Path] = ()) -> None:
        for kept in self._kept(path):
            if kept not in but:
                with suppress(OSError):  # harmless: lines that are there are not put back again
                    self._files.unlink(kept)

    def _kept(self, path: Path) -> list[Path]:
        return [kept for folder in self._folders() if (kept := folder / path.name).is_file()]

    def _folders(self) -> list[Path]:
        found: list[Path] = []
        for place in places():
            with suppress(OSError):
                folder = place() / self._name
                if _is_private(folder):
                    found.append(folder)
        return found


def _is_private(folder: Path) -> bool:
    """Ours alone, with the folder it is in: anybody may make folders among the temporary files."""
    for path in (folder.parent, folder):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return False
    return True
