"""What the person hears of saved prompt caches, and what becomes of them when a conversation is closed or removed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chatapp import paths
from chatapp.cli import main
from chatapp.client import RequestFailed
from chatapp.conversation.store import Store
from chatapp.protocol import Forecast, Forecasted, Leave, Load, Note
from chatapp.settings import Settings
from chatapp.ui.changes import Said
from chatapp.ui.link import EngineLink
from chatapp.ui.requests import SYSTEM
from chatapp.ui.workspace import Workspace
from tests.ui.app.stage import stage
from tests.ui.fake_engine import FakeEngine

DAMAGED = "The saved prompt cache is damaged and was ignored."
FULL = "The prompt cache could not be saved (No space left on device); the conversation will be read again."
TOO_LONG = (
    "The message has 900 tokens, and the cache of 64 has room for 59 of them: shorten it, or choose a larger "
    "max-kv-size."
)


class NotingEngine(FakeEngine):
    """Notes something at each forecast and at each leave; refuses forecasts of endless messages."""

    async def _forecast(self, request):
        await self.gate.wait()
        yield Note(request.request, DAMAGED)
        if any("endless" in turn.content for turn in request.turns):
            raise RequestFailed(TOO_LONG, "too_long")
        async for event in super()._forecast(request):
            yield event

    async def _done(self, request):
        if isinstance(request, Leave) and not request.removed:
            yield Note(request.request, FULL)
        async for event in super()._done(request):
            yield event


@pytest.fixture
async def workspace(tmp_path: Path):
    engine = NotingEngine()

    async def start() -> FakeEngine:
        return engine

    store = Store(tmp_path)
    link = EngineLink(start, lambda number, model: Load(number, model))
    link.open("fake-model")
    workspace = Workspace(store, link, Settings(), store.new("fake-model", "Be kind."))
    workspace.chat.send("Hello")
    await workspace.chat.settled()
    workspace.chat.changes.clear()
    workspace.engine = engine
    yield workspace
    await workspace.close()


def texts(said) -> list[str]:
    return [change.text for change in said if isinstance(change, Said)]


async def test_a_note_that_comes_with_a_forecast_is_told(workspace):
    """It comes once: by the time of the reply the cache is known to be lost."""
    message = workspace.chat.path()[0]
    assert isinstance(await workspace.chat.forecast(message.id, "Hi", keep_following=False), Forecasted)
    assert texts(workspace.chat.changes) == [DAMAGED]


async def test_a_note_is_told_even_where_another_key_made_the_forecast_stale(workspace):
    workspace.engine.gate.clear()
    message = workspace.chat.path()[0]
    stale = asyncio.create_task(workspace.chat.forecast(message.id, "H", keep_following=False))
    while not workspace.engine.asked(Forecast):
        await asyncio.sleep(0.01)
    stale.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stale
    workspace.engine.gate.set()
    while not workspace.chat.at_rest:
        await asyncio.sleep(0.01)
    assert texts(workspace.chat.changes) == [DAMAGED]


async def test_an_edit_that_would_be_refused_says_so_instead_of_numbers(workspace):
    message = workspace.chat.path()[0]
    answer = await workspace.chat.forecast(message.id, "endless", keep_following=False)
    assert answer == TOO_LONG


async def test_the_whole_refusal_stands_below_the_edited_text(tmp_path):
    async with stage(tmp_path, NotingEngine()) as s:
        await s.say("one")
        await s.press("escape", "k", "e")
        await s.type(" endless")
        shown = s.screen.query_one("#edit-forecast")
        await s.until(lambda: str(shown.render()) == TOO_LONG)
        assert shown.size.width < len(TOO_LONG) <= shown.size.width * shown.size.height


async def test_an_edit_of_the_system_message_has_a_forecast_too(workspace):
    assert isinstance(await workspace.chat.forecast(SYSTEM, "Be brief.", keep_following=True), Forecasted)
    asked = workspace.engine.asked(Forecast)[-1]
    assert [turn.content for turn in asked.turns] == ["Be brief.", *(m.content for m in workspace.chat.path())]
    assert asked.continue_last
    await workspace.chat.forecast(SYSTEM, " ", keep_following=True)
    assert [turn.role for turn in workspace.engine.asked(Forecast)[-1].turns] == ["user", "assistant"]


async def test_why_a_cache_was_not_saved_is_told_when_another_conversation_is_shown(workspace):
    before = workspace.chat
    workspace.new()
    while not before.at_rest:
        await asyncio.sleep(0.01)
    assert texts(workspace.tend()) == [FULL]
    assert texts(workspace.tend()) == []


async def test_why_a_cache_was_not_saved_is_told_at_the_end(workspace):
    assert FULL in await workspace.close()


async def test_a_conversation_in_the_trash_leaves_no_saved_cache(workspace):
    chat = workspace.chat
    file, part, other = (paths.prompt_cache(name) for name in (chat.id, f"{chat.id}.rank1of2", f"{chat.id}2"))
    for each in (file, part, other):
        each.write_bytes(b"tokens")
    workspace.new()
    workspace.forget(chat.id)
    while not chat.at_rest:
        await asyncio.sleep(0.01)
    assert [request.removed for request in workspace.engine.asked(Leave)] == [False, True]
    assert workspace.engine.asked(Leave)[-1].cache_file == str(file)
    assert list(file.parent.iterdir()) == [other]


def test_rm_takes_the_saved_cache_along(capsys):
    store = Store()
    session = store.new("m")
    session.add_message("user", "Hello")
    session.close()
    file = paths.prompt_cache(session.id)
    file.write_bytes(b"tokens")
    assert main(["rm", session.id]) == 0
    assert not file.exists()
    file.write_bytes(b"tokens")
    assert main(["rm", "--restore", session.id]) == 0
    assert file.exists()


async def test_where_no_cache_can_be_saved_replies_are_made_all_the_same(workspace):
    (paths.cache_dir() / "prompts").rmdir()
    (paths.cache_dir() / "prompts").touch()
    workspace.chat.send("Hello again")
    await workspace.chat.settled()
    assert len(workspace.chat.path()) == 4
    workspace.forget(workspace.chat.id)
