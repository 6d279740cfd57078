"""A file of lines that only grows, and that loses nothing: full disks, killed processes, being moved while open."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from chatapp.conversation.files import FILES, Files, read_all, write_all, write_atomically

#: Bytes read at once: few enough for the processor's cache and for memory that is used again (three times as quick as
#: a million).
_PART = 1 << 18
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class AppendLog:
    """Appends lines to one file. No method raises `OSError` for what happens to the disk: it is told in ``trouble``.

    A line is *acknowledged* when `append` returns and ``trouble`` is None. Until then it waits in memory, is written
    by the next `append` or `retry`, and stays in order.

    Attributes:
        path: Where the file is; changes when another file has taken its place.
        writable: False where it is only read; `load` finds out if writing is forbidden.
        taken: Another process writes it.
        trouble: Why lines wait in memory, as a sentence; None when everything is written.
        notices: What happened to the file that the person should know; whoever shows them clears the list.
    """

    def __init__(self, path: Path, *, files: Files = FILES, writable: bool = True, remember: bool = False) -> None:
        """Nothing is opened yet.

        Args:
            path: Of the file; it is made by the first `append` if `load` was not called.
            files: The system calls.
            writable: False only reads.
            remember: Keep all lines in memory, so that they survive another program that cuts the file short.
        """
        self.path = path
        self.trouble: str | None = None
        self.notices: list[str] = []
        self.writable = writable
        self.taken = False
        self._files = files
        self._fd: int | None = None
        self._size = 0
        self._torn = b""
        self._pending: list[bytes] = []
        self._memory: list[bytes] | None = [] if remember else None
        self._unsynced = 0
        self._sync_due = False
        self._rewrite_due = False
        self._torn_by_us = False
        self._newline_due = False
        self._told: set[str] = set()

    def load(self) -> bytes:
        """Opens the file and reads it; it is not changed before the first `append`.

        Returns:
            Its bytes up to the last newline; a torn last line is kept apart and set aside before the first append.

        Raises:
            OSError: The file cannot be opened or read.
        """
        data = b"".join(self.load_parts())
        if self._memory is not None:
            self._memory = [data]
        return data

    def load_parts(self) -> Iterator[bytes]:
        """As `load`, in parts of whole lines; a log that remembers its lines is loaded by `load`."""
        self._fd = self._open_existing()
        if not self.writable:
            self._memory = None
        size = 0
        line: list[bytes] = []  # the beginning of a line whose end is yet to come
        while part := self._files.read(self._fd, _PART, size):
            size += len(part)
            whole = part.rfind(b"\n") + 1
            if whole:
                yield b"".join((*line, part[:whole]))
                line = []
            line.append(part[whole:])
        self._torn = b"".join(line)
        # A reader looks at a torn line again when its other half has come.
        self._size = size if self.writable else size - len(self._torn)

    def _open_existing(self) -> int:
        if not self.writable:
            return self._files.open(self.path, os.O_RDONLY)
        try:
            fd = self._files.open(self.path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            if error.errno not in _FORBIDDEN:
                raise
            self.writable = False
            return self._files.open(self.path, os.O_RDONLY)
        self.taken = not self._claim(fd)
        self.writable = not self.taken
        return fd

    @property
    def torn(self) -> bytes:
        """A last line without an end, found by `load`."""
        return self._torn

    def accept_torn(self) -> None:
        """The last line lacks nothing but its newline: it stays, and the next append ends it."""
        if not self.writable:
            self._size += len(self._torn)
        if self._memory is not None:
            self._memory.append(self._torn)
        self._torn = b""
        self._newline_due = True

    @property
    def size(self) -> int:
        """Length of the file as far as it was read or written, in bytes."""
        return self._size

    @property
    def unsaved(self) -> int:
        """How many lines may not be on the disk yet."""
        return len(self.waiting[1])

    @property
    def waiting(self) -> tuple[int, list[bytes]]:
        """Where in the file what is not safe yet begins, in bytes, and its lines, newlines included.

        Lines that were written but could not be synced are among them where the log remembers its lines.
        """
        unsynced: list[bytes] = []
        if self._rewrite_due and self._memory and self._unsynced:
            unsynced = self._memory[-self._unsynced :]
        return self._size - len(self._torn) - sum(map(len, unsynced)), [*unsynced, *self._pending]

    def append(self, lines: Sequence[bytes], *, sync: bool = False) -> None:
        """Writes lines (without their newlines), each by one system call; ``sync`` waits for the device."""
        self._pending += [line + b"\n" for line in lines]
        self._sync_due |= sync
        self.retry()

    def retry(self) -> bool:
        """Writes what waits in memory. True when nothing waits any more."""
        try:
            self._flush()
        except OSError as error:
            self.trouble = _sentence(error, self.path, len(self._pending) + self._unsynced)
            return False
        self.trouble = None
        return True

    def only_read(self) -> None:
        """After `load`: somebody else writes this file. A torn line is then one whose other half is to come."""
        if self.writable:
            self.writable = False
            self._size -= len(self._torn)
            self._memory = None

    def _claim(self, fd: int) -> bool:
        """Takes the lock of the file itself; False where another process has it.

        Beside the ``.lock`` file: a file that was renamed while it is open has no such file under its new name.
        """
        try:
            self._files.lock(fd)
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without locks
        return True

    def content(self) -> bytes:
        """All lines so far, those that wait in memory included.

        Raises:
            OSError: The file cannot be read.
        """
        if self._memory is not None:
            written = b"".join(self._memory)
        else:
            written = read_all(self._files, self._fd) if self._fd is not None else b""
        return written + b"".join(self._pending)

    def read(self, offset: int, size: int) -> bytes:
        """Part of the file.

        Raises:
            OSError: It cannot be read.
        """
        if self._fd is None:
            return b""
        return self._files.read(self._fd, size, offset)

    def poll(self) -> tuple[bytes, bool]:
        """What another process has appended since: whole lines, and whether the file was replaced by a new one."""
        here = self._stat()
        if self._fd is None:
            return (self.load(), True) if here is not None else (b"", False)
        mine = self._files.fstat(self._fd)
        replaced = here is not None and (here.st_dev, here.st_ino) != (mine.st_dev, mine.st_ino)
        if replaced or mine.st_size < self._size:
            self.close()
            return self.load(), True
        data = self._files.read(self._fd, mine.st_size - self._size, self._size)
        data = data[: data.rfind(b"\n") + 1]
        self._size += len(data)
        return data, False

    def close(self) -> None:
        """Closes the file. What still waits in memory is tried once more."""
        if self._pending or self._sync_due:
            self.retry()
        if self._fd is not None:
            self._files.close(self._fd)
            self._fd = None

    def _flush(self) -> None:
        if not self._pending and not self._sync_due:
            return
        if self._rewrite_due:
            self._rewrite()
        fd = self._opened()
        self._set_torn_aside(fd)
        if self._newline_due:
            self._write_line(fd, b"\n")
            self._newline_due = False
        while self._pending:
            self._write_line(fd, self._pending[0])
            del self._pending[0]
            self._unsynced += 1
        if self._sync_due:
            self._sync(fd)

    def _opened(self) -> int:
        """The descriptor to append to, after a look at what became of the file."""
        if self._fd is None:
            self._files.mkdir(self.path.parent)
            self._fd = self._files.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            self._files.sync_folder(self.path.parent)
            self._size = self._files.fstat(self._fd).st_size
            self._claim(self._fd)
            return self._fd
        here, mine = self._stat(), self._files.fstat(self._fd)
        if here is not None and (here.st_dev, here.st_ino) == (mine.st_dev, mine.st_ino):
            return self._checked_size(mine.st_size)
        if mine.st_nlink > 0:
            self._tell(f"{self.path.name} was moved or renamed while it was open; writing goes on in the moved file.")
            return self._checked_size(mine.st_size)
        if here is not None:
            return self._elsewhere("Another file took the place of")
        self._tell(f"{self.path.name} was deleted while it was open; it was written again.")
        return self._rewrite()

    def _elsewhere(self, what_happened: str) -> int:
        """Goes on in a new file that begins with everything so far."""
        old, new = self.path, self._free_path()
        self.path = new
        self._tell(f"{what_happened} {old.name} while it was open; everything is in {new.name} from here on.")
        return self._rewrite()

    def _checked_size(self, size: int) -> int:
        """Cuts off what a failed write of ours left; keeps what another program has added."""
        assert self._fd is not None
        if size == self._size:
            return self._fd
        if self._torn_by_us:
            self._files.truncate(self._fd, self._size)
            self._torn_by_us = False
            return self._fd
        if size < self._size and self._memory is not None:
            return self._elsewhere("Another program cut off lines of")
        self._tell(f"Another program wrote to {self.path.name} while it was open; new lines go to its end.")
        self._size, self._torn, self._newline_due = size, b"", False
        if size and self._files.read(self._fd, 1, size - 1) != b"\n":
            self._write_line(self._fd, b"\n")
        return self._fd

    def _write_line(self, fd: int, line: bytes) -> None:
        self._torn_by_us = True
        write_all(self._files, fd, line)
        self._torn_by_us = False
        self._size += len(line)
        if self._memory is not None:
            self._memory.append(line)

    def _set_torn_aside(self, fd: int) -> None:
        """Moves a torn last line to a ``.torn`` file, on the device there before it is cut off here."""
        if not self._torn:
            return
        aside = self._files.open(self.path.with_suffix(".torn"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(self._files, aside, self._torn + b"\n")
            self._files.sync(aside)
        finally:
            self._files.close(aside)
        self._files.truncate(fd, self._size - len(self._torn))
        self._size -= len(self._torn)
        self._torn = b""

    def _sync(self, fd: int) -> None:
        try:
            self._files.sync(fd)
        except OSError:
            # After a failed fsync the system may drop the pages and report success next time: only a new file is safe.
            self._rewrite_due = True
            raise
        self._sync_due = False
        self._unsynced = 0

    def _rewrite(self) -> int:
        """Writes everything into a new file, at the place of the old one or at a new ``path``."""
        assert self._fd is not None
        if self._memory is not None:
            content = b"".join(self._memory)
        else:
            content = read_all(self._files, self._fd)[: self._size - len(self._torn)]
        self._files.mkdir(self.path.parent)
        write_atomically(self._files, self.path, content)
        fresh = self._files.open(self.path, os.O_RDWR | os.O_APPEND)
        self._files.close(self._fd)
        self._fd, self._size = fresh, len(content)
        self._rewrite_due = self._torn_by_us = False
        self._claim(fresh)
        return fresh

    def _stat(self) -> os.stat_result | None:
        try:
            return self._files.stat(self.path)
        except FileNotFoundError:
            return None

    def _free_path(self) -> Path:
        number = 2
        while (path := self.path.with_name(f"{self.path.stem}-{number}{self.path.suffix}")).exists():
            number += 1
        return path

    def _tell(self, notice: str) -> None:
        if notice not in self._told:
            self._told.add(notice)
            self.notices.append(notice)


def _sentence(error: OSError, path: Path, lines: int) -> str:
    kept = (
        f"{lines} {'line waits' if lines == 1 else 'lines wait'} in memory and will be saved as soon as it is possible"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"The disk is full: {kept}. Free some space."
    if error.errno in _FORBIDDEN:
        return f"{path.parent} cannot be written to: {kept}. Give yourself write permission there."
    return f"{path.name} could not be written ({error.strerror or error}): {kept}."
