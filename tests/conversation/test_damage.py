"""Damaged files: opened all the same, the damage named, the original unchanged until something is written."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import get_args

import pytest

from chatapp.conversation import events
from chatapp.conversation.exchange import registry
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError

from .helpers import contents, reply


def sample(store: Store) -> bytes:
    session = store.new("tiny", "system")
    first = session.add_message("user", "Grüße 👋").id
    answer = reply(session, "Hel", "lo")
    session.add_message("user", "more")
    reply(session, "Yes")
    session.edit(answer, "Help", keep_following=True)
    session.edit(first, "Hi")
    session.undo()
    session.delete(answer)
    session.set_settings({"heat": "both"})
    session.close()
    return session.path.read_bytes()


def put(store: Store, data: bytes, name: str = "broken") -> str:
    (store.folder / f"{name}.jsonl").write_bytes(data)
    return name


def test_every_prefix_of_a_file_is_a_valid_conversation(store):
    data = sample(store)
    for end in range(1, len(data) + 1):
        try:
            session = store.open(put(store, data[:end]), read_only=True)
        except ChatappError:
            assert b"\n" not in data[:end]  # not even the first line is whole
            continue
        shown = contents(session)
        session.close()
    assert shown == ["Grüße 👋", "Help", "more", "Yes"]


def test_a_torn_last_line_is_set_aside_and_reported_with_its_number(store):
    data = sample(store)
    whole = data[: data.rfind(b"\n", 0, -1) + 1]
    torn = b'{"type":"message","id":"abc","conte'
    session = store.open(put(store, whole + torn))
    assert session.notices == [f"Line {whole.count(10) + 1} was cut off in the middle and is set aside."]
    assert (store.folder / "broken.jsonl").read_bytes() == whole + torn  # nothing is changed by looking
    session.add_message("user", "on")
    assert (store.folder / "broken.torn").read_bytes() == torn + b"\n"
    assert (store.folder / "broken.jsonl").read_bytes().startswith(whole + b'{"type":"message"')
    session.close()
    assert store.open("broken").notices == []


def test_a_last_line_that_lacks_only_its_newline_is_kept(store):
    session = store.new()
    session.add_message("user", "one")
    last = session.add_message("user", "two")
    session.close()
    session = store.open(put(store, session.path.read_bytes().rstrip(b"\n")))
    assert session.notices == []
    session.add_message("user", "three")
    session.close()
    again = store.open("broken")
    assert contents(again) == ["one", "two", "three"]
    assert last.id in again.conversation.messages
    assert not (store.folder / "broken.torn").exists()


def test_garbage_in_the_middle_is_skipped_and_reported_with_its_lines(store):
    lines = sample(store).split(b"\n")
    lines[4:4] = [
        b"\xff\xfe garbage",
        b"[1, 2",
        b'{"type":"message","id":5}',
        b'{"type":"message","id":"x","parent":null}',
    ]
    session = store.open(put(store, b"\n".join(lines)))
    assert contents(session) == ["Grüße 👋", "Help", "more", "Yes"]
    assert session.notices[0] == "Lines 5 to 6: each is not a line of a conversation and was skipped."
    assert session.notices[1].startswith("Line 7 is a message line with a wrong field (")
    assert session.notices[2].startswith("Line 8 is a message line with a wrong field (")
    session.add_message("user", "on")
    assert b"\xff\xfe garbage\n" in session.path.read_bytes()


@pytest.mark.parametrize("tail", [b"\0" * 300, b"\0" * 300 + b"\n"])
def test_nuls_at_the_end_are_reported_and_writing_goes_on(store, tail):
    session = store.open(put(store, sample(store) + tail))
    assert len(session.notices) == 1
    session.add_message("user", "on")
    session.close()
    assert contents(store.open("broken"))[-1] == "on"


def test_a_lost_line_leaves_what_followed_in_place_and_says_so(store):
    lines = sample(store).split(b"\n")
    first = next(i for i, line in enumerate(lines) if b'"more"' in line)
    lines[first] = b"garbage"
    session = store.open(put(store, b"\n".join(lines)))
    assert contents(session) == ["Grüße 👋", "Help", "Yes"]
    assert any("is missing" in notice for notice in session.notices)


def test_two_files_glued_together_are_one_conversation_and_both_are_there(store):
    one, two = sample(store), sample(store)
    session = store.open(put(store, one + two))
    texts = [message.content for message in session.conversation.messages.values()]
    assert texts.count("Yes") == 2
    assert any("second conversation" in notice for notice in session.notices)


def test_unknown_events_are_preserved_byte_for_byte(store):
    lines = sample(store).split(b"\n")
    strange = b'{"type" : "sticker",  "id":"\\u0041", "deep":{"a":[1,2.50]}}'
    lines.insert(3, strange)
    session = store.open(put(store, b"\n".join(lines)))
    assert session.notices == []
    session.add_message("user", "on")
    assert strange + b"\n" in session.path.read_bytes()
    fork = session.fork()
    assert strange + b"\n" in fork.path.read_bytes()


def test_a_file_of_a_newer_schema_opens_read_only(store):
    data = sample(store).replace(b'"schema":1', b'"schema":99', 1)
    session = store.open(put(store, data))
    assert session.read_only == "broken.jsonl was written by a later version of chatapp."
    assert contents(session) == ["Grüße 👋", "Help", "more", "Yes"]
    assert session.path.read_bytes() == data


def test_migrations_are_applied_in_order_from_the_files_schema():
    migrations = (
        lambda line: line | {"content": line.pop("text")} if "text" in line else line,
        lambda line: line | {"role": "assistant"} if line.get("role") == "bot" else line,
    )
    old = json.dumps({"type": "message", "id": "a", "parent": None, "role": "bot", "text": "Hi"}).encode()
    expected = events.Message("a", None, "assistant", "Hi")
    assert events.decode(old, 1, migrations) == expected
    newer = events.encode(expected).replace(b"assistant", b"bot")
    assert events.decode(newer, 2, migrations) == expected
    with pytest.raises(events.BadLineError):
        events.decode(b"[1]", 1, migrations)


@pytest.mark.parametrize(
    "data",
    [b"", b"\n\n", b"hello\n", b"\x7fELF\x02\x01\x01" + b"\0" * 100, b"[" * 100_000, b'[{"role":"user","content":"x"}]',
     b'{"a":1}\n{"type":5}\n', "\ufeffHi\n".encode("utf-16"), b"{" * 50_000 + b"\n"],
)  # fmt: skip
def test_files_of_other_programs_are_refused_with_a_sentence_or_are_empty(store, data):
    name = put(store, data)
    if data.strip():
        with pytest.raises(ChatappError, match="not a conversation"):
            store.open(name)
    else:
        session = store.open(name)
        assert contents(session) == []
        session.close()
    assert (store.folder / f"{name}.jsonl").read_bytes() == data


def test_an_empty_file_becomes_a_conversation_with_the_first_message(store):
    session = store.open(put(store, b""))
    session.add_message("user", "Hi")
    session.close()
    assert b'"type":"conversation","schema":1,"id":"broken"' in session.path.read_bytes()
    assert contents(store.open("broken")) == ["Hi"]


@pytest.mark.parametrize("id", ["../../evil", "x" * 5000, "a\0b", "", "."])
def test_an_id_inside_a_file_leads_nowhere(store, id):
    first = events.encode(events.Opened(1, id, ""))
    message = events.encode(events.Message("m", None, "user", "Hi"))
    session = store.open(put(store, first + b"\n" + message + b"\n"))
    assert session.id == "broken"
    reply(session, "ok")
    session.close()
    names = {path.name for path in store.folder.iterdir()}
    assert names == {"broken.jsonl", "broken.tokens.jsonl"}


def damaged(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """One to four of: a cut, a splice, flipped bits, NULs, lines of another program, lines mixed up."""
    for _ in range(chance.randint(1, 4)):
        a, b = sorted(chance.choices(range(len(data) + 1), k=2))
        match chance.randint(0, 7):
            case 0:
                data = data[:a]
            case 1:
                data = data[:a] + data[b:]
            case 2:
                data = data[:a] + other[chance.randrange(len(other)) :] + data[b:]
            case 3:
                flipped = bytearray(data)
                for place in chance.choices(range(len(data)), k=8) if data else []:
                    flipped[place] ^= 1 << chance.randrange(8)
                data = bytes(flipped)
            case 4:
                data = data[:a] + b"\0" * chance.randint(1, 400) + data[b:]
            case 5:
                data = (
                    data[:a]
                    + chance.choice([b"\n", b"\r\n", b'"', b"{" * 900, b"\\ud800", b"\xff", b"null"])
                    + data[a:]
                )
            case 6:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                data = b"\n".join(lines)
            case _:
                data = data[:b] + data[a:]
    return data


@pytest.mark.timeout(900)
def test_fuzzed_files_open_or_are_refused_and_are_never_changed(store):
    count = 10_000
    chance = random.Random(count)
    growing = [events.Partial("p", "gro", None, model="tiny", given=1), events.Partial("p", "wing")]
    ours = sample(store) + b"".join(events.encode(line) + b"\n" for line in growing)
    others = [
        sample(store),
        json.dumps([{"role": "user", "content": "Hi"}] * 3, indent=1).encode(),
        b"# Title\n\n- a\n",
    ]
    opened = 0
    for _ in range(count):
        data = damaged(chance, ours, chance.choice(others))
        name = put(store, data)
        try:
            session = store.look(name)
        except ChatappError:
            pass
        else:
            opened += 1
            conversation = session.conversation
            assert all(message.content is not None for message in conversation.path())
            for message in conversation.messages.values():
                assert message in conversation.siblings(message.id)
                conversation.leaf_under(message.id)
            if all(message.role in ("user", "assistant") for message in conversation.path()):
                session.turns("tiny")
            session.close()
        assert (store.folder / f"{name}.jsonl").read_bytes() == data
    assert opened > count / 2


def test_fuzzed_files_can_be_written_on(store):
    chance = random.Random(1)
    ours = sample(store)
    for number in range(300):
        name = put(store, damaged(chance, ours, ours), f"f{number}")
        try:
            session = store.open(name)
        except ChatappError:
            continue
        if session.read_only:
            session.close()
            continue
        session.add_message("user", "marker")
        before = contents(session)
        session.close()
        again = store.open(name)
        assert contents(again) == before
        assert before[-1] == "marker"
        again.close()


def test_every_type_of_line_and_every_format_is_described():
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text("utf-8")
    kinds = [kind.__struct_config__.tag for kind in get_args(events.KnownEvent)]
    assert "message" in kinds
    for name in [*kinds, *registry.EXPORTERS]:
        assert f"`{name}`" in text, name
    for field in events.Message.__struct_fields__:
        assert f"`{field}`" in text, field
