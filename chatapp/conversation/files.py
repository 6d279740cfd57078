"""The system calls that conversation files are written with, in one place so that tests can make each of them fail."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from pathlib import Path

#: Files are readable by their owner only.
MODE = 0o600


class Files:
    """Real system calls. Each raises `OSError` as the call does."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Has the device write the file. On macOS `fsync` alone leaves it in the drive's own cache."""
        if sys.platform == "darwin":
            try:
                fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
                return
            except OSError:
                pass  # a file system without it (network, FAT): the ordinary call is what there is
        os.fsync(fd)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: Path) -> os.stat_result:
        return path.stat()

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def lock(self, fd: int) -> None:
        """Raises `BlockingIOError` where another process holds the lock."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


FILES = Files()


def read_all(files: Files, fd: int) -> bytes:
    """The whole content of an open file."""
    parts: list[bytes] = []
    offset = 0
    size = max(files.fstat(fd).st_size, 1 << 20)  # in one piece, unless it grows meanwhile
    while part := files.read(fd, size, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def write_all(files: Files, fd: int, data: bytes) -> None:
    """Writes everything, also where the system takes it in parts."""
    while data:
        data = data[files.write(fd, data) :]


def write_atomically(files: Files, path: Path, data: bytes) -> None:
    """Puts a whole file in place: whoever looks sees the old content or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        try:
            write_all(files, fd, data)
            files.sync(fd)
        finally:
            files.close(fd)
        files.replace(temporary, path)
    except OSError:
        _forget(files, temporary)
        raise
    files.sync_folder(path.parent)


def _forget(files: Files, path: Path) -> None:
    # A left-over temporary file does no harm, and the first error is the one to tell.
    with contextlib.suppress(OSError):
        files.unlink(path)
