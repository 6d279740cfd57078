"""The events of one conversation file: reading them from whatever the file holds, and appending to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from chatapp.conversation.appendlog import AppendLog
from chatapp.conversation.events import SCHEMA, AnyEvent, BadLineError, KnownEvent, Opened, Unknown, decode, encode
from chatapp.conversation.files import FILES, Files
from chatapp.errors import ChatappError


@dataclass
class Reading:
    """What a file's bytes tell.

    Attributes:
        events: In order, unknown ones included.
        notices: Damaged lines that were skipped, with their numbers, as sentences.
        schema: Of the file.
    """

    events: list[AnyEvent] = field(default_factory=list[AnyEvent])
    notices: list[str] = field(default_factory=list[str])
    schema: int = SCHEMA

    @property
    def newer(self) -> bool:
        """The file was written by a later version of the program."""
        return self.schema > SCHEMA


def read(data: bytes, torn: bytes = b"") -> Reading:
    """Reads the lines of a conversation file. Never raises: what is no event is skipped and reported.

    Args:
        data: Whole lines.
        torn: What stands after the last newline; read too if it is a whole event that only lacks its newline.
    """
    reading = Reading()
    bad: list[tuple[int, str]] = []
    lines = data.split(b"\n")[:-1] + ([torn] if torn else [])
    for number, line in enumerate(lines, start=1):
        if not line.strip(b"\r\t "):
            continue
        try:
            event = decode(line, reading.schema)
        except BadLineError as error:
            bad.append((number, str(error)))
            continue
        if isinstance(event, Opened) and not any(isinstance(e, Opened) for e in reading.events[:1]):
            reading.schema = event.schema
        reading.events.append(event)
    if torn and bad and bad[-1][0] == len(lines):
        bad.pop()
        reading.notices.append(f"Line {len(lines)} was cut off in the middle and is set aside.")
    reading.notices += _grouped(bad)
    return reading


def _grouped(bad: list[tuple[int, str]]) -> list[str]:
    """One sentence for each run of bad lines with the same reason."""
    sentences: list[str] = []
    start = 0
    for i in range(1, len(bad) + 1):
        if i < len(bad) and bad[i] == (bad[i - 1][0] + 1, bad[start][1]):
            continue
        first, last, reason = bad[start][0], bad[i - 1][0], bad[start][1]
        where = f"Line {first} {reason} and was skipped." if first == last else ""
        sentences.append(where or f"Lines {first} to {last}: each {reason} and was skipped.")
        start = i
    return sentences


def is_event(line: bytes, schema: int = SCHEMA) -> bool:
    """Whether a line without a newline is whole all the same."""
    try:
        decode(line, schema)
    except BadLineError:
        return False
    return True


def looks_like_conversation(reading: Reading) -> bool:
    """Whether a file is one of ours, though damaged: anything in it that we know by its type."""
    return any(not isinstance(event, Unknown) for event in reading.events)


class Journal:
    """One conversation file, open. See `AppendLog` for what happens when the disk does not do its part."""

    def __init__(self, path: Path, *, files: Files = FILES, writable: bool = True) -> None:
        self.log = AppendLog(path, files=files, writable=writable, remember=writable)

    def load(self) -> Reading:
        """Reads the file.

        Raises:
            ChatappError: It cannot be read, or it is no conversation of this program.
        """
        path = self.log.path
        try:
            data = self.log.load()
        except FileNotFoundError:
            raise ChatappError(f"There is no conversation file {path}.", "usage") from None
        except OSError as error:
            raise ChatappError(f"{path} cannot be read: {error.strerror or error}.") from error
        torn = self.log.torn
        # While another process writes, a reader may see half a line: that is no damage.
        reading = read(data, torn if self.log.writable or is_event(torn) else b"")
        if not looks_like_conversation(reading) and (data + torn).strip():
            self.log.close()
            raise ChatappError(
                f"{path} is not a conversation of chatapp. To read one of another program use: chatapp import FILE",
                "usage",
            )
        if torn and is_event(torn, reading.schema):
            self.log.accept_torn()
        return reading

    def append(self, *lines: KnownEvent, sync: bool) -> None:
        """Writes events in one go; see `AppendLog.append`."""
        self.log.append([encode(event) for event in lines], sync=sync)

    def poll(self) -> tuple[Reading, bool]:
        """What another process has written since, and whether the file must be folded anew.

        Raises:
            OSError: The file cannot be read any more.
        """
        data, replaced = self.log.poll()
        return read(data), replaced
