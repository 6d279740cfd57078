"""What a full disk does not take before the program ends is kept elsewhere, and comes back."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from chatapp.conversation.rescue import places
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError

from .helpers import FaultyFiles, contents, reply


class FullDisk(FaultyFiles):
    """Nothing more can be written into one folder once ``full`` is set; other places have room."""

    def __init__(self, *folders: Path) -> None:
        super().__init__()
        self.folders, self.full = folders, False
        self._names: dict[int, Path] = {}

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._names[fd] = path
        return fd

    def write(self, fd: int, data: bytes) -> int:
        if self.full and self._is_there(self._names[fd]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data)

    def _is_there(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.folders)


@pytest.fixture
def disk(store):
    return FullDisk(store.folder)


def filled(store, disk):
    """A session with a turn on the disk and one that it did not take."""
    session = Store(store.folder, files=disk).new("tiny")
    session.add_message("user", "one")
    reply(session, "first", " answer")
    disk.full = True
    session.add_message("user", "two")
    reply(session, "second", " answer")
    return session


ALL = ["one", "first answer", "two", "second answer"]


def rescue_files():
    return [path for place in places() for path in place().rglob("*.jsonl")]


def test_lines_that_waited_come_back_with_a_notice(store, disk):
    session = filled(store, disk)
    last = session.conversation.head
    assert session.unsaved == 3  # two messages and a line of token records
    said = session.close()
    assert "3 lines of “one” could not be saved" in said
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in rescue_files())

    again = store.open(session.id)
    assert contents(again) == ALL
    assert [token.text for token in again.tokens(last)] == ["second", " answer"]
    assert again.notices == ["What could not be saved before the program ended is here again."]
    assert rescue_files() == []
    assert again.close() is None
    assert contents(store.open(session.id, read_only=True)) == ALL


def test_records_alone_that_waited_come_back_with_a_notice(store, disk):
    session = Store(store.folder, files=disk).new("tiny")
    session.add_message("user", "one")
    disk.folders, disk.full = (session.path.with_suffix(".tokens.jsonl"),), True
    id = reply(session, "an", " answer")
    assert "1 line of" in session.close()
    again = store.open(session.id)
    assert [token.text for token in again.tokens(id)] == ["an", " answer"]
    assert again.notices == ["What could not be saved before the program ended is here again."]


def test_while_the_disk_stays_full_nothing_is_lost(store, disk):
    session = filled(store, disk)
    session.close()
    again = Store(store.folder, files=disk).open(session.id)
    assert contents(again) == ALL
    assert again.trouble is not None
    again.add_message("user", "three")
    assert again.close() is not None
    assert contents(store.open(session.id, read_only=True)) == [*ALL, "three"]
    assert contents(store.open(session.id)) == [*ALL, "three"]


@pytest.mark.parametrize("empty", [False, True], ids=["no file", "empty file"])
def test_a_conversation_of_which_nothing_was_written_comes_back(store, disk, empty):
    disk.full = True
    session = Store(store.folder, files=disk).new("tiny")
    session.add_message("user", "never on the disk")
    reply(session, "nor this")
    session.close()
    session.path.unlink()
    if empty:
        session.path.touch()
    assert [(s.title, s.messages) for s in store.summaries()] == [("never on the disk", 2)]
    assert contents(store.open(session.id)) == ["never on the disk", "nor this"]
    assert rescue_files() == []


@pytest.mark.parametrize("written", [0, 1, 2])
def test_lines_put_back_in_part_are_not_put_back_twice(store, disk, written):
    session = filled(store, disk)
    session.close()
    (kept,) = (path for path in rescue_files() if not path.name.endswith(".tokens.jsonl"))
    lines = kept.read_bytes().split(b"\n")[1:-1]
    assert len(lines) == 2
    with session.path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines[:written]))
    assert contents(store.open(session.id)) == ALL
    assert session.path.read_bytes().count(b'"type":"message"') == len(ALL)


def test_lines_that_could_not_be_synced_are_rescued_too(store, monkeypatch):
    files = FaultyFiles()
    session = Store(store.folder, files=files).new()
    session.add_message("user", "one")
    monkeypatch.setattr(files, "sync", lambda fd: (_ for _ in ()).throw(OSError(errno.EIO, "bad")))
    session.add_message("user", "two")
    assert session.unsaved == 1
    at, lines = session.storage.journal.log.waiting
    monkeypatch.undo()
    assert session.path.read_bytes()[at:] == b"".join(lines)


def test_where_no_place_has_room_it_is_said(store, tmp_path):
    disk = FullDisk(Path("/"))
    session = filled(store, disk)
    assert "lost" in session.close()


def test_a_folder_that_others_may_write_to_is_not_trusted(store, disk, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    disk.folders = (store.folder, places()[0]())
    session = filled(store, disk)
    places()[1]().mkdir(mode=0o777)
    places()[1]().chmod(0o777)
    assert "lost" in session.close()
    places()[1]().chmod(0o700)


def test_the_folder_for_temporary_files_is_the_second_choice(store, disk, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    disk.folders = (store.folder, places()[0]())
    session = filled(store, disk)
    session.close()
    assert list(tmp_path.rglob("*.jsonl"))
    assert contents(store.open(session.id)) == ALL
    assert rescue_files() == []


def test_a_conversation_with_rescued_lines_is_not_thrown_away_without_them(store, disk):
    session = filled(store, disk)
    session.close()
    with pytest.raises(ChatappError, match="open it first"):
        store.remove(session.id)
    store.open(session.id).close()
    store.remove(session.id)
    store.restore(session.id)
    assert contents(store.open(session.id)) == ALL
