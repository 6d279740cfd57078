"""Reads files of the Hub into the cache's blobs: resumed where an earlier run stopped, and checked by hash.

Everything that relies on the inside of huggingface_hub is here and in `hub`: that `http_get` writes into the file
object that it is given and continues after ``resume_size``, and that a blob is named by its hash.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from chatapp.errors import ChatappError, Interrupted
from chatapp.models.progress import Report, Step
from chatapp.models.store import locked
from chatapp.text import visible

_POLL_SECONDS = 0.1
_CHUNK = 4 * 1024 * 1024
_NETWORK_CHUNK = 256 * 1024
_SUFFIX = ".chatapp.incomplete"


class File(Protocol):
    """What is to be read."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def blob(self) -> str: ...


def errors() -> tuple[type[Exception], ...]:
    """What the client and its HTTP library raise."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import get_session

    # huggingface_hub 1.x stands on httpx, 2.x on httpx2: ask the client which it is.
    module: Any = __import__(type(get_session()).__module__.partition(".")[0])
    return (OSError, HFValidationError, module.HTTPError, module.InvalidURL)


def reason(error: Exception) -> str:
    """An error of the network in a few words."""
    lines = str(error).strip().splitlines()
    return visible(lines[0][:160]) if lines else type(error).__name__


def interrupted(blobs: Path) -> bool:
    """Whether a part of a file lies here from an earlier run of chatapp."""
    return any(blobs.glob(f"*{_SUFFIX}"))


def partial_bytes(blobs: Path, files: Sequence[File]) -> int:
    """How much of some files lies here from an earlier run."""
    return sum(min(_size(blobs / (file.blob + _SUFFIX)), file.size) for file in files)


def download(repo: str, commit: str, files: Sequence[File], blobs: Path, report: Report) -> None:
    """Reads files, one after another, into ``blobs``.

    The network is read on a thread of its own, so that ``report`` is called, and can stop it, while a connection hangs.

    Raises:
        Interrupted: ``report`` raised it; partial files are kept.
        ChatappError: A file does not have the hash that the Hub names, twice.
        Exception: One of `errors`.
    """
    blobs.mkdir(parents=True, exist_ok=True)
    with locked(blobs / ".chatapp", report):
        job = _Job(repo, commit, files, blobs)
        worker = threading.Thread(target=job.run, name="download", daemon=True)
        worker.start()
        try:
            while worker.is_alive():
                worker.join(_POLL_SECONDS)
                job.tell(report)
        except BaseException:
            job.stopped = True
            worker.join(2 * _POLL_SECONDS)  # it ends at its next chunk; a hanging connection is left to its timeout
            raise
    if job.error is not None:
        raise job.error


class _Job:
    """The downloads of one call, shared between the thread that reads and the one that tells."""

    def __init__(self, repo: str, commit: str, files: Sequence[File], blobs: Path) -> None:
        self._repo, self._commit, self._files, self._blobs = repo, commit, files, blobs
        self.stopped = False
        self.error: Exception | None = None
        self._finished = 0
        self._current: File = files[0]
        self._hashed = 0

    def run(self) -> None:
        try:
            for file in self._files:
                self._current = file
                self._fetch(file)
                self._finished += file.size
        except Interrupted:
            pass  # whoever set `stopped` knows
        except Exception as error:  # noqa: BLE001 - the thread's border: `download` raises it on the caller's thread
            self.error = error

    def tell(self, report: Report) -> None:
        file = self._current
        finished = self._finished
        total = sum(other.size for other in self._files)
        here = min(_size(self._blobs / (file.blob + _SUFFIX)), file.size)
        if self._hashed:
            report(Step("verify", self._hashed, file.size, file=file.name))
        elif finished < total:
            report(Step("download", here, file.size, file=file.name))
        report(Step("download", min(finished + here, total), total))

    def _fetch(self, file: File) -> None:
        part = self._blobs / (file.blob + _SUFFIX)
        for attempt in (1, 2):
            self._read(file, part)
            if self._hash(part, file.blob) == file.blob:
                part.replace(self._blobs / file.blob)
                return
            part.unlink()  # a damaged part must not be taken up again
            if attempt == 2:
                raise ChatappError(
                    f"{file.name} of {self._repo} arrives damaged (its hash is not the Hub's): try again later, "
                    "and suspect a proxy or mirror on the way if it stays so.",
                    "network",
                )

    def _hash(self, path: Path, like: str) -> str:
        """The hash of a file, of the kind of another: sha256 (64 digits), or git's blob id (sha1 with a header)."""
        if len(like) == 64:
            digest = hashlib.sha256()
        else:
            digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    if self.stopped:
                        raise Interrupted
                    digest.update(chunk)
                    self._hashed += len(chunk)
        finally:
            self._hashed = 0
        return digest.hexdigest()

    def _read(self, file: File, part: Path) -> None:
        from huggingface_hub import constants, hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        # Its own 10 MB would show nothing for ten seconds on a slow line, and lose as much when stopped.
        constants.DOWNLOAD_CHUNK_SIZE = _NETWORK_CHUNK
        if _size(part) > file.size:
            part.unlink()
        with part.open("ab+") as raw:
            raw.seek(0, 2)
            sink = _Sink(self, raw)
            http_get(
                hf_hub_url(self._repo, file.name, revision=self._commit),
                sink,  # pyright: ignore[reportArgumentType] - it has what http_get uses of a file
                resume_size=raw.tell(),
                headers=build_hf_headers(),
                expected_size=file.size,
                displayed_filename=file.name,
            )


class _Sink:
    """A file for `http_get` to write to, by which a download is stopped."""

    def __init__(self, job: _Job, raw: Any) -> None:
        self._job, self._raw = job, raw

    def write(self, data: bytes) -> int:
        if self._job.stopped:
            raise Interrupted
        try:
            return self._raw.write(data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise ChatappError(
                    f"The disk is full: make room in {self._raw.name} and try again.", "space"
                ) from error
            raise

    def seek(self, position: int, whence: int = 0) -> int:
        return self._raw.seek(position, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def truncate(self, size: int | None = None) -> int:
        return self._raw.truncate(size)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
