"""Who may write a conversation: one process, the one that holds the lock on its ``.lock`` file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chatapp.conversation.files import FILES, Files

#: File systems without locks (some network ones) say one of these.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL)


class Lock:
    """Held until `release` or the end of the process, however that ends."""

    def __init__(self, path: Path, files: Files = FILES) -> None:
        self._path = path
        self._files = files
        self._fd: int | None = None

    def take(self) -> bool:
        """Takes the lock; False where another process has it.

        Raises:
            OSError: The lock file cannot be made (read-only folder, full disk).
        """
        while True:
            fd = self._files.open(self._path, os.O_RDWR | os.O_CREAT)
            try:
                self._files.lock(fd)
            except BlockingIOError:
                self._files.close(fd)
                return False
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    self._files.close(fd)
                    raise
            # The holder before us may have removed the file between our open and our lock: then it guards nothing.
            if self._is_current(fd):
                self._fd = fd
                return True
            self._files.close(fd)

    def release(self) -> None:
        """Gives the lock back and removes its file."""
        if self._fd is None:
            return
        try:
            if self._is_current(self._fd):
                self._files.unlink(self._path)
        except OSError:
            pass  # the file is only a place to lock; one that stays behind is taken over by the next process
        self._files.close(self._fd)
        self._fd = None

    def _is_current(self, fd: int) -> bool:
        try:
            here = self._files.stat(self._path)
        except FileNotFoundError:
            return False
        mine = self._files.fstat(fd)
        return (here.st_dev, here.st_ino) == (mine.st_dev, mine.st_ino)
