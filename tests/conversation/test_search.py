"""Search and its index: what is found, and that the index is only ever a copy of the files."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chatapp.conversation.index import Index
from chatapp.conversation.search import excerpt, parse, search
from chatapp.conversation.store import Store
from chatapp.errors import UsageError

from .helpers import reply, token


@pytest.fixture
def index(store: Store, tmp_path: Path) -> Index:
    return Index(store.folder, tmp_path / "index.sqlite")


def made(store: Store, *texts: str, title: str = "") -> str:
    """A conversation of these messages, by turns of the person and of the model."""
    session = store.new("tiny-model")
    for number, text in enumerate(texts):
        if number % 2 == 0:
            session.add_message("user", text)
        else:
            reply(session, text)
    if title:
        session.rename(title)
    session.close()
    return session.id


def found(store: Store, index: Index, query: str) -> set[str]:
    return {hit.excerpt for hit in search(store.folder, query, index=index)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cache", {"The rotating cache is exact", "CACHE rotating"}),
        ("Rotating Cache", {"The rotating cache is exact", "CACHE rotating"}),
        ('"rotating cache"', {"The rotating cache is exact"}),
        ("rotat*", {"The rotating cache is exact", "CACHE rotating"}),
        ("cache -exact", {"CACHE rotating"}),
        ("cache role:user", {"CACHE rotating"}),
        ("cache -role:user", {"The rotating cache is exact"}),
        ("role:assistant model:TINY cache", {"The rotating cache is exact"}),
        ("title:tea grüner", {"Grüner Tee: 80 °C"}),
        ("title:coffee grüner", set()),
        ("gruner", {"Grüner Tee: 80 °C"}),
        ("-cache role:user", {"How is it?", "Grüner Tee: 80 °C", "東京の天気は?", "it's 50% <b>AND</b> NEAR(x) OR"}),
        ("東京", {"東京の天気は?"}),
        ("天気", {"東京の天気は?"}),
        ("京東", set()),
        ("it's 50% AND near", {"it's 50% <b>AND</b> NEAR(x) OR"}),
        ('"NEAR(x) OR"', {"it's 50% <b>AND</b> NEAR(x) OR"}),
        ('unbalanced "quote', set()),
        ("model:tiny entropy>0.4 -cache", {"Fine"}),
    ],
)
def test_the_query_language(store, index, query, expected):
    made(store, "How is it?", "The rotating cache is exact", "CACHE rotating", "Fine")
    made(store, "Grüner Tee: 80 °C", title="About tea")
    made(store, "東京の天気は?")
    made(store, "it's 50% <b>AND</b> NEAR(x) OR")
    assert found(store, index, query) == expected


def test_by_uncertainty(store, index):
    session = store.new("m")
    session.add_message("user", "q")
    for peak in (0.5, 2.0, 3.5):
        writer = session.begin_reply(parent=session.conversation.path()[0].id, model="m")
        writer.append([token("low", entropy=0.1), token(f" {peak}", entropy=peak)])
        writer.finish("stop")
    session.close()
    assert found(store, index, "entropy>3") == {"low 3.5"}
    assert found(store, index, "entropy>=2 role:assistant") == {"low 2.0", "low 3.5"}
    assert found(store, index, "entropy<1") == {"low 0.5"}
    assert found(store, index, "-entropy>3") == {"q", "low 0.5", "low 2.0"}


def test_by_date(store, index, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for month in ("01", "02", "03"):
        monkeypatch.setattr("chatapp.conversation.events.now", lambda month=month: f"2026-{month}-15T10:00:00.000Z")
        made(store, f"written in {month}")
    assert found(store, index, "after:2026-02") == {"written in 02", "written in 03"}
    assert found(store, index, "before:2026-02-15") == {"written in 01"}
    assert found(store, index, "after:2026-01-16 before:2026-03 written") == {"written in 02"}
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "query",
    ["", "  ", '""', "role:", "before:soon", "after:2026-13", "after:0", "entropy>", "entropy>x", "entropy>nan", "?!"],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(query):
    with pytest.raises(UsageError):
        parse(query)


def test_any_text_can_be_searched_for(store, index):
    made(store, "something")
    chance = random.Random(5)
    alphabet = "\"'*^:()-+{}[]~ab AND OR NEAR\0\ud800é東\n"
    for _ in range(500):
        query = "".join(chance.choices(alphabet, k=chance.randint(1, 12)))
        with contextlib.suppress(UsageError):
            search(store.folder, query, index=index)


def test_deleted_messages_are_not_found_and_old_alternatives_are(store, index):
    session = store.new()
    first = session.add_message("user", "alpha").id
    session.edit(first, "beta")
    assert found(store, index, "alpha") == {"alpha"}
    session.delete(first)
    assert found(store, index, "alpha") == set()
    session.undo()
    assert found(store, index, "alpha") == {"alpha"}
    session.close()


def test_new_changed_and_removed_files_are_noticed(store, index):
    one = made(store, "first words")
    assert found(store, index, "words") == {"first words"}
    made(store, "second words")
    session = store.open(one)
    session.add_message("user", "third words")
    session.close()
    assert found(store, index, "words") == {"first words", "second words", "third words"}
    store.remove(one)
    assert found(store, index, "words") == {"second words"}
    assert [s.preview for s in index.summaries()] == ["second words"]


def test_the_latest_conversation_comes_first(store, index):
    ids = [made(store, f"same {n}") for n in range(3)]
    assert [s.id for s in index.summaries()] == ids[::-1]
    assert [hit.conversation for hit in search(store.folder, "same", index=index)] == ids[::-1]


@pytest.mark.parametrize("damage", ["missing", "garbage", "cut", "old", "flipped", "tables"])
def test_a_damaged_index_is_made_again(store, index, tmp_path, damage):
    made(store, *(f"words {n} " + "filler " * 50 for n in range(40)))
    assert len(index.summaries()) == 1
    path = tmp_path / "index.sqlite"
    data = bytearray(path.read_bytes())
    assert len(data) > 8192
    match damage:
        case "missing":
            path.unlink()
        case "garbage":
            path.write_bytes(b"not a database" * 1000)
        case "cut":
            path.write_bytes(data[:5000])
        case "flipped":
            for place in range(4096, len(data), 7):
                data[place] ^= 0xFF
            path.write_bytes(data)
        case _:
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 99" if damage == "old" else "DROP TABLE messages")
            database.close()
    assert len(search(store.folder, "words", limit=100, index=index)) == 40


def test_a_read_only_cache_folder_does_not_stop_the_search(store, tmp_path):
    made(store, "words")
    index = Index(store.folder, tmp_path / "missing" / "folder" / "index.sqlite")
    assert found(store, index, "words") == {"words"}


def test_damaged_and_foreign_files_are_listed_as_what_they_are(store, index):
    made(store, "words")
    (store.folder / "foreign.jsonl").write_bytes(b"\x00\xff not ours\n")
    (store.folder / "half.jsonl").write_bytes(
        b'{"type":"message","id":"m","parent":null,"role":"user","content":"half"}\n{"ty'
    )
    assert {s.id: s.readable for s in index.summaries()}["foreign"] is False
    assert found(store, index, "half") == {"half"}


def test_two_uses_of_the_index_at_once(store, index, tmp_path):
    made(store, "words")
    other = Index(store.folder, tmp_path / "index.sqlite")
    assert index.read(lambda _: found(store, other, "words")) == {"words"}


def test_many_processes_make_and_use_the_index_at_once(store, tmp_path):
    for number in range(30):
        made(store, f"words {number}", "and more words")
    path = tmp_path / "index.sqlite"

    def task(_: int) -> int:
        return len(search(store.folder, "words", limit=100, index=Index(store.folder, path)))

    with ThreadPoolExecutor(8) as pool:  # SQLite locks connections against each other as it does processes
        assert set(pool.map(task, range(24))) == {60}


def test_while_another_process_holds_the_index_what_is_there_serves(store, index, tmp_path, monkeypatch):
    made(store, "words")
    assert found(store, index, "words") == {"words"}
    made(store, "newer words")
    holder = sqlite3.connect(tmp_path / "index.sqlite")
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("chatapp.conversation.index.PATIENCE", 0.05)
    assert found(store, index, "words") == {"words"}
    holder.close()
    assert found(store, index, "words") == {"words", "newer words"}


def test_excerpts_are_cut_around_the_word():
    text = "x " * 200 + "needle\nin  hay " + "y " * 200
    piece = excerpt(text, ["needle"])
    assert "needle in hay" in piece
    assert piece.startswith("…")
    assert piece.endswith("…")
    assert len(piece) < 170


def test_excerpts_of_scripts_without_spaces_show_the_word(store, index):
    made(store, "あ" * 300 + "東京" + "い" * 300)
    [hit] = search(store.folder, "東京", index=index)
    assert "東京" in hit.excerpt
