"""The folders of fetched and converted models, and how a finished result takes its place in them.

Work is done in a hidden folder beside the result, under a lock, and moved into place in one step: whatever ends the
program in the middle, a result is complete or not there.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from chatapp import paths
from chatapp.models.progress import Report, Step

_STAGING = ".part-"
_CHUNK = 4 * 1024 * 1024


def downloads_dir() -> Path:
    """GGUF files taken out of wheels, one folder for each wheel."""
    return paths.private_dir(paths.cache_dir() / "downloads")


def converted_dir() -> Path:
    """Models made from GGUF files, one mlx-lm folder for each content hash and kind of weights."""
    return paths.private_dir(paths.cache_dir() / "converted")


@contextmanager
def staging(target: Path, report: Report) -> Generator[Path | None]:
    """Gives one process at a time an empty folder to make ``target`` in.

    Yields:
        The folder; None if ``target`` is there already. Move the result with ``os.replace`` before leaving: what is
        still in the folder then is removed.

    Raises:
        Interrupted: ``report`` raised it while another process was at work.
    """
    with locked(target, report):
        if target.exists():
            yield None
            return
        for left in target.parent.glob(f"{_STAGING}{target.name}-*"):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed: we hold its lock now
        folder = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{target.name}-", dir=target.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(target: Path, report: Report) -> Generator[None]:
    """Holds the lock of a file or folder; the system drops it however the process ends.

    Raises:
        Interrupted: ``report`` raised it while another process held the lock.
    """
    lock = FileLock(target.parent / f".{target.name}.lock", mode=0o600)
    while True:
        try:
            lock.acquire(timeout=0.3)
            break
        except Timeout:
            report(Step("resolve", 0, 0, file=target.name))  # lets the person give up
    try:
        yield
    finally:
        lock.release()


def sha256(path: Path, report: Report) -> str:
    """The hash of a file, with progress.

    Raises:
        Interrupted: ``report`` raised it.
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    total = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            report(Step("verify", done, total, file=path.name))
    return digest.hexdigest()
