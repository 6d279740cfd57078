"""The controller of one conversation, with real files and an engine without a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from chatapp.conversation.store import Store
from chatapp.protocol import Cancel, Choose, Failed, Forecast, Generate, Load
from chatapp.settings import Settings
from chatapp.tokens import Alternative
from chatapp.ui.changes import Drawn, Paused, PromptBack, Refused, Said
from chatapp.ui.chat import Chat
from chatapp.ui.link import EngineLink
from tests.ui.fake_engine import FakeEngine, pieces, token_id


class Bench:
    """A chat in a folder of its own."""

    def __init__(self, folder: Path, engine: FakeEngine) -> None:
        self.engine = engine
        self.store = Store(folder)
        self.link = EngineLink(self._start, lambda number, model: Load(number, model))
        self.link.open("fake-model")
        self.chat = Chat(self.store.new("fake-model", "Be kind."), self.link, Settings())

    async def _start(self) -> FakeEngine:
        return self.engine

    async def say(self, text: str) -> None:
        self.chat.send(text)
        await self.chat.settled()

    def texts(self) -> list[str]:
        return [message.content for message in self.chat.path()]

    def said(self) -> list[str]:
        return [change.text for change in self.chat.changes if isinstance(change, Said)]

    def reopened(self) -> list[str]:
        """What the file says, read by a second look at it."""
        return [m.content for m in self.store.open(self.chat.id, read_only=True).conversation.path()]


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    return lambda **options: Bench(tmp_path, FakeEngine(**options))


def numbered() -> Callable[[Generate, int], str]:
    """A script whose replies are all different: reply 1., reply 2. …"""
    count = iter(range(1, 100))
    return lambda request, candidate: f"reply {next(count)}."


async def test_the_message_is_on_disk_before_the_engine_sees_it(bench):
    seen: list[list[str]] = []

    def script(request: Generate, candidate: int) -> str:
        seen.append(b.reopened())
        return "fine."

    b = bench(script=script)
    await b.say("hello")
    assert seen == [["hello"]]
    assert b.texts() == ["hello", "fine."] == b.reopened()
    assert [turn.role for turn in b.engine.asked(Generate)[0].turns] == ["system", "user"]


async def test_sampled_ids_go_back_to_the_engine_until_the_reply_is_edited(bench):
    b = bench(script=lambda request, candidate: "all is well.")
    await b.say("one")
    await b.say("two")
    assert b.engine.asked(Generate)[1].turns[2].tokens == tuple(map(token_id, pieces("all is well.")))
    b.chat.edit(b.chat.path()[1].id, "all is bad.", keep_following=True)
    await b.say("three")
    edited = b.engine.asked(Generate)[2].turns[2]
    assert (edited.content, edited.tokens) == ("all is bad.", ())


async def test_regenerating_the_last_of_three_exchanges_makes_a_new_last_reply(bench):
    b = bench(script=numbered())
    for text in ("A", "C", "E"):
        await b.say(text)
    b.chat.regenerate(b.chat.path()[-1].id)
    await b.chat.settled()
    assert b.texts() == ["A", "reply 1.", "C", "reply 2.", "E", "reply 4."] == b.reopened()
    assert len(b.chat.session.conversation.siblings(b.chat.path()[-1].id)) == 2


async def test_an_edited_reply_can_keep_what_follows(bench):
    b = bench(script=numbered())
    await b.say("A")
    await b.say("B")
    b.chat.edit(b.chat.path()[1].id, "something else.", keep_following=True)
    assert b.texts() == ["A", "something else.", "B", "reply 2."] == b.reopened()
    assert not b.chat.busy


async def test_an_edited_prompt_is_answered_and_the_old_branch_stays(bench):
    b = bench(script=numbered())
    await b.say("A")
    await b.say("B")
    b.chat.edit(b.chat.path()[0].id, "A2", keep_following=False)
    await b.chat.settled()
    assert b.texts() == ["A2", "reply 3."]
    b.chat.sibling(b.chat.path()[0].id, -1)
    assert b.texts() == ["A", "reply 1.", "B", "reply 2."]


async def test_an_edited_reply_goes_on_from_its_new_end_also_after_reload(bench):
    b = bench(script=lambda request, candidate: " and more." if request.continue_last else "first words.")
    await b.say("A")
    b.chat.edit(b.chat.path()[1].id, "My own start", keep_following=False)
    b.chat.extend(b.chat.path()[1].id)
    await b.chat.settled()
    assert b.texts() == ["A", "My own start and more."] == b.reopened()
    assert b.engine.asked(Generate)[-1].turns[-1].content == "My own start"


async def test_stopping_the_prefill_gives_the_prompt_back(bench):
    b = bench(prefill_steps=1000, prefill_delay=0.001)
    b.chat.send("a long prompt")
    while not b.engine.asked(Generate):
        await _tick()
    b.chat.stop()
    await b.chat.settled()
    assert b.texts() == []
    assert PromptBack("a long prompt") in b.chat.changes
    assert b.engine.asked(Cancel)


async def test_stopping_a_reply_keeps_what_is_there(bench):
    b = bench(rate=100, script=lambda request, candidate: "word " * 500)
    b.chat.send("go")
    while not (b.chat.reply and b.chat.reply.written and len(b.chat.reply.written[0].writer.tokens) > 3):
        await _tick()
    b.chat.stop()
    await b.chat.settled()
    last = b.chat.path()[-1]
    assert last.finish == "cancelled"
    assert last.content.startswith("word word")
    assert b.texts() == b.reopened()


async def test_picking_another_token_goes_on_from_it(bench):
    b = bench(script=lambda request, candidate: " then this." if request.continue_last else "I like tea a lot.")
    await b.say("what?")
    reply = b.chat.path()[-1]
    b.chat.pick(reply.id, 2, Alternative(77, " coffee", -1.5))
    await b.chat.settled()
    assert b.texts() == ["what?", "I like coffee then this."] == b.reopened()
    asked = b.engine.asked(Generate)[-1]
    assert asked.continue_last
    assert asked.turns[-1].tokens == (*map(token_id, ("I", " like")), 77)
    tokens = b.chat.session.tokens(b.chat.path()[-1].id)
    assert [t.text for t in tokens] == ["I", " like", " coffee", " then", " this."]
    assert tokens[2].surprisal == 1.5
    assert tokens[2].entropy == b.chat.session.tokens(reply.id)[2].entropy


async def test_a_stop_right_behind_the_message_is_not_lost(bench):
    b = bench()
    b.chat.send("Hello")
    b.chat.stop()
    await asyncio.wait_for(b.chat.settled(), 60)
    assert b.texts() == []
    assert [change.text for change in b.chat.changes if isinstance(change, PromptBack)] == ["Hello"]
    assert b.engine.asked(Generate) == []


async def test_several_replies_at_once_are_all_kept_and_one_is_chosen(bench):
    b = bench(script=lambda request, candidate: f"answer {candidate}.")
    await b.say("what?")
    b.chat.regenerate(b.chat.path()[-1].id, candidates=4)
    await b.chat.settled()
    drawn = next(change for change in b.chat.changes if isinstance(change, Drawn))
    assert [b.chat.message(id).content for id in drawn.messages] == [f"answer {n}." for n in range(4)]
    b.chat.choose(drawn.messages[2])
    assert b.texts() == ["what?", "answer 2."] == b.reopened()
    await _tick()
    choose = b.engine.asked(Choose)[0]
    assert (choose.generation, choose.candidate) == (b.engine.asked(Generate)[-1].request, 2)


async def test_a_pause_tells_what_would_have_come(bench):
    b = bench(script=lambda request, candidate: "go on." if request.continue_last else "a a a zzz b")
    b.chat.set_option("pause_above", 3.0)
    await b.say("x")
    paused = next(change for change in b.chat.changes if isinstance(change, Paused))
    assert paused.pending.entropy > 3.0
    assert b.chat.message(paused.message).finish == "paused"
    b.chat.set_option("pause_above", None)
    b.chat.resume(paused.message, paused.pending, paused.pending.top[1])
    await b.chat.settled()
    assert b.texts()[-1].endswith(" maybego on.")


async def test_while_a_reply_is_written_changes_are_refused_with_a_reason(bench):
    b = bench(script=lambda request, candidate: "word " * 50)
    await b.say("first")
    b.engine.gate.clear()
    b.chat.send("second")
    await _tick()
    reply = b.chat.path()[1].id
    refused = [
        lambda: b.chat.send("third"),
        lambda: b.chat.edit(reply, "x", keep_following=True),
        lambda: b.chat.regenerate(reply),
        lambda: b.chat.delete(reply),
        lambda: b.chat.undo(),
        lambda: b.chat.sibling(reply, 1),
        lambda: b.chat.set_system("new"),
    ]
    for act in refused:
        with pytest.raises(Refused, match="Esc stops it"):
            act()
    b.engine.gate.set()
    await b.chat.settled()
    assert b.texts()[0::2] == ["first", "second"]


async def test_a_killed_engine_leaves_what_was_written_and_can_be_started_again(bench):
    b = bench(script=lambda request, candidate: "word " * 50, rate=200)
    b.chat.send("go")
    while not (b.chat.reply and b.chat.reply.written and b.chat.reply.written[0].writer.tokens):
        await _tick()
    b.engine.die()
    await b.chat.settled()
    assert b.link.status.phase == "lost"
    assert b.chat.path()[-1].finish == "error"
    assert b.texts() == b.reopened()
    assert any("F5" in text for text in b.said())
    b.engine = FakeEngine(script=lambda request, candidate: "back again.")
    b.link.restart()
    b.chat.regenerate(b.chat.path()[-1].id)
    await b.chat.settled()
    assert b.texts() == ["go", "back again."]


async def test_starting_the_engine_again_in_the_middle_of_a_reply_keeps_what_is_there(bench):
    b = bench(script=lambda request, candidate: "word " * 500, rate=200)
    b.chat.send("go")
    while not (b.chat.reply and b.chat.reply.written and b.chat.reply.written[0].writer.tokens):
        await _tick()
    old, b.engine = b.engine, FakeEngine()
    b.link.restart()
    old.die("It was closed.")
    await b.chat.settled()
    await b.link.ready()
    assert b.link.status.phase == "ready"
    assert b.chat.path()[-1].finish == "error"
    assert b.texts() == b.reopened()


async def test_a_refusal_of_the_engine_is_told_and_the_message_stays(bench):
    b = bench()
    b.engine.failure = Failed(0, "too_long", "The prompt is longer than the window; shorten it.")
    await b.say("very long")
    assert "The prompt is longer than the window; shorten it." in b.said()
    assert b.texts() == ["very long"] == b.reopened()


async def test_the_forecast_asks_for_the_edited_branch(bench):
    b = bench(script=numbered())
    await b.say("A")
    await b.say("B")
    first = b.chat.path()[0]
    kept = await b.chat.forecast(first.id, "A2", keep_following=True)
    cut = await b.chat.forecast(first.id, "A2", keep_following=False)
    asked = b.engine.asked(Forecast)
    assert [turn.content for turn in asked[0].turns] == ["Be kind.", "A2", "reply 1.", "B", "reply 2."]
    assert [turn.content for turn in asked[1].turns] == ["Be kind.", "A2"]
    assert kept.prefilled > cut.prefilled > 0
    b.chat.set_option("thinking", False)  # it changes the template's own words
    await b.chat.forecast(first.id, "A2", keep_following=False)
    assert [request.thinking for request in b.engine.asked(Forecast)] == [None, None, False]


async def test_undo_takes_an_edit_back_and_redo_does_it_again(bench):
    b = bench(script=numbered())
    await b.say("A")
    b.chat.edit(b.chat.path()[1].id, "mine", keep_following=True)
    b.chat.undo()
    assert b.texts() == ["A", "reply 1."]
    b.chat.redo()
    assert b.texts() == ["A", "mine"]
    with pytest.raises(Refused, match="nothing to redo"):
        b.chat.redo()


async def test_options_of_the_conversation_lie_over_those_of_the_person(bench):
    b = bench()
    b.chat.set_option("sampling", {"temperature": 0.3})
    await b.say("x")
    assert b.engine.asked(Generate)[0].sampling.temperature == 0.3
    b.chat.set_option("sampling", None)
    assert b.chat.sampling.temperature is None


async def test_a_reply_keeps_what_it_was_made_from(bench):
    b = bench()
    b.chat.set_option("thinking", False)
    await b.say("go")
    first = b.chat.path()[-1]
    assert first.setup == {"thinking": False, "max_kv_size": 2048}
    token = b.chat.session.tokens(first.id)[1]
    b.chat.pick(first.id, 1, token.top[1])
    await b.chat.settled()
    picked = b.chat.path()[-1]
    assert picked.given == 2
    assert picked.content.startswith("You maybe")
    assert [t.text for t in b.chat.session.tokens(picked.id)][:2] == ["You", " maybe"]


async def test_the_figure_of_the_cache_is_that_of_the_chosen_reply(bench):
    b = bench()
    await b.say("go")
    b.chat.regenerate(b.chat.path()[-1].id, candidates=3)
    await b.chat.settled()
    chosen = next(c for c in b.chat.changes if isinstance(c, Drawn)).messages[1]
    b.chat.choose(chosen)
    assert b.chat.ended is not None
    assert b.chat.started is not None
    assert b.chat.ended.candidate == 1
    assert b.chat.ended.cached == b.chat.started.prompt_tokens + len(b.chat.session.tokens(chosen))


async def _tick() -> None:
    await asyncio.sleep(0.005)
