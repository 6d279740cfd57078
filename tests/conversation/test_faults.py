"""Every system call of the writer fails once, or from then on: what was acknowledged is never lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from chatapp.conversation.lock import Lock
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError

from .helpers import FaultyFiles, contents, reply

CODES = [errno.ENOSPC, errno.EIO, errno.EROFS]


def script(session: ConversationSession, acknowledged: list[str]) -> None:
    """A conversation of some turns; notes each text once the session says that it is on disk."""
    written: list[str] = []
    session.clock = iter(range(0, 1000, 5)).__next__  # each piece of a reply is written down as it comes
    for number in range(3):
        written.append(session.add_message("user", f"question {number}").content)
        _note(session, written, acknowledged)
        written.append(session.conversation.messages[reply(session, f"answer {number}", "!")].content)
        _note(session, written, acknowledged)


def _note(session: ConversationSession, written: list[str], acknowledged: list[str]) -> None:
    if session.trouble is None:
        acknowledged[:] = written


ALL = [text for n in range(3) for text in (f"question {n}", f"answer {n}!")]


def calls_of(store: Store, before: Callable[[Store], str | None] = lambda store: None) -> int:
    files = FaultyFiles()
    faulty = Store(store.folder, files=files)
    id = before(store)
    session = faulty.open(id) if id else faulty.new()
    script(session, [])
    session.close()
    return len(files.calls)


def torn_file(store: Store) -> str:
    """A file whose last line is cut: the writer must set it aside first."""
    session = store.new()
    session.add_message("user", "before")
    session.close()
    with session.path.open("ab") as file:
        file.write(b'{"type":"message","id":"zz","par')
    return session.id


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("before", [lambda store: None, torn_file], ids=["new", "torn"])
def test_a_fault_at_any_system_call_loses_nothing_acknowledged(store, code, lasting, before):
    count = calls_of(store, before)
    assert count > 20
    for fail_at in range(1, count + 1):
        files = FaultyFiles(fail_at, code, lasting=lasting)
        faulty = Store(store.folder, files=files)
        id = before(store)
        acknowledged: list[str] = []
        try:
            session = faulty.open(id) if id else faulty.new()
        except ChatappError:
            continue  # refused in a sentence; the file is as it was
        if session.read_only:
            session.close()
            continue
        start = ["before"] if id else []
        script(session, acknowledged)
        assert contents(session) == start + ALL  # shown all the same

        # If the process ended now, only what is in the file would count.
        saved = start + acknowledged
        if saved:
            reader = store.open(session.id, read_only=True)
            assert contents(reader)[: len(saved)] == saved
            reader.close()

        # The disk recovers: what waited in memory is written.
        files.healed = True
        assert session.retry()
        assert session.trouble is None
        session.close()
        again = store.open(session.id)
        assert contents(again) == start + ALL, files.calls[fail_at - 1]
        for message in again.conversation.path():
            records = again.tokens(message.id)
            assert "".join(record.text for record in records) == (message.content if message.model else "")
        again.close()


def test_short_writes_are_completed(store):
    session = Store(store.folder, files=FaultyFiles(short=True)).new()
    script(session, [])
    session.close()
    again = store.open(session.id)
    assert contents(again) == ALL
    assert again.notices == []
    assert [t.text for t in again.tokens(again.conversation.path()[1].id)] == ["answer 0", "!"]


def test_a_full_disk_is_said_and_what_waits_is_counted(store):
    files = FaultyFiles()
    session = Store(store.folder, files=files).new()
    session.add_message("user", "saved")
    files.fail_at, files.lasting = len(files.calls) + 1, True
    session.add_message("user", "kept")
    assert session.trouble is not None
    assert session.trouble.startswith("The disk is full: 1 line waits in memory")
    assert contents(session) == ["saved", "kept"]
    files.healed = True
    session.add_message("user", "third")
    assert session.trouble is None
    assert contents(store.open(session.id, read_only=True)) == ["saved", "kept", "third"]


def test_after_a_failed_fsync_the_file_is_written_anew(store):
    """The system may report the next fsync as good although the data is gone: the old file is not trusted again."""
    files = FaultyFiles()
    session = Store(store.folder, files=files).new()
    session.add_message("user", "one")
    inode = session.path.stat().st_ino
    ahead = _next(files, session, "sync")
    files.fail_at, files.code = len(files.calls) + 1 + ahead, errno.EIO
    session.add_message("user", "two")
    assert session.trouble is not None
    assert session.retry()
    assert session.path.stat().st_ino != inode
    assert contents(store.open(session.id, read_only=True)) == ["one", "probe", "two"]


def _next(files: FaultyFiles, session: ConversationSession, name: str) -> int:
    """How many calls come before the named one when a message is added."""
    start = len(files.calls)
    session.add_message("user", "probe")
    return files.calls[start:].index(name)


def test_what_is_moved_is_on_the_device_before_it_is_cut_off_or_takes_a_place(store):
    """As after a power cut: the order of the calls is all that can be seen of it."""
    files = FaultyFiles()
    session = Store(store.folder, files=files).open(torn_file(store))
    session.add_message("user", "two")
    moved = files.calls[: files.calls.index("truncate")]
    assert moved[len(moved) - 1 - moved[::-1].index("write") :] == ["write", "sync"]
    session.path.unlink()
    session.add_message("user", "three")
    place = files.calls.index("replace")
    assert files.calls[place - 2 : place + 2] == ["write", "sync", "replace", "sync_folder"]


def test_a_lock_file_that_is_removed_between_opening_and_locking_guards_nothing(tmp_path):
    path = tmp_path / "x.lock"
    first, third = Lock(path), Lock(path)
    assert first.take()

    class Late(FaultyFiles):
        def lock(self, fd: int) -> None:
            if not self.calls.count("stat"):  # the file that was opened just now goes, and another process comes
                first.release()
                assert third.take()
            super().lock(fd)

    assert not Lock(path, Late()).take()
    third.release()
    assert Lock(path).take()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_opens_read_only(store):
    session = store.new()
    session.add_message("user", "A")
    session.close()
    store.folder.chmod(0o500)
    try:
        again = store.open(session.id)
        assert again.read_only is not None
        assert "cannot be written to" in again.read_only
        assert contents(again) == ["A"]
    finally:
        store.folder.chmod(0o700)


def test_a_deleted_file_is_written_again_and_told(store):
    session = store.new()
    session.add_message("user", "one")
    session.path.unlink()
    session.add_message("user", "two")
    assert session.trouble is None
    assert any("deleted" in notice for notice in session.notices)
    session.close()
    assert contents(store.open(session.id)) == ["one", "two"]


def test_a_renamed_file_goes_on_under_its_new_name(store):
    session = store.new()
    session.add_message("user", "one")
    answer = reply(session, "x")
    session.path.rename(store.folder / "renamed.jsonl")
    session.add_message("user", "two")
    assert any("renamed" in notice for notice in session.notices)
    session.close()
    again = store.open("renamed")
    assert contents(again) == ["one", "x", "two"]
    assert [t.text for t in again.tokens(answer)] == ["x"]  # found by the id inside the file


def test_a_deleted_folder_is_made_again(store, tmp_path):
    store = Store(tmp_path / "folder")
    store.folder.mkdir()
    session = store.new()
    session.add_message("user", "one")
    for path in store.folder.iterdir():
        path.unlink()
    store.folder.rmdir()
    session.add_message("user", "two")
    assert session.trouble is None
    assert contents(store.open(session.id, read_only=True)) == ["one", "two"]


def test_a_file_that_another_one_replaced_is_not_touched(store):
    session = store.new()
    session.add_message("user", "one")
    other = store.folder / "other"
    other.write_text("mine\n")
    other.replace(session.path)
    stranger = store.folder / f"{session.id}.jsonl"
    session.add_message("user", "two")
    assert stranger.read_text() == "mine\n"
    assert session.path != stranger
    assert any(session.path.name in notice for notice in session.notices)
    assert contents(store.open(session.path.stem, read_only=True)) == ["one", "two"]


def test_a_file_that_was_cut_short_from_outside_goes_on_elsewhere_whole(store):
    session = store.new()
    session.add_message("user", "one")
    old = session.path
    os.truncate(old, 10)
    session.add_message("user", "two")
    assert old.stat().st_size == 10
    assert contents(store.open(session.path.stem, read_only=True)) == ["one", "two"]


def test_lines_that_another_program_added_stay(store):
    session = store.new()
    session.add_message("user", "one")
    with session.path.open("ab") as file:
        file.write(b'{"type":"note","text":"by hand"}')
    session.add_message("user", "two")
    assert b'{"type":"note","text":"by hand"}\n' in session.path.read_bytes()
    assert any("Another program wrote" in notice for notice in session.notices)
    assert contents(store.open(session.id, read_only=True)) == ["one", "two"]
