"""Each action by its key, on the running app: what is shown, what is in the file, what the engine was asked."""

from __future__ import annotations

import pytest

from chatapp.protocol import Cancel, Choose, Generate
from chatapp.ui.screens.compare import CompareScreen
from chatapp.ui.screens.help import HelpScreen
from chatapp.ui.widgets.side import InspectorPanel
from tests.ui.app.stage import stage
from tests.ui.fake_engine import FakeEngine


def numbered():
    count = iter(range(1, 1000))
    return lambda request, candidate: f"reply {next(count)} is here."


async def test_enter_sends_and_the_reply_is_shown_and_saved(tmp_path):
    async with stage(tmp_path) as s:
        await s.type("hello")
        await s.press("enter")
        await s.settled()
        assert s.texts[0] == "hello"
        assert s.texts[1].startswith("You said **hello**")
        assert s.texts == s.reopened()
        assert s.screen.prompt.area.text == ""


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter"])
async def test_a_new_line_does_not_send(tmp_path, key):
    async with stage(tmp_path) as s:
        await s.type("a")
        await s.press(key)
        await s.type("b")
        assert s.screen.prompt.area.text == "a\nb"
        assert s.texts == []
        await s.press("enter")
        await s.settled()
        assert s.texts[0] == "a\nb"


async def test_escape_stops_a_reply_and_keeps_what_is_there(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: "word " * 2000, rate=300)) as s:
        await s.type("go")
        await s.press("enter")
        await s.until(lambda: len(s.texts) == 2 and len(s.texts[1]) > 20)
        await s.press("escape")
        await s.settled()
        assert s.engine.asked(Cancel)
        assert s.workspace.chat.path()[-1].finish == "cancelled"
        assert s.texts == s.reopened()


async def test_escape_in_the_prefill_brings_the_prompt_back(tmp_path):
    async with stage(tmp_path, FakeEngine(prefill_steps=5000, prefill_delay=0.002)) as s:
        await s.type("a long story")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.stage == "prefill")
        await s.press("escape")
        await s.settled()
        assert s.screen.prompt.area.text == "a long story"
        assert s.texts == []


async def test_up_in_an_empty_prompt_edits_the_last_message(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.say("two")
        await s.press("up")
        await s.until(lambda: s.screen.edit_box.editing)
        assert s.screen.edit_box.area.text == "two"
        await s.type(" and a half")
        await s.press("enter")
        await s.settled()
        assert s.texts == ["one", "reply 1 is here.", "two and a half", "reply 3 is here."] == s.reopened()


async def test_an_edit_shows_what_will_be_read_again_before_it_is_confirmed(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.press("escape", "k", "e")
        await s.type("!")
        shown = s.screen.query_one("#edit-forecast")
        await s.until(lambda: "this edit reads 1 token again" in str(shown.render()))
        await s.press("escape")
        assert s.screen.edit_box.editing is None
        assert s.texts == ["one", "reply 1 is here."]


async def test_a_reply_edited_in_place_keeps_later_turns_and_tab_branches_instead(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.say("two")
        await s.press("escape", "g", "j", "e")
        assert s.screen.edit_box.editing.keep
        await s.type(" Mine.")
        await s.press("enter")
        assert s.texts == ["one", "reply 1 is here. Mine.", "two", "reply 2 is here."] == s.reopened()
        await s.press("e", "tab")
        await s.type(" Cut.")
        await s.press("enter")
        await s.until(lambda: len(s.texts) == 2)
        assert s.texts == ["one", "reply 1 is here. Mine. Cut."] == s.reopened()


async def test_regenerate_makes_an_alternative_and_arrows_go_between_them(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.press("escape", "r")
        await s.settled()
        assert s.texts[-1] == "reply 2 is here."
        assert s.screen.transcript.document.entries[-1].view.alternatives == 2
        await s.press("left")
        assert s.texts[-1] == "reply 1 is here."
        await s.press("left")
        assert any("no other alternative" in text for text in s.said)
        await s.press("right")
        assert s.texts[-1] == "reply 2 is here." == s.reopened()[-1]


async def test_four_candidates_are_compared_and_one_is_chosen(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: f"version {c}.")) as s:
        await s.say("one")
        await s.press("escape", "R")
        await s.settled()
        await s.until(lambda: isinstance(s.app.screen, CompareScreen))
        await s.press("right", "right", "enter")
        await s.until(lambda: s.texts[-1] == "version 2.")
        assert s.reopened()[-1] == "version 2."
        await s.until(lambda: s.engine.asked(Choose))
        assert s.engine.asked(Choose)[0].candidate == 2


async def test_continue_goes_on_from_the_end(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: " more." if r.continue_last else "start")) as s:
        await s.say("one")
        await s.press("escape", "c")
        await s.settled()
        assert s.texts[-1] == "start more." == s.reopened()[-1]


async def test_delete_undo_redo(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.say("two")
        await s.press("escape", "k", "d")
        assert s.texts == ["one", "reply 1 is here."]
        await s.press("u")
        assert len(s.texts) == 4
        await s.press("ctrl+r")
        assert len(s.texts) == 2
        assert s.texts == s.reopened()


async def test_copy_gives_the_source_and_the_last_code_block(tmp_path, monkeypatch):
    source = "Look:\n\n```python\nprint(1)\n```\n\nand\n\n```\nlast\n```\n"
    monkeypatch.setattr("chatapp.ui.clipboard.program", lambda: None)
    async with stage(tmp_path, FakeEngine(lambda r, c: source)) as s:
        await s.say("one")
        await s.press("escape", "y")
        await s.until(lambda: s.app.clipboard == source)
        await s.press("Y")
        await s.until(lambda: s.app.clipboard == "last\n")


async def test_branch_makes_another_conversation_with_what_was_before(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.say("two")
        old = s.workspace.chat.id
        await s.press("escape", "g", "j", "b")
        assert s.workspace.chat.id != old
        assert s.texts == ["one", "reply 1 is here."]
        assert len(s.store.open(old, read_only=True).conversation.path()) == 4


async def test_a_branch_keeps_the_settings_of_its_conversation(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("/set temperature 0.3")
        await s.say("one")
        await s.press("escape", "b")
        await s.say("two")
        assert s.engine.asked(Generate)[-1].sampling.temperature == 0.3


async def test_attention_is_switched_on_shown_and_never_switched_off_by_looking(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.press("escape", "t", "a")
        assert "recorded from the next reply on" in s.said[-1]
        await s.press("a")
        assert "was not recorded" in s.warned[-1]
        await s.say("two")
        assert s.engine.asked(Generate)[-1].attention
        await s.say("/attention off")
        await s.say("three")
        assert not s.engine.asked(Generate)[-1].attention


async def test_picking_an_alternative_at_a_token_goes_on_from_there(tmp_path):
    engine = FakeEngine(lambda r, c: " and then this." if r.continue_last else "The cat sat down.")
    async with stage(tmp_path, engine) as s:
        await s.say("one")
        await s.press("escape", "t", "l", "l")
        assert s.screen.transcript.token_cursor == 2
        assert s.screen.query(InspectorPanel)
        await s.press("4")
        await s.settled()
        assert s.texts[-1] == "The cat never and then this." == s.reopened()[-1]
        asked = s.engine.asked(Generate)[-1]
        assert asked.continue_last
        assert [len(turn.tokens) for turn in asked.turns] == [0, 3]
        await s.press("left")
        assert s.texts[-1] == "The cat sat down."


async def test_several_continuations_from_a_token(tmp_path):
    engine = FakeEngine(lambda r, c: f" way {c}." if r.continue_last else "The cat sat down.")
    async with stage(tmp_path, engine) as s:
        await s.say("one")
        await s.press("escape", "t", "l", "l", "s")
        await s.settled()
        await s.until(lambda: isinstance(s.app.screen, CompareScreen))
        await s.press("4")
        await s.until(lambda: s.texts[-1] == "The cat way 3.")
        assert s.reopened()[-1] == "The cat way 3."


async def test_keys_of_tokens_hold_only_among_tokens(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: "one two three")) as s:
        await s.say("one")
        await s.press("escape", "h")
        assert s.screen.transcript.heat == "surprisal"  # the one after "both"
        await s.press("t", "l")
        assert s.screen.transcript.token_cursor == 1
        await s.press("h")
        assert s.screen.transcript.token_cursor == 0
        assert s.screen.transcript.heat == "surprisal"
        await s.press("escape", "h")
        assert s.screen.transcript.token_cursor is None
        assert s.screen.transcript.heat == "off"


async def test_the_system_message_is_edited_and_sent(tmp_path):
    async with stage(tmp_path) as s:
        await s.type("/system")
        await s.press("escape", "enter")
        await s.until(lambda: s.screen.edit_box.editing)
        await s.type("Be brief.")
        await s.press("enter")
        assert s.texts == ["Be brief."]
        await s.say("one")
        assert s.engine.asked(Generate)[0].turns[0].content == "Be brief."


async def test_sampling_settings_of_the_conversation(tmp_path):
    async with stage(tmp_path) as s:
        await s.press("f8")
        await s.press("tab")
        await s.type("0.25")
        await s.press("enter")
        await s.say("one")
        assert s.engine.asked(Generate)[0].sampling.temperature == 0.25
        await s.say("/set top_k 7")
        await s.say("two")
        assert s.engine.asked(Generate)[1].sampling.top_k == 7
        assert s.engine.asked(Generate)[1].sampling.temperature == 0.25
        for wrong, words in (
            ("top_k lots", "does not fit top_k, which takes a whole number"),
            ("top_k 1.5", "takes a whole number"),
            ("top_p much", "takes a number"),
            ("top_p 7", "does not fit top_p: must be from 0 to 1, not 7.0."),
            ("temperature nan", "finite"),
            ("max_tokens 0", "at least 1"),
            ("logit_bias [1]", "takes a JSON object"),
            ("sampler nonesuch", "there is no sampler “nonesuch”; choose one of standard, adaptive"),
        ):
            await s.say(f"/set {wrong}")
            assert words in s.warned[-1]
        assert s.workspace.chat.option("sampling", {}) == {"temperature": 0.25, "top_k": 7}


async def test_pausing_asks_which_token_comes_next(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: " on." if r.continue_last else "a a zzz a")) as s:
        await s.say("/pause 3")
        await s.say("one")
        await s.until(lambda: s.app.screen is not s.screen)
        await s.press("down", "down", "enter")
        await s.settled()
        assert s.texts[-1] == "a a perhaps on." == s.reopened()[-1]


async def test_help_is_made_for_where_one_is(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one")
        for keys, here in ((("f1",), "Prompt"), (("escape", "f1"), "Transcript"), (("t", "f1"), "Tokens")):
            await s.press(*keys)
            assert isinstance(s.app.screen, HelpScreen)
            assert f"{here} (you are here)" in str(s.app.screen.query_one("VerticalScroll Static").render())
            await s.press("escape")


async def test_while_a_reply_streams_every_action_is_safe_or_refused_with_a_reason(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        s.engine.gate.clear()
        s.screen.prompt.area.show_text("two")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.written)
        s.screen.focus_transcript()
        for key in ("r", "R", "c", "d", "u", "ctrl+r", "e", "left", "b"):
            s.screen.transcript.first_message()
            before = len(s.said)
            await s.press(key)
            assert len(s.said) > before or key == "b", key
        s.engine.gate.set()
        s.workspace.open(s.workspace.chat.id)
        await s.until(lambda: not s.workspace.elsewhere)


async def test_while_an_editor_is_open_other_changes_are_refused(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        await s.press("escape", "e")
        for command in ("message.delete", "message.regenerate", "chat.set", "app.new"):
            before = len(s.said)
            await s.screen.run(command, "x")
            await s.pilot.pause()
            assert "Finish the edit first" in s.said[before]
        await s.press("escape")
        assert s.texts == ["one", "reply 1 is here."]


async def test_a_dead_engine_is_said_calmly_and_f5_starts_another(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await s.say("one")
        s.engine.die("The engine was killed by the system for want of memory.")
        banner = s.screen.query_one("#banner")
        await s.until(lambda: banner.display and "want of memory" in str(banner.render()))  # its last words come later
        await s.press("f5")
        await s.until(lambda: s.workspace.link.status.phase == "ready")
        await s.until(lambda: not s.screen.query_one("#banner").display)
        await s.say("two")
        assert s.texts == ["one", "reply 1 is here.", "two", "reply 2 is here."] == s.reopened()


async def test_text_of_the_person_and_the_model_is_never_markup(tmp_path):
    nasty = "[bold]x[/] [/] [/mnt/data] \x1b[2J"
    async with stage(tmp_path, FakeEngine(lambda r, c: nasty)) as s:
        await s.say(nasty)
        assert s.texts == [nasty, nasty]
        await s.screen.run("chat.rename", nasty)
        assert "[/mnt/data]" in str(s.screen.query_one("#title").render())
        await s.say(f"/{nasty}")
        assert any("[bold]x[/]" in text for text in s.said)
