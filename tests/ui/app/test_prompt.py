"""The prompt: chips, attachments, history, drafts, completion."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from chatapp.protocol import Generate
from chatapp.ui.prompt import attachments
from chatapp.ui.prompt.attachments import AttachmentError
from chatapp.ui.prompt.chips import Chips
from chatapp.ui.prompt.drafts import Drafts
from chatapp.ui.prompt.history import History
from tests.ui.app.stage import stage


@given(st.lists(st.text(alphabet="ab⟦⟧ \n·1", max_size=30)), st.integers(0, 3))
def test_a_text_is_the_same_after_folding_and_unfolding(lines, long):
    text = "\n".join(lines) + "x" * (9000 if long == 0 else 0)
    chips = Chips()
    folded = chips.fold(text)
    assert chips.unfold(folded) == text
    assert max(map(len, folded.split("\n"))) <= 8000


def test_a_mark_that_was_typed_by_hand_stays():
    chips = Chips()
    mark = chips.of_paste("y" * 5000)
    assert chips.unfold(f"⟦paste 9 · 2 KB⟧ {mark}") == "⟦paste 9 · 2 KB⟧ " + "y" * 5000


async def test_a_large_paste_is_a_chip_that_goes_out_whole_and_comes_off_whole(tmp_path):
    line = "0123456789" * 20_000
    async with stage(tmp_path) as s:
        await s.type("see ")
        s.app.post_message(events.Paste(line))
        await s.until(lambda: "⟦paste" in s.screen.prompt.area.text)
        assert len(s.screen.prompt.area.text) < 40
        await s.press("backspace")
        assert s.screen.prompt.area.text == "see "
        s.app.post_message(events.Paste(line))
        await s.until(lambda: "⟦paste" in s.screen.prompt.area.text)
        await s.type(" ok")
        await s.press("enter")
        await s.settled()
        assert s.engine.asked(Generate)[0].turns[0].content == f"see {line} ok"


async def test_a_message_with_a_long_line_is_edited_without_its_length(tmp_path):
    line = "0123456789" * 20_000
    async with stage(tmp_path) as s:
        await s.say(f"{line}\nend")
        await s.press("up")
        await s.until(lambda: s.screen.edit_box.editing)
        assert len(s.screen.edit_box.area.text) < 60
        await s.type("!")
        await s.press("enter")
        await s.settled()
        assert s.texts[0] == f"{line}\nend!"


def test_a_named_file_is_attached_below_in_a_fence_that_it_cannot_close(tmp_path):
    (tmp_path / "a.py").write_text("print('```')\n")
    (tmp_path / "b c.txt").write_text("plain")
    text = attachments.attach('compare @a.py with @"b c.txt" and mail@a.py @nothing', tmp_path)
    assert text == (
        'compare @a.py with @"b c.txt" and mail@a.py @nothing\n\n'
        "`a.py`:\n````py\nprint('```')\n````\n\n"
        "`b c.txt`:\n```txt\nplain\n```"
    )


@pytest.mark.parametrize(
    ("data", "words"), [(b"\xff\xfe\x00", "not a UTF-8"), (b"a\x00b", "binary"), (b"x" * 1_000_001, "1.0 MB")]
)
def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path, data, words):
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(AttachmentError, match=words) as caught:
        attachments.attach("@f", tmp_path)
    assert str(caught.value).startswith("f ")


def test_paths_complete_folders_first(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.md").write_text("")
    (tmp_path / "some.txt").write_text("")
    (tmp_path / ".hidden").write_text("")
    assert attachments.candidates("s", tmp_path) == ["sub/", "some.txt"]
    assert attachments.candidates("sub/", tmp_path) == ["sub/x.md"]
    assert attachments.candidates("", tmp_path) == ["sub/", "some.txt"]
    assert attachments.candidates("none/", tmp_path) == []


async def test_tab_completes_a_path(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("content of notes")
    monkeypatch.chdir(tmp_path)
    async with stage(tmp_path / "chats") as s:
        await s.type("read @no")
        await s.press("tab")
        assert s.screen.prompt.area.text == "read @notes.txt"
        assert "notes.txt" in str(s.screen.query_one("#attachments").render())
        await s.press("enter")
        await s.settled()
        assert "content of notes" in s.engine.asked(Generate)[0].turns[0].content


async def test_a_pasted_word_with_an_at_attaches_nothing(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("secret")
    monkeypatch.chdir(tmp_path)
    async with stage(tmp_path / "chats") as s:
        s.app.post_message(events.Paste("@notes.txt " * 1000))
        await s.until(lambda: s.screen.prompt.area.text)
        await s.press("enter")
        await s.settled()
        assert "secret" not in s.engine.asked(Generate)[0].turns[0].content


def test_history_steps_back_and_forth_and_is_private(tmp_path):
    path = tmp_path / "prompts.jsonl"
    history = History(path)
    for prompt in ("one", "two\nlines", "two\nlines"):
        history.add(prompt)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = History(path)
    assert again.older("draft") == "two\nlines"
    assert again.older("") == "one"
    assert again.older("") is None
    assert again.newer() == "two\nlines"
    assert again.newer() == "draft"
    assert again.newer() is None


def test_a_damaged_history_costs_one_prompt(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(b'"one"\n{garbage\n"two"\n\xff\xfe\n')
    assert History(path).entries == ["one", "two"]


def test_a_draft_is_private_kept_and_removed_when_blank(tmp_path):
    drafts = Drafts(tmp_path)
    assert drafts.save("c", "text") is None
    assert stat.S_IMODE((tmp_path / "c.txt").stat().st_mode) == 0o600
    assert Drafts(tmp_path).load("c") == "text"
    drafts.save("c", "  ")
    assert list(tmp_path.iterdir()) == []


async def test_a_draft_is_there_after_a_restart(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one")
        id = s.workspace.chat.id
        await s.type("half a tho")
        s.screen.keep_draft()
    async with stage(tmp_path, open_id=id) as s:
        assert s.screen.prompt.area.text == "half a tho"
        assert s.texts[0] == "one"


async def test_what_is_typed_before_the_chat_is_there_stands_in_the_prompt(tmp_path):
    async with stage(tmp_path, early="quick") as s:
        await s.until(lambda: s.screen.prompt.area.text == "quick")


async def test_commands_complete_and_enter_runs_the_chosen_one(tmp_path):
    async with stage(tmp_path) as s:
        await s.type("/scre")
        options = s.screen.query_one("#completions")
        assert options.display
        await s.press("escape")
        assert not options.display
        await s.type("e")
        assert options.display
        await s.press("enter")
        await s.until(lambda: any("Written to" in text for text in s.said))
        assert s.screen.prompt.area.text == ""
        assert s.texts == []


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Screenshots are written where tests may write."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("/heat su", "/heat surprisal"), ("/set temp", "/set temperature "), ("/score of", "/score off")],
)
async def test_arguments_of_commands_are_completed(tmp_path, typed, completed):
    async with stage(tmp_path) as s:
        await s.type(typed)
        await s.press("tab")
        assert s.screen.prompt.area.text == completed


async def test_names_of_branches_and_themes_are_completed(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("hello")
        await s.say("/name-branch first try")
        for typed, completed in (("/branches f", "/branches first try"), ("/theme daylig", "/theme daylight")):
            s.screen.prompt.area.show_text("")
            await s.type(typed)
            await s.press("tab")
            assert s.screen.prompt.area.text == completed


async def test_the_draft_of_a_conversation_that_has_begun_is_not_shown_in_the_next_new_one(tmp_path):
    async with stage(tmp_path) as s:
        await s.type("hello")
        s.screen.keep_draft()  # as the clock does
        await s.press("enter")
        await s.settled()
        await s.press("ctrl+n")
        assert s.screen.prompt.area.text == ""
        await s.type("begun")
        await s.press("ctrl+n")
        assert s.screen.prompt.area.text == "begun"


async def test_what_is_pasted_on_a_message_goes_to_the_prompt_or_the_open_editor(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one")
        await s.press("escape", "k")
        s.app.post_message(events.Paste("pasted\r\ndq"))
        await s.until(lambda: s.screen.prompt.area.full_text == "pasted\ndq")
        await s.until(lambda: s.screen.focused is s.screen.prompt.area)
        await s.press("escape", "e")
        s.screen.transcript.focus()
        await s.until(lambda: s.screen.focused is s.screen.transcript)
        s.app.post_message(events.Paste(" more"))
        await s.until(lambda: s.screen.edit_box.area.full_text.endswith(" more"))
        assert s.screen.prompt.area.full_text == "pasted\ndq"


async def test_an_edit_that_was_not_confirmed_when_the_program_ended_is_there_again(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("hello")
        id = s.workspace.chat.id
        await s.press("escape", "k", "e")
        await s.until(lambda: s.screen.edit_box.editing)
        await s.type(" world")
        await s.until(lambda: s.screen.draft_kept)  # the clock's doing
    async with stage(tmp_path, open_id=id) as s:
        await s.press("escape", "k", "e")
        await s.until(lambda: s.screen.edit_box.editing)
        assert s.screen.edit_box.area.text == "hello world"
        await s.press("escape", "e")
        await s.until(lambda: s.screen.edit_box.editing)
        assert s.screen.edit_box.area.text == "hello"
        await s.press("escape", "j", "e")
        await s.until(lambda: s.screen.edit_box.editing)
        assert s.screen.edit_box.area.text == s.texts[1]
