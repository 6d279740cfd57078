"""All conversations of a folder: making, opening, finding, copying them, and the trash."""

from __future__ import annotations

import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chatapp import paths
from chatapp.conversation import events, records
from chatapp.conversation.files import FILES, Files, write_atomically
from chatapp.conversation.index import SUFFIX, Index, Summary, is_conversation
from chatapp.conversation.journal import Journal, Reading, looks_like_conversation, read
from chatapp.conversation.lock import Lock
from chatapp.conversation.records import Records
from chatapp.conversation.reply import recover
from chatapp.conversation.rescue import Rescue
from chatapp.conversation.search import Hit, search
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.storage import Storage
from chatapp.conversation.tree import Conversation, fold
from chatapp.errors import ChatappError, UsageError

if TYPE_CHECKING:
    from chatapp.conversation.exchange.transcript import Transcript

_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")
TRASH = "trash"
OPEN_ELSEWHERE = "Another chatapp has this conversation open."


class Store:
    """A folder of conversations.

    Attributes:
        folder: One ``<id>.jsonl`` each, with ``<id>.tokens.jsonl`` beside it.
        rescue: What could not be written into the folder.
    """

    def __init__(self, folder: Path | None = None, *, files: Files = FILES) -> None:
        self.folder = folder or paths.conversations_dir()
        self._files = files
        self.rescue = Rescue(self.folder, files)

    # Making and opening ----------------------------------------------------------------------------------------

    def new(self, model: str = "", system: str = "") -> ConversationSession:
        """A new conversation. Its file is made with the first message."""
        return self._made(events.Opened(events.SCHEMA, self._new_id(), events.now(), model, events.storable(system)))

    def open(self, id: str, *, read_only: bool = False) -> ConversationSession:
        """Opens a conversation: for writing if nobody else has it open, else read-only with the reason in it.

        Args:
            id: The conversation's id (see `find` for names).
            read_only: Only look; takes no lock and recovers nothing.

        Raises:
            ChatappError: There is no such file, it cannot be read, or it is no conversation.
        """
        path = self.path_of(id)
        if not path.exists() and not self.rescue.has(path):
            raise UsageError(f"There is no conversation {id!r}; see: chatapp list")
        lock = None if read_only else Lock(path.with_suffix(".lock"), self._files)
        reason = "It was opened for reading." if read_only or lock is None else _try(lock, path)
        try:
            return self._opened(path, lock if reason is None else None, reason)
        except ChatappError:
            if lock is not None:
                lock.release()
            raise

    def look(self, id: str) -> ConversationSession:
        """Opens a conversation to look at it once: a reply that was cut off, or that another process writes, counts.

        Raises:
            ChatappError: As for `open`.
        """
        session = self.open(id, read_only=True)
        if session.conversation.partials:
            session.conversation.settle()
            session.storage.notices.append("A reply was cut off, or is being written; what there is of it is shown.")
        return session

    def _opened(self, path: Path, lock: Lock | None, reason: str | None) -> ConversationSession:
        journal = Journal(path, files=self._files, writable=reason is None)
        # Where the disk was full from the first message on, there is no file, and all of it was rescued.
        reading = journal.load() if path.exists() or not self.rescue.has(path) else Reading()
        if reason is None and not journal.log.writable:
            reason = OPEN_ELSEWHERE if journal.log.taken else f"{path.name} cannot be written to."
        if reading.newer and reason is None:
            reason = f"{path.name} was written by a later version of chatapp."
        if reason is not None:
            journal.log.only_read()
            if lock is not None:
                lock.release()
                lock = None
        conversation = fold(reading.events)
        token_path = self._records_path(path, conversation.id)
        token_records = Records(token_path, files=self._files, writable=reason is None)
        token_records.load()
        storage = Storage(journal, token_records, lock, self.rescue, read_only=reason)
        for event in storage.put_back():
            conversation.apply(event)
        session = ConversationSession(self, conversation, storage)
        if not conversation.id and not reading.events and not reading.notices:  # made just before the program ended
            session.begin_file(events.Opened(events.SCHEMA, path.stem, events.now()))
        storage.notices += reading.notices + conversation.complaints
        if reason is None:
            recover(session)
        return session

    def _made(self, first: events.Opened) -> ConversationSession:
        path = self.path_of(first.id)
        storage = Storage(
            Journal(path, files=self._files),
            Records(path.with_suffix(records.SUFFIX), files=self._files),
            Lock(path.with_suffix(".lock"), self._files),
            self.rescue,
        )
        session = ConversationSession(self, Conversation(), storage)
        session.begin_file(first)
        return session

    def add(self, transcript: Transcript) -> ConversationSession:
        """A new conversation with imported messages."""
        created = transcript.created or events.now()
        session = self._made(
            events.Opened(events.SCHEMA, self._new_id(), created, transcript.model, events.storable(transcript.system))
        )
        session.fill(transcript.messages, transcript.head, transcript.title, transcript.tokens)
        return session

    def branch(self, session: ConversationSession, id: str | None = None) -> ConversationSession:
        """A new conversation with the shown branch up to a message (None: all of it), token records included."""
        source = session.conversation
        copy = self._made(
            events.Opened(events.SCHEMA, self._new_id(), events.now(), source.model, source.system, session.id)
        )
        copies: list[events.Message] = []
        for message in source.path(id):
            parent = copies[-1].id if copies else None
            copies.append(msgspec.structs.replace(message, parent=parent, edits=None, in_place=False))
            copy.storage.records.take_over(session.storage.records, message.id)
        copy.fill(copies, None, source.title, {})
        return copy

    def fork(self, session: ConversationSession) -> ConversationSession:
        """A new conversation with every line of this one, those of unknown types too, byte for byte.

        Raises:
            ChatappError: The file cannot be read or the copy not be written.
        """
        path = session.path
        token_path = self._records_path(path, session.conversation.id)
        try:
            content, tokens = session.content(), token_path.read_bytes() if token_path.exists() else b""
        except OSError as error:
            raise ChatappError(f"{path.name} could not be copied: {error.strerror or error}.") from error
        return self.take_in(content, tokens, session.id)

    def take_in(self, content: bytes, tokens: bytes, origin: str) -> ConversationSession:
        """A new conversation with the lines of a conversation file, from wherever it is.

        Args:
            content: Of the file.
            tokens: Of the file with its token records; empty for none.
            origin: Id that the conversation had.

        Raises:
            ChatappError: The copy cannot be written.
        """
        id = self._new_id()
        lines = content.split(b"\n")
        found = _opening(lines[0])
        first = found or events.Opened(events.SCHEMA, id, events.now())
        first = msgspec.structs.replace(first, id=id, forked_from=origin)
        body = lines[1:] if found is not None else lines
        path = self.path_of(id)
        try:
            self._files.mkdir(self.folder)
            if tokens:
                write_atomically(self._files, path.with_suffix(records.SUFFIX), tokens)
            write_atomically(self._files, path, b"\n".join([events.encode(first), *body]))
        except OSError as error:
            raise ChatappError(f"{origin} could not be copied: {error.strerror or error}.") from error
        return self.open(id)

    # Finding ---------------------------------------------------------------------------------------------------

    def path_of(self, id: str) -> Path:
        """Where a conversation's file is.

        Raises:
            UsageError: The id could lead out of the folder.
        """
        if not id or Path(id).name != id or id.startswith("."):
            raise UsageError(f"{id!r} is not the id of a conversation; see: chatapp list")
        return self.folder / f"{id}{SUFFIX}"

    def ids(self) -> list[str]:
        """Ids of all conversations, the one changed last first."""
        found: list[tuple[int, str]] = []
        for path in self.files():
            with suppress(FileNotFoundError):  # removed meanwhile
                found.append((path.stat().st_mtime_ns, path.name.removesuffix(SUFFIX)))
        return [id for _, id in sorted(found, reverse=True)]

    def files(self) -> list[Path]:
        """The conversation files, in no order."""
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if is_conversation(path.name)]

    def summaries(self) -> list[Summary]:
        """All conversations for a list, the one changed last first. Takes seconds when thousands changed since."""
        self._put_back()
        return Index(self.folder).summaries()

    def search(self, query: str, *, limit: int = 50) -> list[Hit]:
        """Messages that match; see `chatapp.conversation.search` for the query language.

        Raises:
            UsageError: The query cannot be read.
        """
        self._put_back()
        return search(self.folder, query, limit=limit)

    def _put_back(self) -> None:
        """Makes the files of conversations that were rescued as a whole, where the disk has room again."""
        for id in (name.removesuffix(SUFFIX) for name in self.rescue.names() if not name.endswith(records.SUFFIX)):
            path = self.path_of(id)
            if not path.exists() or path.stat().st_size == 0:
                with suppress(ChatappError):
                    self.open(id).close()

    def find(self, name: str) -> str:
        """The id that a person means by an id, the beginning of one, a title or a part of one.

        Raises:
            UsageError: Nothing fits, or several do.
        """
        if not name:
            raise UsageError("Name a conversation by its id or title; see: chatapp list")
        self._put_back()
        ids = {path.name.removesuffix(SUFFIX) for path in self.files()}
        if name in ids:
            return name
        titles = {summary.id: summary.title.casefold() for summary in self.summaries()}
        wanted = name.casefold()
        for fitting in (
            [id for id, title in titles.items() if title == wanted],
            [id for id in titles if id.startswith(name)],
            [id for id, title in titles.items() if wanted in title],
        ):
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                some = ", ".join(sorted(fitting)[:5]) + ("…" if len(fitting) > 5 else "")
                raise UsageError(f"Several conversations fit {name!r}: {some}. Give more of the id.")
        raise UsageError(f"There is no conversation {name!r}; see: chatapp list")

    def latest(self) -> str | None:
        """Id of the conversation that was changed last. Files of other programs are passed over."""
        self._put_back()
        return next((id for id in self.ids() if self._is_ours(self.path_of(id))), None)

    def _is_ours(self, path: Path) -> bool:
        try:
            data = path.read_bytes()
        except OSError:
            return False
        return data.startswith(b'{"type":"conversation"') or looks_like_conversation(read(data + b"\n"))

    # Trash -----------------------------------------------------------------------------------------------------

    @property
    def trash(self) -> Store:
        """The conversations that were removed, as a store of their own."""
        return Store(self.folder / TRASH, files=self._files)

    def remove(self, id: str) -> None:
        """Moves a conversation to the trash.

        Raises:
            ChatappError: There is no such conversation, another process has it open, or the folder is read-only.
        """
        self._move(id, self.trash)

    def restore(self, id: str) -> None:
        """Brings a conversation back from the trash.

        Raises:
            ChatappError: It is not there, or there is a conversation of that id again.
        """
        if self.path_of(id).exists():
            raise UsageError(f"There is a conversation {id} already; remove it first.")
        self.trash._move(id, self)

    def erase(self, id: str) -> None:
        """Deletes a conversation for good. For the trash only.

        Raises:
            ChatappError: There is no such conversation, or it cannot be deleted.
        """
        with self._held(id) as path:
            for file in (*self._beside(path, id).values(), path):
                self._files.unlink(file)

    def _move(self, id: str, target: Store) -> None:
        with self._held(id) as path:
            if self.rescue.has(path):
                raise ChatappError(f"Lines of {id} could not be saved yet; open it first, when there is room.", "usage")
            self._files.mkdir(target.folder)
            new = target.path_of(target._new_id() if target.path_of(id).exists() else id)
            for suffix, file in self._beside(path, id).items():
                if file.exists():
                    self._files.replace(file, new.with_suffix(suffix))
            self._files.replace(path, new)

    @contextmanager
    def _held(self, id: str) -> Generator[Path]:
        """The file of a conversation that nobody else has open."""
        path = self.path_of(id)
        if not path.exists():
            raise UsageError(f"There is no conversation {id!r} in {self.folder}.")
        lock = Lock(path.with_suffix(".lock"), self._files)
        try:
            if not lock.take():
                raise ChatappError(f"Another chatapp has {id} open; close it there first.", "usage")
            yield path
        except OSError as error:
            raise ChatappError(f"{path} cannot be moved or deleted: {error.strerror or error}.") from error
        finally:
            lock.release()

    def _beside(self, path: Path, id: str) -> dict[str, Path]:
        """What belongs to a conversation beside its file, by ending: token records, and torn lines set aside."""
        token_path = self._records_path(path, id)
        return {
            records.SUFFIX: token_path,
            ".torn": path.with_suffix(".torn"),
            ".tokens.torn": token_path.with_suffix(".torn"),
        }

    def _records_path(self, path: Path, id: str) -> Path:
        """Beside the file by its own name, or by the id inside it if somebody renamed the file."""
        own = path.with_suffix(records.SUFFIX)
        if own.exists() or not _PLAIN.fullmatch(id):  # an id inside a file is data: it must not lead anywhere
            return own
        other = path.with_name(id + records.SUFFIX)
        return other if other.exists() else own

    def _new_id(self) -> str:
        while self.path_of(id := secrets.token_hex(5)).exists():
            pass
        return id


def _try(lock: Lock, path: Path) -> str | None:
    try:
        return None if lock.take() else OPEN_ELSEWHERE
    except OSError:
        return f"{path.parent} cannot be written to."


def _opening(line: bytes) -> events.Opened | None:
    try:
        event = events.decode(line)
    except events.BadLineError:
        return None
    return event if isinstance(event, events.Opened) else None
