"""A SQLite index of all conversations, for lists and search. It holds only what the files hold: deleting it is safe.

It is brought up to date by each use: files whose size, time or inode changed are read again.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

import regex

from chatapp import paths
from chatapp.conversation import events, journal, records
from chatapp.conversation.tree import Conversation, fold
from chatapp.errors import ChatappError

#: Of a conversation's file, after its id.
SUFFIX = ".jsonl"

#: Raised whenever the tables change; an index of another version is made again.
VERSION = 1

#: How long another process may keep the index to itself before we go on without bringing it up to date, in seconds.
PATIENCE = 5.0

#: Characters of the last message that a list shows.
PREVIEW = 200

_TABLES = """
CREATE TABLE files (
    name TEXT PRIMARY KEY, size INTEGER, mtime INTEGER, inode INTEGER,
    title TEXT, created TEXT, model TEXT, messages INTEGER, preview TEXT, readable INTEGER
);
CREATE TABLE messages (
    number INTEGER PRIMARY KEY, file TEXT, id TEXT, role TEXT, model TEXT, created TEXT, peak REAL, content TEXT
);
CREATE INDEX by_file ON messages (file);
CREATE INDEX by_peak ON messages (peak) WHERE peak IS NOT NULL;
CREATE VIRTUAL TABLE words USING fts5 (text, content='', tokenize="unicode61 remove_diacritics 2");
"""

# Scripts without spaces between words: each character is indexed as a word, and a query for several is a phrase.
_UNSPACED = regex.compile(r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])")

T = TypeVar("T")


class Summary(NamedTuple):
    """One conversation of a list.

    Attributes:
        id: Of the conversation's file.
        updated: When the file was last written, in seconds since 1970.
        messages: How many the shown branch has.
        preview: Beginning of the last message.
        readable: False for a file that is no conversation.
    """

    id: str
    title: str
    created: str
    updated: float
    model: str
    messages: int
    preview: str
    readable: bool


#: Size, time and inode of a file. A plain tuple, since ten thousand of them are made for each search.
_State = tuple[int, int, int]


class Index:
    """The index of one folder of conversations. Each call opens and closes it; any thread and process may."""

    def __init__(self, folder: Path, path: Path | None = None) -> None:
        self._folder = folder
        name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
        self._path = path or paths.cache_dir() / f"conversations-{name}.sqlite"

    def summaries(self) -> list[Summary]:
        """All conversations, the one changed last first."""
        query = "SELECT name, title, created, mtime / 1e9, model, messages, preview, readable FROM files"
        rows = self.read(lambda database: database.execute(f"{query} ORDER BY mtime DESC, name").fetchall())
        return [Summary(*row[:-1], readable=bool(row[-1])) for row in rows]

    def read(self, task: Callable[[sqlite3.Connection], T]) -> T:
        """Brings the index up to date and runs a query. A damaged index is made again; a folder without room for one
        gets an index in memory, for this call only.
        """
        try:
            return self._run(self._path, task)
        except sqlite3.OperationalError as error:
            if not self._can_be_replaced(error):
                return self._run(None, task)
        except sqlite3.DatabaseError:
            pass  # not a database, or a damaged one
        except OSError:
            return self._run(None, task)
        try:
            self._remove()
            return self._run(self._path, task)
        except (sqlite3.DatabaseError, OSError):
            return self._run(None, task)

    def _run(self, path: Path | None, task: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with _opened(path) as database:
                self._refresh(database)
                return task(database)
        except sqlite3.OperationalError as error:
            if "fts5" in str(error):
                raise ChatappError("This Python's SQLite has no FTS5, which lists and search need.") from error
            raise

    @staticmethod
    def _can_be_replaced(error: sqlite3.OperationalError) -> bool:
        """Whether the fault is in the tables; a full disk, a lock or a missing permission stay as they are."""
        return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _refresh(self, database: sqlite3.Connection) -> None:
        here = self._states()
        if here == _known(database):
            return
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                return  # another process has been at it for a while: what is there serves
            raise
        with database:
            known = _known(database)
            for name in known.keys() - here.keys():
                _forget(database, name)
            # The file changed last is indexed last: numbers grow with time, and a search can walk from the newest back.
            for _, name in sorted((s[1], name) for name, s in here.items() if known.get(name) != s):
                _forget(database, name)
                self._add(database, name, here[name])

    def _states(self) -> dict[str, _State]:
        states: dict[str, _State] = {}
        try:
            entries = os.scandir(self._folder)
        except FileNotFoundError:
            return states
        with entries:
            for entry in entries:
                if is_conversation(entry.name):
                    try:
                        found = entry.stat()
                    except FileNotFoundError:
                        continue
                    states[entry.name.removesuffix(SUFFIX)] = (found.st_size, found.st_mtime_ns, found.st_ino)
        return states

    def _add(self, database: sqlite3.Connection, name: str, state: _State) -> None:
        conversation, readable = self._conversation(name)
        shown = conversation.path()
        preview = shown[-1].content[:PREVIEW] if shown else ""
        database.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (name, *state, conversation.title, conversation.created, conversation.model, len(shown), preview, readable),
        )
        for message in conversation.messages.values():
            if message.id in conversation.view.hidden:
                continue
            row = (
                name,
                message.id,
                message.role,
                message.model,
                message.created,
                message.peak_entropy,
                message.content,
            )
            number = database.execute(
                "INSERT INTO messages (file, id, role, model, created, peak, content) VALUES (?, ?, ?, ?, ?, ?, ?)", row
            ).lastrowid
            database.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (number, spaced(message.content)))

    def _conversation(self, name: str) -> tuple[Conversation, bool]:
        try:
            data = (self._folder / f"{name}.jsonl").read_bytes()
        except OSError:
            return Conversation(), False
        whole = data.rfind(b"\n") + 1
        reading = journal.read(data[:whole], data[whole:])
        conversation = fold(reading.events)
        conversation.settle()
        return conversation, journal.looks_like_conversation(reading)


def is_conversation(name: str) -> bool:
    """Whether a file is a conversation by its name. One whose name is no UTF-8 cannot be named by anybody."""
    if not name.endswith(SUFFIX) or name.endswith(records.SUFFIX) or name.startswith("."):
        return False
    return name.isascii() or events.storable(name) == name


def spaced(text: str) -> str:
    """Text as it is indexed and asked for: characters of scripts without spaces stand alone."""
    return _UNSPACED.sub(r" \1 ", text)


def _known(database: sqlite3.Connection) -> dict[str, _State]:
    rows = database.execute("SELECT name, size, mtime, inode FROM files")
    return {name: (size, mtime, inode) for name, size, mtime, inode in rows}


def _forget(database: sqlite3.Connection, name: str) -> None:
    rows = database.execute("SELECT number, content FROM messages WHERE file = ?", (name,)).fetchall()
    database.executemany(
        "INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)", ((n, spaced(text)) for n, text in rows)
    )
    database.execute("DELETE FROM messages WHERE file = ?", (name,))
    database.execute("DELETE FROM files WHERE name = ?", (name,))


@contextmanager
def _opened(path: Path | None) -> Generator[sqlite3.Connection]:
    if path is not None and not path.exists():
        path.touch(mode=0o600)
    database = sqlite3.connect(path or ":memory:", timeout=PATIENCE)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")  # a damaged index is made again
        if not _is_current(database):
            database.execute("BEGIN IMMEDIATE")
            with database:
                if not _is_current(database):  # nobody else made them meanwhile
                    _make_tables(database)
        yield database
    finally:
        database.close()


def _is_current(database: sqlite3.Connection) -> bool:
    return database.execute("PRAGMA user_version").fetchone()[0] == VERSION


def _make_tables(database: sqlite3.Connection) -> None:
    for (name,) in database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('files', 'messages', 'words')"
    ).fetchall():
        database.execute(f"DROP TABLE {name}")
    for statement in _TABLES.split(";\n"):
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {VERSION}")
