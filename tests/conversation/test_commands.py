"""The commands for saved conversations, called as the command line calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chatapp.cli import main
from chatapp.conversation.store import Store
from chatapp.protocol import Sampling
from tests.engine.folder import SPECIALS, write_model

from .helpers import contents, reply, token


def lines(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def saved(store: Store) -> str:
    session = store.new("tiny", "Be brief.")
    question = session.add_message("user", "How hot is tea? \x1b[2J").id
    reply(session, "Very", " hot")
    writer = session.begin_reply(parent=question, model="tiny")
    writer.append([token("80 °C", entropy=3.25)])
    writer.finish("stop")
    session.name_branch("exact")
    session.close()
    return session.id


def test_list_for_people_and_for_scripts(saved, capsys):
    assert main(["list"]) == 0
    line = capsys.readouterr().out
    assert saved in line
    assert "How hot is tea? ␛[2J" in line
    assert main(["list", "--json"]) == 0
    [summary] = lines(capsys)
    assert (summary["type"], summary["id"], summary["messages"], summary["model"]) == ("conversation", saved, 2, "tiny")


def test_names_of_files_cannot_drive_the_terminal(store, saved, capsys):
    data = store.path_of(saved).read_bytes()
    for name in ("\x1b[31mred", "c1\x9bm", "bidi\u202e"):
        store.path_of(name).write_bytes(data)
    assert main(["list"]) == 0
    assert main(["search", "tea"]) == 0
    assert main(["show", "\x1b[31mred", "--branches"]) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)
    assert out.count("␛[31mred") == 2


def test_a_file_whose_name_is_no_text_is_passed_over(store, saved, capsys):
    strange = os.fsencode(store.folder) + b"/bad\xff.jsonl"
    try:
        Path(os.fsdecode(strange)).write_bytes(store.path_of(saved).read_bytes())
    except OSError:
        pytest.skip("this file system takes text only")
    assert main(["list", "--json"]) == 0
    assert [summary["id"] for summary in lines(capsys)] == [saved]
    assert main(["search", "tea", "--json"]) == 0
    assert {hit["conversation"] for hit in lines(capsys)} == {saved}
    assert store.latest() == saved


def test_an_empty_list_says_so_on_stderr(store, capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr()
    assert (out.out, out.err) == ("", "No conversation is saved yet.\n")


def test_show(saved, capsys):
    assert main(["show", saved[:6]]) == 0
    out = capsys.readouterr().out
    assert out == "System\nBe brief.\n\nUser\nHow hot is tea? ␛[2J\n\nAssistant (tiny)  2/2\n80 °C\n\n"


def test_show_json_with_tokens(saved, capsys):
    assert main(["show", saved, "--json", "--tokens"]) == 0
    head, user, answer = lines(capsys)
    assert (head["type"], head["system"]) == ("conversation", "Be brief.")
    assert user["content"] == "How hot is tea? \x1b[2J"
    assert (answer["peak_entropy"], answer["tokens"][0]["text"]) == (3.25, "80 °C")
    assert len(answer["alternatives"]) == 1


def test_show_branches_and_one_of_them(saved, capsys):
    assert main(["show", saved, "--branches", "--json"]) == 0
    other, exact = lines(capsys)
    assert (exact["name"], exact["shown"], other["shown"]) == ("exact", True, False)
    assert main(["show", saved, "--branch", other["id"]]) == 0
    assert "Very hot" in capsys.readouterr().out
    assert main(["show", saved, "--branch", "nosuch"]) == 2
    assert "named ones: exact" in capsys.readouterr().err


def test_show_heat_prints_every_word(saved, capsys, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert main(["show", saved, "--heat"]) == 0
    assert "80 °C⟨3.2⟩" in capsys.readouterr().out


def test_a_reply_that_was_cut_off_is_there_for_those_who_only_look(store, saved, capsys, tmp_path):
    session = store.open(saved)
    session.clock = iter(range(0, 1000, 5)).__next__
    question = session.conversation.path()[0].id
    for text in ("Cut off here", "beside it"):
        session.begin_reply(parent=question, model="tiny").append([token(text, entropy=2.5)])
    # Another chatapp is writing it; after a kill the file would be the same.
    before = session.path.read_bytes()
    assert main(["show", saved, "--json", "--tokens"]) == 0
    out = capsys.readouterr()
    last = json.loads(out.out.splitlines()[-1])
    assert (last["content"], last["finish"], last["tokens"][0]["entropy"]) == ("Cut off here", "error", 2.5)
    assert len(last["alternatives"]) == 3
    assert out.err == "chatapp: A reply was cut off, or is being written; what there is of it is shown.\n"
    assert main(["search", "beside", "--json"]) == 0
    assert lines(capsys)[0]["excerpt"] == "beside it"
    assert main(["export", saved, "-f", "json"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)[-1]["content"] == "Cut off here"
    assert "being written" in out.err
    assert session.path.read_bytes() == before


def test_ask_says_why_it_cannot_go_on_with_a_conversation(store, saved, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    session = store.open(saved)
    assert main(["ask", "-C", saved, "Hi"]) == 1
    assert "open. Close it there, or ask without -C." in capsys.readouterr().err
    session.close()
    store.path_of(saved).write_bytes(store.path_of(saved).read_bytes().replace(b'"schema":1', b'"schema":9', 1))
    assert main(["ask", "-C", saved, "Hi"]) == 1
    assert "later version of chatapp. Ask without -C." in capsys.readouterr().err


def test_search(saved, capsys):
    assert main(["search", "tea"]) == 0
    assert saved in capsys.readouterr().out
    assert main(["search", "entropy>3", "role:assistant", "--json"]) == 0
    assert [hit["excerpt"] for hit in lines(capsys)] == ["80 °C"]
    assert main(["search", "hot", "-tea"]) == 0
    assert "Very hot" in capsys.readouterr().out
    assert main(["search", "coffee"]) == 1
    assert capsys.readouterr().err == "Nothing found.\n"
    assert main(["search", "entropy>high"]) == 2
    assert "needs a number in nats" in capsys.readouterr().err


def test_export_to_stdout_and_to_files(saved, capsys, tmp_path):
    assert main(["export", saved, "-f", "json"]) == 0
    messages = json.loads(capsys.readouterr().out)
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    target = tmp_path / "out.html"
    assert main(["export", saved, "-o", str(target), "--tree", "--json"]) == 0
    assert lines(capsys) == [{"type": "exported", "id": saved, "path": str(target)}]
    assert "Very" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600
    assert main(["export", saved, "-o", str(target)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main(["export", saved, "-o", str(tmp_path / "out.doc")]) == 2
    assert ".md" in capsys.readouterr().err
    assert main(["export", saved, "-o", str(tmp_path / "no" / "out.md")]) == 1
    assert "could not be written" in capsys.readouterr().err


def test_export_then_import_gives_the_same_messages(saved, capsys, tmp_path):
    target = tmp_path / "out.md"
    main(["export", saved, "-o", str(target), "--tree"])
    assert main(["import", str(target), "--json"]) == 0
    [imported] = lines(capsys)
    store = Store()
    again, before = store.open(imported["id"]), store.open(saved)
    assert contents(again) == contents(before)
    assert [m.content for m in again.conversation.messages.values()] == [
        m.content for m in before.conversation.messages.values()
    ]


def test_import_of_a_conversation_of_another_machine_takes_everything_along(store, saved, capsys, tmp_path):
    strange = b'{"type" : "sticker", "at": 2.50}\n'
    with store.path_of(saved).open("ab") as file:
        file.write(strange)
    there = Store(tmp_path / "there")
    there.folder.mkdir()
    for path in store.folder.glob(f"{saved}.*"):
        path.rename(there.folder / path.name)
    assert main(["import", str(there.path_of(saved)), "--json"]) == 0
    [imported] = lines(capsys)
    assert (imported["format"], imported["messages"], imported["notices"]) == ("chatapp", 3, [])
    before, after = there.open(saved), store.open(imported["id"])
    assert after.conversation.messages == before.conversation.messages
    assert after.conversation.branches == before.conversation.branches
    assert after.conversation.forked_from == saved
    assert [after.tokens(id) for id in after.conversation.messages] == [
        before.tokens(id) for id in before.conversation.messages
    ]
    assert after.path.read_bytes().endswith(strange)
    assert after.undo()
    newer = there.path_of(saved).read_bytes().replace(b'"schema":1', b'"schema":9', 1)
    (tmp_path / "newer.jsonl").write_bytes(newer)
    assert main(["import", str(tmp_path / "newer.jsonl")]) == 1
    assert "later version" in capsys.readouterr().err


def test_import_of_several_files_goes_on_after_a_bad_one(store, capsys, tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('[{"role":"user","content":"Hi"}]')
    bad.write_text("{")
    assert main(["import", str(bad), str(tmp_path / "none"), str(good)]) == 2
    out = capsys.readouterr()
    assert "1 messages  Hi" in out.out
    assert out.err.count("\n") == 2
    assert bad.read_text() == "{"
    good.write_text('{"messages":[{"role":"user","content":"Hi"}]}\n{"mess')
    assert main(["import", str(good)]) == 1
    out = capsys.readouterr()
    assert "1 messages  Hi" in out.out
    assert out.err == f"chatapp: Line 2 of {good} is no whole JSON and was left out.\n"


def test_rm_trash_restore_and_empty(saved, capsys):
    assert main(["rm", "tea", "nosuch"]) == 2
    out = capsys.readouterr()
    assert out.out == f"{saved} moved to the trash\n"
    assert "no conversation 'nosuch'" in out.err
    assert main(["list", "--trash", "--json"]) == 0
    assert lines(capsys)[0]["id"] == saved
    assert main(["rm", "--restore", "tea", "--json"]) == 0
    assert lines(capsys) == [{"type": "removed", "id": saved, "done": "restored"}]
    main(["rm", "tea"])
    assert main(["rm", "--empty-trash", "--older-than", "30"]) == 0
    assert Store().trash.ids() == [saved]
    assert main(["rm", "--empty-trash"]) == 0
    assert Store().trash.ids() == []


def test_locate(store, capsys):
    assert main(["locate", "conversations"]) == 0
    assert capsys.readouterr().out == f"{store.folder}\n"
    assert main(["locate", "--json"]) == 0
    assert set(lines(capsys)[0]) >= {"config", "models", "conversations", "themes"}


@pytest.mark.parametrize(
    "argv",
    [["show"], ["show", "x"], ["export", "x"], ["rm"], ["rm", "--older-than", "3", "x"], ["search"], ["import"],
     ["export", "x", "--json"], ["locate", "nowhere"], ["list", "-n", "-1"],
     ["search", "before:yesterday"], ["list", "--limit", "x"]],
)  # fmt: skip
def test_wrong_calls_end_in_one_sentence(store, capsys, argv):
    assert main(argv) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("chatapp: ")
    assert out.err.count("\n") == 1


def test_replies_can_be_drawn_again_from_their_file(store, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    model = str(write_model(tmp_path / "tiny"))
    session = store.new(model)
    # Longer than the cache: what is drawn depends on its size, too.
    session.add_message("user", "Tell me a story about a king and a queen who lived in a castle by the sea. " * 2)
    session.add_message("assistant", "I do not know, but I think that it is so. Perhaps: one, two, three. " * 2)
    session.close()
    sampling = ["--temperature", "1", "--max-tokens", "8", "--max-kv-size", "64", "--keep", "5", "--no-thinking"]
    assert main(["ask", "-C", session.id, "-m", model, "--system", "Be brief.", *sampling, "Begin"]) == 0
    session = store.open(session.id)
    first = session.conversation.path()[-1]
    assert first.setup == {"max_kv_size": 64, "keep": 5, "thinking": False}
    tokens = session.tokens(first.id)
    assert len(tokens) > 4
    # Another reply that says that its first three tokens were given, and one whose record was changed afterwards.
    options = Sampling(**first.sampling)
    writer = session.begin_reply(first.parent, first.model, options, given=tokens[:3], setup=first.setup)
    writer.append(tokens[3:])
    given = writer.finish(first.finish, seed=first.sampling["seed"])
    # What is changed afterwards is not what the reply was drawn from.
    session.set_system("Be long.")
    session.delete(session.conversation.path()[0].id)
    session.close()
    capsys.readouterr()
    assert main(["show", session.id, "--replay", first.id, "--json"]) == 0
    assert lines(capsys) == [
        {"type": "replay", "id": first.id, "outcome": "equal", "detail": f"{len(tokens)} token ids"}
    ]
    assert main(["show", session.id, "--replay"]) == 0
    assert f"{len(tokens) - 3} token ids" in capsys.readouterr().out
    records = store.folder / f"{session.id}.tokens.jsonl"
    text = records.read_text().splitlines()
    text[-1] = text[-1].replace(f'"index":4,"id":{tokens[4].id},', '"index":4,"id":1,')
    records.write_text("\n".join(text) + "\n")
    assert main(["show", session.id, "--replay", given.id]) == 1
    assert "first difference at drawn token 1" in capsys.readouterr().out


def test_a_reply_cut_off_by_kill_9_has_its_heat_and_can_be_drawn_again(store, tmp_path, capsys):
    model = str(write_model(tmp_path / "tiny"))
    session = store.new(model)
    session.add_message("user", "Tell me a story")
    session.close()
    endless = ["--temperature", "1", "--max-tokens", "60000", "--logit-bias", f"{SPECIALS.index('<|im_end|>')}=-100"]
    arguments = ["ask", "-C", session.id, "-m", model, *endless, "Go on"]
    with subprocess.Popen(
        [sys.executable, "-m", "chatapp.cli", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as asking:  # fmt: skip
        while session.path.read_bytes().count(b'"type":"partial"') < 2:
            assert asking.poll() is None, asking.stderr and asking.stderr.read()
            time.sleep(0.05)
        asking.kill()
    session = store.open(session.id)
    reply = session.conversation.path()[-1]
    tokens = session.tokens(reply.id)
    assert reply.finish == "error"
    assert "".join(token.text for token in tokens) == reply.content
    assert reply.mean_entropy == pytest.approx(sum(token.entropy for token in tokens) / len(tokens))
    session.close()
    assert main(["show", session.id, "--replay", reply.id, "--json"]) == 0
    assert lines(capsys)[0]["detail"] == f"{len(tokens)} token ids"


def test_what_cannot_be_drawn_again_says_why(saved, capsys):
    assert main(["show", saved, "--replay"]) == 1
    out = capsys.readouterr()
    assert "has no seed" in out.out
    assert "No reply here can be drawn again" in out.err
