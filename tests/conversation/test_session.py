"""Changing a conversation, and finding it the same after it was closed and opened again."""

from __future__ import annotations

import json
import math

import pytest

from chatapp.conversation.records import TYPED
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Sampling, Turn
from chatapp.tokens import Alternative, Token

from .helpers import FaultyFiles, contents, reply, token


def reopened(store: Store, session: ConversationSession) -> ConversationSession:
    session.close()
    return store.open(session.id)


def two_exchanges(store: Store) -> tuple[ConversationSession, dict[str, str]]:
    session = store.new("tiny", "Be brief.")
    ids = {"a": session.add_message("user", "A").id, "b": reply(session, "B", "b")}
    ids |= {"c": session.add_message("user", "C").id, "d": reply(session, "D", "d")}
    return session, ids


def test_a_conversation_is_the_same_after_reopening(store):
    session, ids = two_exchanges(store)
    session = reopened(store, session)
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    assert session.conversation.system == "Be brief."
    assert session.conversation.title == "A"
    assert [t.text for t in session.tokens(ids["d"])] == ["D", "d"]
    message = session.conversation.messages[ids["d"]]
    assert (message.model, message.finish, message.sampling) == ("tiny", "stop", {"seed": 3})
    assert (message.mean_entropy, message.peak_entropy) == (1.0, 1.5)
    assert session.notices == []


def test_nothing_is_on_disk_before_the_first_message(store):
    session = store.new("tiny")
    session.close()
    assert store.ids() == []


def test_files_are_private(store):
    session, _ = two_exchanges(store)
    for path in store.folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    session.close()


def test_the_lock_file_goes_with_the_session(store):
    session, _ = two_exchanges(store)
    session.close()
    assert not list(store.folder.glob("*.lock"))


def test_the_user_message_is_on_disk_when_add_message_returns(store):
    session = store.new()
    message = session.add_message("user", "Hi\u2028 \x1b[2J")
    last = [json.loads(line) for line in session.path.read_text("utf-8").split("\n") if line]
    assert {
        "type": "message",
        "id": message.id,
        "parent": None,
        "role": "user",
        "content": "Hi\u2028 \x1b[2J",
    }.items() <= last[1].items()


def test_regenerating_keeps_the_old_reply_beside_the_new_one(store):
    session, ids = two_exchanges(store)
    writer = session.begin_reply(parent=ids["c"], model="tiny", sampling=Sampling(temperature=0.5, sampler="standard"))
    writer.append([token("E")])
    new = writer.finish("length")
    session = reopened(store, session)
    assert contents(session) == ["A", "Bb", "C", "E"]
    assert [m.content for m in session.conversation.siblings(new.id)] == ["Dd", "E"]
    assert new.sampling == {"temperature": 0.5, "sampler": "standard"}
    session.set_head(ids["d"])
    assert contents(reopened(store, session)) == ["A", "Bb", "C", "Dd"]


def test_editing_an_early_message_starts_a_new_branch(store):
    session, ids = two_exchanges(store)
    session.edit(ids["a"], "A2")
    assert contents(session) == ["A2"]
    reply(session, "F")
    session.set_head(ids["a"])
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    session.set_head(session.conversation.siblings(ids["a"])[1].id)
    assert contents(session) == ["A2", "F"]


def test_editing_in_place_keeps_what_follows_with_its_records_and_alternatives(store):
    session, ids = two_exchanges(store)
    writer = session.begin_reply(parent=ids["c"], model="tiny")
    writer.append([token("other")])
    other = writer.finish("stop").id
    session.set_head(ids["d"])
    new = session.edit(ids["b"], "B changed", keep_following=True)
    session = reopened(store, session)
    assert contents(session) == ["A", "B changed", "C", "Dd"]
    assert [t.text for t in session.tokens(ids["d"])] == ["D", "d"]
    assert [m.id for m in session.conversation.siblings(ids["d"])] == [ids["d"], other]
    # Both versions lead to the same following turns, and one can go back and forth between them.
    session.set_head(ids["b"])
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    session.set_head(new.id)
    assert contents(session) == ["A", "B changed", "C", "Dd"]
    # What is written now follows the edited version too; where it was really written is stored.
    reply_after = session.add_message("user", "more")
    assert [turn.content for turn in session.prompt_of(ids["d"], "tiny")] == ["Be brief.", "A", "Bb", "C"]
    assert session.conversation.path()[-1] == reply_after


def test_editing_in_place_twice_shares_one_place(store):
    session, ids = two_exchanges(store)
    first = session.edit(ids["b"], "one", keep_following=True)
    second = session.edit(first.id, "two", keep_following=True)
    session = reopened(store, session)
    assert contents(session) == ["A", "two", "C", "Dd"]
    assert [m.id for m in session.conversation.siblings(ids["b"])] == [ids["b"], first.id, second.id]
    session.set_head(first.id)
    assert contents(session) == ["A", "one", "C", "Dd"]


def test_an_edited_reply_goes_on_from_the_edit_also_after_reopening(store):
    session, ids = two_exchanges(store)
    edited = session.edit(ids["d"], "D but in the middle")
    writer = session.begin_reply(continues=edited.id, model="tiny")
    writer.append([token(" of", 9), token(" it", 10)])
    whole = writer.finish("stop")
    session = reopened(store, session)
    assert contents(session)[-1] == "D but in the middle of it"
    records = session.tokens(whole.id)
    assert [(t.index, t.text, t.id == TYPED) for t in records] == [
        (0, "D", False), (1, " but in the middle", True), (2, " of", False), (3, " it", False),
    ]  # fmt: skip
    assert whole.parent == ids["c"]


def test_picking_another_token_keeps_the_records_before_it(store):
    session, ids = two_exchanges(store)
    picked = token("x", 55)
    edited = session.edit(ids["d"], "Dx", tokens=[*session.tokens(ids["d"])[:1], picked])
    assert [t.id for t in session.tokens(edited.id)] == [100, 55]
    assert session.turns("tiny")[-1] == Turn("assistant", "Dx", (100, 55))


def test_turns_carry_sampled_ids_only_for_the_model_that_sampled_them(store):
    session, ids = two_exchanges(store)
    assert session.turns("tiny") == (
        Turn("system", "Be brief."), Turn("user", "A"), Turn("assistant", "Bb", (100, 101)),
        Turn("user", "C"), Turn("assistant", "Dd", (100, 101)),
    )  # fmt: skip
    assert session.turns("other", to=ids["b"])[-1] == Turn("assistant", "Bb")
    session.edit(ids["b"], "Bb typed", keep_following=True)
    assert session.turns("tiny")[2] == Turn("assistant", "Bb typed")


def test_deleting_hides_one_message_and_undo_shows_it_again(store):
    session, ids = two_exchanges(store)
    session.delete(ids["b"])
    session = reopened(store, session)
    assert contents(session) == ["A", "C", "Dd"]
    session.undo()
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    session.delete(ids["d"])
    assert contents(session) == ["A", "Bb", "C"]
    session.undo()
    assert contents(reopened(store, session)) == ["A", "Bb", "C", "Dd"]


def test_deleting_with_what_follows(store):
    session, ids = two_exchanges(store)
    session.delete(ids["b"], following=True)
    assert contents(session) == ["A"]
    session.undo()
    assert contents(session) == ["A", "Bb", "C", "Dd"]


def test_deleting_the_shown_alternative_shows_its_neighbour(store):
    session, ids = two_exchanges(store)
    writer = session.begin_reply(parent=ids["c"], model="tiny")
    writer.append([token("E")])
    session.delete(writer.finish("stop").id)
    assert contents(session) == ["A", "Bb", "C", "Dd"]


def test_deleting_the_only_message_leaves_an_empty_conversation(store):
    session = store.new()
    session.delete(session.add_message("user", "A").id)
    assert contents(session) == []
    session.add_message("user", "B")
    assert contents(reopened(store, session)) == ["B"]


def test_undo_survives_reopening_and_redo_brings_back_what_followed_the_step(store):
    session, ids = two_exchanges(store)
    session.edit(ids["a"], "A2")
    reply(session, "F")
    session = reopened(store, session)
    assert session.undo()
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    session = reopened(store, session)
    assert session.redo()
    assert contents(session) == ["A2", "F"]
    assert not session.redo()
    assert session.undo()
    assert not session.undo()


def test_a_new_change_after_undo_ends_redo(store):
    session, ids = two_exchanges(store)
    session.edit(ids["a"], "A2")
    session.undo()
    session.set_system("Be long.")
    assert not session.redo()
    session.undo()
    session.add_message("user", "E")
    assert not session.redo()


def test_changing_between_versions_stays_where_the_branch_was_ended(store):
    session, ids = two_exchanges(store)
    new = session.edit(ids["b"], "B2", keep_following=True)
    session.set_head(ids["c"], exact=True)
    session.set_head(ids["b"])
    assert contents(session) == ["A", "Bb", "C"]
    session.set_head(new.id)
    assert contents(reopened(store, session)) == ["A", "B2", "C"]


def test_undo_after_going_on_does_not_take_the_new_turns_away(store):
    session, ids = two_exchanges(store)
    session.delete(ids["b"])
    session.add_message("user", "later")
    session.undo()
    assert contents(session) == ["A", "Bb", "C", "Dd", "later"]


def test_candidates_wait_whichever_ends_first(store):
    session = store.new()
    session.add_message("user", "A")
    writers = [session.begin_reply() for _ in range(3)]
    for number in (2, 0, 1):
        writers[number].append([token(f"candidate {number}")])
        writers[number].finish("stop", show=number == 0)
    session = reopened(store, session)
    assert contents(session) == ["A", "candidate 0"]
    assert not session.undo()  # nothing was changed, only written


def test_candidates_wait_until_one_is_chosen(store):
    session = store.new()
    user = session.add_message("user", "A").id
    first = reply(session, "one")
    writer = session.begin_reply(parent=user)
    writer.append([token("two")])
    second = writer.finish("stop", show=False)
    assert contents(session) == ["A", "one"]
    assert [m.id for m in session.conversation.siblings(first)] == [first, second.id]
    session.set_head(second.id)
    assert contents(session) == ["A", "two"]


def test_a_growing_reply_is_written_down_every_second_and_recovered(store):
    session = store.new("tiny")
    session.add_message("user", "A")
    time = 100.0
    session.clock = lambda: time
    writer = session.begin_reply(model="tiny", sampling={"temperature": 0.0}, setup={"keep": 4})
    for number, text in enumerate(["one", " two", " three", " four", " five"]):
        time += 0.6
        writer.append([token(text, entropy=0.5 + number)])
    # After 1.2 s the first two were written, after 2.4 s the next two; the last waits. Now the process is gone.
    assert session.path.read_bytes().count(b'"type":"partial"') == 2
    crash(store, session)
    session.close()
    again = store.open("crashed")
    assert contents(again) == ["A", "one two three four"]
    message = again.conversation.path()[-1]
    assert (message.finish, message.model, message.sampling) == ("error", "tiny", {"temperature": 0.0})
    assert (message.setup, message.mean_entropy, message.peak_entropy) == ({"keep": 4}, 2.0, 3.5)
    assert [(t.text, t.entropy, t.index) for t in again.tokens(message.id)] == [
        ("one", 0.5, 0), (" two", 1.5, 1), (" three", 2.5, 2), (" four", 3.5, 3),
    ]  # fmt: skip
    assert len(again.notices) == 1
    assert "cut off" in again.notices[0]
    again.close()
    again = store.open("crashed")
    assert again.notices == []
    assert len(again.tokens(message.id)) == 4


def crash(store: Store, session: ConversationSession) -> None:
    """Leaves a conversation "crashed" with what the files of this one hold now."""
    for suffix in (".jsonl", ".tokens.jsonl"):
        (store.folder / f"crashed{suffix}").write_bytes((store.folder / f"{session.id}{suffix}").read_bytes())


def test_records_of_a_growing_reply_are_written_once_and_its_end_replaces_what_was_cut(store):
    session = store.new("tiny")
    session.add_message("user", "A")
    session.clock = iter(range(0, 100, 5)).__next__
    writer = session.begin_reply(model="tiny")
    for number, text in enumerate(["one", " two", " th", "ree"]):
        writer.append([token(text, number)])
    whole = writer.finish("stop", text="one two th").id  # a stop string was found
    records = (store.folder / f"{session.id}.tokens.jsonl").read_bytes()
    assert records.count(b'"text":" two","entropy"') == 1
    assert records.count(b"\n") == 5
    session = reopened(store, session)
    assert [t.text for t in session.tokens(whole)] == ["one", " two", " th"]
    assert session.turns("tiny")[-1].tokens == (0, 1, 2)
    session.clock = iter(range(0, 100, 5)).__next__
    more = session.begin_reply(continues=whole, model="tiny")
    more.append([token("e end", 9)])
    end = more.finish("stop").id
    assert [t.id for t in reopened(store, session).tokens(end)] == [0, 1, 2, 9]


def test_of_candidates_that_were_cut_off_one_is_shown(store):
    session = store.new("tiny")
    session.add_message("user", "A")
    session.clock = iter(range(0, 100, 5)).__next__
    for name in ("one", "two", "three"):
        session.begin_reply(model="tiny").append([token(name)])
    crash(store, session)
    again = store.open("crashed")
    assert contents(again) == ["A", "one"]
    assert [m.content for m in again.conversation.siblings(again.conversation.head)] == ["one", "two", "three"]
    assert not again.undo()


def test_a_damaged_line_of_records_costs_the_heat_of_its_reply_only(store):
    session, ids = two_exchanges(store)
    session.clock = iter(range(0, 100, 5)).__next__
    writer = session.begin_reply(model="tiny")
    for text in ("E", "e", "e"):
        writer.append([token(text)])
    last = writer.finish("stop").id
    session.close()
    path = store.folder / f"{session.id}.tokens.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3][:50]  # the second line of the last reply
    path.write_bytes(b"\n".join(lines))
    session = store.open(session.id)
    assert session.notices == ["1 damaged token record(s) were skipped; the heat of those replies is missing."]
    assert session.tokens(last) == []
    assert [t.text for t in session.tokens(ids["d"])] == ["D", "d"]


def test_damage_inside_a_line_that_looks_whole_is_told_when_it_is_read(store):
    session, ids = two_exchanges(store)
    session.close()
    path = store.folder / f"{session.id}.tokens.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first.replace(b'"entropy":', b'"entropy",', 1) + second)
    session = store.open(session.id)
    assert session.tokens(ids["b"]) == []
    assert [t.text for t in session.tokens(ids["d"])] == ["D", "d"]
    assert session.notices == ["1 damaged token record(s) were skipped; the heat of those replies is missing."]
    session.notices.clear()
    assert session.tokens(ids["b"]) == []
    assert session.turns("tiny")[2].tokens == ()
    assert session.notices == []


def test_records_are_read_however_their_lines_are_written(store):
    session, ids = two_exchanges(store)
    turns = session.turns("tiny")
    session.close()
    path = store.folder / f"{session.id}.tokens.jsonl"
    records = [json.loads(line) for line in path.read_bytes().splitlines()]
    path.write_text("".join(json.dumps(dict(reversed(record.items()))) + "\r\n" for record in records))
    session = store.open(session.id)
    assert [t.text for t in session.tokens(ids["b"])] == ["B", "b"]
    assert session.turns("tiny") == turns
    assert session.notices == []


@pytest.mark.parametrize("size", [1, 7, 300])
def test_lines_longer_than_what_is_read_at_once(store, monkeypatch, size):
    session, ids = two_exchanges(store)
    turns = session.turns("tiny")
    session.close()
    for suffix in (".jsonl", ".tokens.jsonl"):
        with (store.folder / f"{session.id}{suffix}").open("ab") as file:
            file.write(b'{"type":"mess')
    monkeypatch.setattr("chatapp.conversation.appendlog._PART", size)
    session = store.open(session.id)
    assert session.turns("tiny") == turns
    assert [t.text for t in session.tokens(ids["b"])] == ["B", "b"]
    last = reply(session, "E")
    assert [t.text for t in reopened(store, session).tokens(last)] == ["E"]


def test_a_prompt_is_read_a_reply_at_a_time_and_then_known(store):
    session, ids = two_exchanges(store)
    session = reopened(store, session)
    assert len(list(session.reading("another"))) == 0
    assert len(list(session.reading("tiny", to=ids["c"]))) == 1
    assert len(list(session.reading("tiny"))) == 1
    known = [turn.tokens for turn in session.turns("tiny")]
    assert [len(tokens) for tokens in known] == [0, 0, 2, 0, 2]
    (store.folder / f"{session.id}.tokens.jsonl").write_bytes(b"")
    assert [turn.tokens for turn in session.turns("tiny")] == known


def test_records_that_another_program_moved_are_not_taken_for_those_of_another_reply(store):
    session = store.new("tiny")
    session.add_message("user", "A")
    made: list[str] = []
    for entropy in (0.5, 1.5):
        writer = session.begin_reply(parent=session.conversation.path()[0].id, model="tiny")
        writer.append([token("same", entropy=entropy)])
        made.append(writer.finish("stop").id)
    with (store.folder / f"{session.id}.tokens.jsonl").open("r+b") as file:
        first, second = file.readlines()
        assert len(first) == len(second)
        file.seek(0)
        file.write(second + first)
    assert session.tokens(made[0]) == []
    assert [t.entropy for t in reopened(store, session).tokens(made[0])] == [0.5]


def test_what_a_reply_was_written_after_is_known_whatever_was_changed_since(store):
    session, ids = two_exchanges(store)
    session.delete(ids["b"])
    session.set_system("Be long.")
    session.add_message("user", "E")
    last = reply(session, "F")
    session.undo()
    session.undo()
    session.edit(ids["a"], "A2", keep_following=True)
    session.delete(ids["c"])
    session = reopened(store, session)
    assert [turn.content for turn in session.prompt_of(ids["d"], "tiny")] == ["Be brief.", "A", "Bb", "C"]
    assert [turn.content for turn in session.prompt_of(last, "tiny")] == ["Be long.", "A", "C", "Dd", "E"]
    assert session.prompt_of(last, "tiny")[3].tokens == (100, 101)
    assert session.prompt_of(ids["a"], "tiny") == (Turn("system", "Be brief."),)


def test_a_regenerated_reply_that_was_cut_off_is_shown_after_recovery(store):
    session, ids = two_exchanges(store)
    time = 0.0
    session.clock = lambda: time
    writer = session.begin_reply(parent=ids["a"], model="tiny")
    time = 5
    writer.append([token("half")])
    session.close()
    session = store.open(session.id)
    assert contents(session) == ["A", "half"]
    session.set_head(ids["b"])
    assert contents(session) == ["A", "Bb", "C", "Dd"]


def test_a_discarded_reply_leaves_nothing(store):
    session = store.new()
    session.add_message("user", "A")
    session.clock = iter(range(0, 100, 5)).__next__
    writer = session.begin_reply()
    writer.append([token("x")])
    writer.discard()
    session = reopened(store, session)
    assert contents(session) == ["A"]
    assert session.notices == []


def test_settings_titles_system_and_branches_are_kept(store):
    session, ids = two_exchanges(store)
    session.set_settings({"sampling": {"temperature": 0.2}, "heat": "entropy"})
    session.rename("My  title")
    session.set_system("Be long.")
    session.name_branch("first")
    session.edit(ids["c"], "C2")
    session.name_branch("second")
    session = reopened(store, session)
    conversation = session.conversation
    assert conversation.settings == {"sampling": {"temperature": 0.2}, "heat": "entropy"}
    assert (conversation.title, conversation.system) == ("My title", "Be long.")
    session.set_head(conversation.branches["first"])
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    session.remove_branch("second", messages=True)
    assert list(session.conversation.branches) == ["first"]
    assert [m.content for m in session.conversation.leaves()] == ["Dd"]


def test_removing_a_branch_leaves_what_others_share(store):
    session, ids = two_exchanges(store)
    session.name_branch("old")
    session.edit(ids["c"], "C2")
    session.remove_branch("old", messages=True)
    assert [m.content for m in session.conversation.leaves()] == ["C2"]
    assert contents(session) == ["A", "Bb", "C2"]


def test_branching_to_a_new_conversation_takes_the_shown_messages_and_their_heat(store):
    session, ids = two_exchanges(store)
    session.edit(ids["b"], "B changed", keep_following=True)
    copy = session.branch(ids["d"])
    session.close()
    copy = reopened(store, copy)
    assert copy.id != session.id
    assert copy.conversation.forked_from == session.id
    assert contents(copy) == ["A", "B changed", "C", "Dd"]
    assert [t.text for t in copy.tokens(ids["d"])] == ["D", "d"]


def test_a_second_instance_is_read_only_follows_live_and_can_fork(store):
    session, _ = two_exchanges(store)
    second = Store(store.folder).open(session.id)
    assert second.read_only == "Another chatapp has this conversation open."
    with pytest.raises(ChatappError, match="Fork"):
        second.add_message("user", "spliced")
    assert not second.poll()
    session.add_message("user", "E")
    new = reply(session, "F")
    assert second.poll()
    assert contents(second) == ["A", "Bb", "C", "Dd", "E", "F"]
    assert [t.text for t in second.tokens(new)] == ["F"]
    fork = second.fork()
    fork.add_message("user", "mine")
    assert contents(session)[-1] == "F"
    assert contents(reopened(store, fork))[-1] == "mine"
    session.close()
    assert store.open(session.id).read_only is None


def test_a_file_that_was_renamed_while_open_has_one_writer(store):
    session, _ = two_exchanges(store)
    session.path.rename(store.folder / "renamed.jsonl")
    second = store.open("renamed")
    assert second.read_only == "Another chatapp has this conversation open."
    session.close()
    assert store.open("renamed").read_only is None


def test_a_reader_waits_for_the_other_half_of_a_line(store):
    session, _ = two_exchanges(store)
    session.path.rename(store.folder / "renamed.jsonl")  # no .lock file by this name: only the file itself is locked
    line = b'{"type":"message","id":"x","parent":null,"role":"user","content":"late"}\n'
    with (store.folder / "renamed.jsonl").open("ab", buffering=0) as writer:
        writer.write(line[:20])
        second = store.open("renamed")
        assert second.read_only
        assert not second.poll()
        writer.write(line[20:])
        assert second.poll()
    assert second.conversation.messages["x"].content == "late"
    assert second.notices == []
    assert "x" in second.fork().conversation.messages


def test_a_fork_has_what_waits_in_memory_too(store):
    files = FaultyFiles()
    session = Store(store.folder, files=files).new()
    session.add_message("user", "saved")
    files.fail_at, files.lasting = len(files.calls) + 1, True
    session.add_message("user", "kept")
    assert session.trouble
    files.healed = True
    fork = session.fork()
    assert contents(fork) == ["saved", "kept"]


def test_a_reader_sees_a_reply_grow(store):
    session = store.new()
    session.add_message("user", "A")
    reader = store.open(session.id, read_only=True)
    session.clock = iter(range(0, 100, 5)).__next__
    writer = session.begin_reply()
    writer.append([token("so far")])
    reader.poll()
    growing = reader.growing
    assert growing is not None
    assert growing.content == "so far"
    assert [t.text for t in reader.tokens(growing.id)] == ["so far"]
    assert session.growing is None
    writer.finish("stop")
    reader.poll()
    assert reader.growing is None
    assert contents(reader) == ["A", "so far"]


def test_losing_the_token_file_loses_no_words(store):
    session, ids = two_exchanges(store)
    session.close()
    (store.folder / f"{session.id}.tokens.jsonl").unlink()
    session = store.open(session.id)
    assert contents(session) == ["A", "Bb", "C", "Dd"]
    assert session.tokens(ids["b"]) == []
    assert session.notices == []


def test_infinite_numbers_do_not_cost_the_heat(store):
    session = store.new()
    session.add_message("user", "A")
    writer = session.begin_reply()
    odd = Token(
        0, 5, "x", 0.5, float("inf"), 3.0, float("nan"), top=(Alternative(5, "x", 0.0), Alternative(6, "", -math.inf))
    )
    writer.append([odd])
    id = writer.finish("stop").id
    [read] = reopened(store, session).tokens(id)
    assert (read.entropy, read.surprisal, read.sampled_entropy) == (0.5, 3.0, 0.0)
    assert read.varentropy > 1e300
    assert read.top == (Alternative(5, "x", 0.0),)


def test_lone_surrogates_are_replaced_before_they_are_stored(store):
    session = store.new()
    message = session.add_message("user", "a\ud800b\U0001f600")
    assert message.content == "a\ufffdb\U0001f600"
    session.set_settings({"stop\ud800": ["x\udfff"]})
    reply(session, "o", "\udc80k", model="m\ud800")
    session = reopened(store, session)
    assert contents(session) == ["a\ufffdb\U0001f600", "o\ufffdk"]
    assert session.conversation.settings == {"stop\ufffd": ["x\ufffd"]}
    assert [t.text for t in session.tokens(session.conversation.path()[-1].id)] == ["o", "\ufffdk"]


def test_the_latest_conversation_is_one_of_ours(store):
    session, _ = two_exchanges(store)
    session.close()
    assert store.latest() == session.id
    (store.folder / "foreign.jsonl").write_text('{"not": "ours"}\n')
    assert store.latest() == session.id


def test_unknown_ids_are_refused_with_a_sentence(store):
    session = store.new()
    with pytest.raises(UsageError, match="no message 'x'"):
        session.set_head("x")
    with pytest.raises(UsageError, match="no message 'x'"):
        session.delete("x")
    with pytest.raises(UsageError, match="no message 'x'"):
        session.edit("x", "y")
    with pytest.raises(UsageError, match="chatapp list"):
        store.open("nothing")
    with pytest.raises(UsageError, match="not the id"):
        store.open("../../etc/passwd")


def test_finding_by_id_prefix_and_title(store):
    one, two = store.new(), store.new()
    one.add_message("user", "Rotating caches")
    two.add_message("user", "Rotating tyres")
    assert store.find(one.id) == one.id
    assert store.find("rotating TYRES") == two.id
    assert store.find("caches") == one.id
    with pytest.raises(UsageError, match="Several"):
        store.find("rotating")
    with pytest.raises(UsageError, match="no conversation"):
        store.find("zzz")


def test_trash_and_back(store):
    session, ids = two_exchanges(store)
    with pytest.raises(ChatappError, match="open"):
        store.remove(session.id)
    session.close()
    store.remove(session.id)
    assert store.ids() == []
    assert store.trash.ids() == [session.id]
    store.restore(session.id)
    again = store.open(session.id)
    assert [t.text for t in again.tokens(ids["b"])] == ["B", "b"]
    again.close()
    for torn in (".torn", ".tokens.torn"):
        session.path.with_suffix(torn).write_text("half a li")
    store.remove(session.id)
    assert [path.name for path in store.folder.iterdir()] == ["trash"]
    store.trash.erase(session.id)
    assert list(store.trash.folder.iterdir()) == []
