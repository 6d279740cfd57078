"""Small conversations for tests, and system calls that fail on demand."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from chatapp.conversation.files import Files
from chatapp.conversation.session import ConversationSession
from chatapp.tokens import Alternative, Token


def token(text: str, id: int = 7, entropy: float = 0.5, index: int = 0) -> Token:
    return Token(index, id, text, entropy, 0.25, 0.125, 0.4, top=(Alternative(id, text, -0.125),))


def reply(session: ConversationSession, *texts: str, model: str = "tiny", **options: object) -> str:
    """Adds a reply of these tokens and returns its id."""
    writer = session.begin_reply(model=model, **options)  # type: ignore[arg-type]
    writer.append([token(text, 100 + i, 0.5 + i) for i, text in enumerate(texts)])
    return writer.finish("stop", seed=3).id


def contents(session: ConversationSession) -> list[str]:
    return [message.content for message in session.conversation.path()]


class FaultyFiles(Files):
    """Real system calls of which the n-th (counted from 1) fails; after it all work again, or none.

    ``calls`` counts them, so that a run without a fault tells how many there are to try.
    """

    def __init__(
        self, fail_at: int = 0, code: int = errno.ENOSPC, *, short: bool = False, lasting: bool = False
    ) -> None:
        self.fail_at, self.code, self.short, self.lasting = fail_at, code, short, lasting
        self.calls: list[str] = []
        self.healed = False

    def _count(self, name: str) -> None:
        self.calls.append(name)
        due = len(self.calls) == self.fail_at or (self.lasting and 0 < self.fail_at < len(self.calls))
        if due and not self.healed:
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: Path, flags: int) -> int:
        self._count("open")
        return super().open(path, flags)

    def write(self, fd: int, data: bytes) -> int:
        try:
            self._count("write")
        except OSError:
            # A full disk often takes the first part of a line.
            super().write(fd, data[: len(data) // 2])
            raise
        return super().write(fd, data[: max(1, len(data) // 3)] if self.short else data)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._count("read")
        return super().read(fd, size, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._count("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._count("sync")
        super().sync(fd)

    def sync_folder(self, path: Path) -> None:
        self._count("sync_folder")
        super().sync_folder(path)

    def stat(self, path: Path) -> os.stat_result:
        self._count("stat")
        return super().stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        self._count("fstat")
        return super().fstat(fd)

    def replace(self, source: Path, target: Path) -> None:
        self._count("replace")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._count("mkdir")
        super().mkdir(path)
