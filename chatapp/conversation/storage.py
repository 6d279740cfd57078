"""Where an open conversation is kept: its file, the token records beside it, the lock, and lines that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chatapp.conversation import events
from chatapp.conversation.appendlog import AppendLog
from chatapp.conversation.journal import Journal, Reading, read
from chatapp.conversation.lock import Lock
from chatapp.conversation.records import Records
from chatapp.conversation.rescue import Rescue


class Storage:
    """The files of one conversation. What happens to the disk is told in ``trouble`` and ``notices``, never raised.

    Attributes:
        journal: The lines of the conversation.
        records: The token records of its replies.
        read_only: Why nothing may be written, as a sentence; None where writing is allowed.
        notices: What the person should be told, as sentences.
    """

    def __init__(
        self, journal: Journal, records: Records, lock: Lock | None, rescue: Rescue, *, read_only: str | None = None
    ) -> None:
        self.journal = journal
        self.records = records
        self.read_only = read_only
        self.notices: list[str] = []
        self._lock = lock
        self._rescue = rescue
        self._first_line: events.Opened | None = None
        self._closed = False

    @property
    def path(self) -> Path:
        """Where the file is, or will be once something is written."""
        return self.journal.log.path

    @property
    def trouble(self) -> str | None:
        """Why lines wait in memory, as a sentence; None when everything is on disk."""
        return self.journal.log.trouble or self.records.log.trouble

    @property
    def unsaved(self) -> int:
        """How many lines wait in memory because of `trouble`."""
        return sum(log.unsaved for log in self._logs)

    @property
    def _logs(self) -> tuple[AppendLog, AppendLog]:
        return self.journal.log, self.records.log

    def gather(self) -> list[str]:
        """``notices`` with what the files have to say since the last call."""
        for source in (self.journal.log.notices, self.records.notices, self.records.log.notices):
            self.notices += source
            source.clear()
        return self.notices

    def begin(self, first: events.Opened) -> None:
        """The first line of a file that is not there yet: written with the first change."""
        self._first_line = first

    def write(self, lines: Sequence[events.KnownEvent], *, sync: bool) -> None:
        """Appends events, ``sync`` waiting for the device; what the disk refuses waits in memory."""
        first = [self._first_line] if self._first_line else []
        if first and self._lock is not None:
            self._lock_new_file(self._lock)
        self.journal.append(*first, *lines, sync=sync)
        self._first_line = None

    def _lock_new_file(self, lock: Lock) -> None:
        try:
            lock.take()
        except OSError:
            self._lock = None  # the append that follows meets the same fault and tells it

    def retry(self) -> bool:
        """Writes what waits in memory; True when everything is on disk."""
        return self.records.log.retry() & self.journal.log.retry()

    def poll(self) -> tuple[Reading, bool]:
        """What another process has written since, and whether the conversation must be folded anew."""
        try:
            reading, replaced = self.journal.poll()
            self.records.poll()
        except OSError as error:
            self.notices.append(f"{self.path.name} cannot be read any more ({error.strerror or error}).")
            return Reading(), False
        self.notices += reading.notices
        return reading, replaced

    def content(self) -> bytes:
        """The file's lines, those that wait in memory included.

        Raises:
            OSError: The file cannot be read.
        """
        return self.journal.log.content()

    def put_back(self) -> list[events.AnyEvent]:
        """Takes in the lines that an earlier session could not write, and returns the events among them."""
        lines, tokens = (self._rescue.lines(log) for log in self._logs)
        self.records.put_back(tokens)
        if self.read_only is None:
            if lines:
                self.journal.log.append(lines, sync=True)
            if lines or tokens:
                self.notices.append("What could not be saved before the program ended is here again.")
            if not self.trouble:
                self._rescue.forget(*(log.path for log in self._logs))
        return read(b"".join(line + b"\n" for line in lines)).events

    def close(self, name: str) -> str | None:
        """Writes what waits and gives the file free.

        Args:
            name: What the conversation is called, for the sentence.

        Returns:
            None; where the disk does not take everything, what the person should be told.
        """
        if self._closed:
            return None
        self._closed = True
        self.records.close()
        self.journal.log.close()
        told = self._rescued(name) if self.read_only is None else None
        if self._lock is not None:
            self._lock.release()
        return told

    def _rescued(self, name: str) -> str | None:
        if not self.trouble:
            self._rescue.forget(*(log.path for log in self._logs))
            return None
        what = f"{self.unsaved} {'line' if self.unsaved == 1 else 'lines'} of “{name}”"
        kept = self._rescue.keep(self._logs)
        if not kept:
            return f"{what} could not be saved anywhere and are lost."
        return f"{what} could not be saved. They are kept in {kept[0].parent} and come back when it is opened again."
