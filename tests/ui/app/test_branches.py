"""Named branches, by command: named, listed, gone back to, deleted."""

from __future__ import annotations

from chatapp.ui.screens.pick import PickScreen
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine


def numbered():
    count = iter(range(1, 1000))
    return lambda request, candidate: f"reply {next(count)} is here."


async def two_branches(s: Stage) -> None:
    """A question with two replies; the first of them is named "calm", the second is shown."""
    await s.say("question")
    await s.say("/name-branch calm")
    await s.press("escape", "r")
    await s.settled()
    assert s.texts == ["question", "reply 2 is here."]


def title(s: Stage) -> str:
    return str(s.screen.query_one("#title").render())


async def test_a_named_branch_is_listed_and_gone_back_to(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await two_branches(s)
        assert "calm" not in title(s)
        await s.say("/branches")
        assert isinstance(s.app.screen, PickScreen)
        await s.press("enter")
        await s.until(lambda: s.texts == ["question", "reply 1 is here."])
        assert title(s).endswith("calm")
        assert s.reopened() == s.texts


async def test_a_deleted_branch_takes_its_own_messages_only_and_undo_brings_them_back(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await two_branches(s)
        await s.say("/branches calm")
        await s.say("/delete-branch calm")
        await s.until(lambda: s.texts == ["question", "reply 2 is here."])
        assert not s.workspace.chat.session.conversation.branches
        await s.press("escape", "u")
        await s.say("/branches")
        kept = [message.content for message in s.workspace.chat.session.conversation.messages.values()]
        assert "reply 1 is here." in kept


async def test_a_name_can_be_taken_away_without_its_messages(tmp_path):
    async with stage(tmp_path, FakeEngine(numbered())) as s:
        await two_branches(s)
        await s.say("/unname-branch calm")
        assert not s.workspace.chat.session.conversation.branches
        await s.press("escape", "left")
        await s.until(lambda: s.texts == ["question", "reply 1 is here."])


async def test_what_cannot_be_named_or_found_is_said(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("/branches")
        await s.say("/name-branch x")
        await s.say("hello")
        await s.say("/name-branch x")
        await s.say("/branches y")
        assert any("No branch has a name" in text for text in s.said)
        assert any("nothing to name" in text for text in s.said)
        assert any("there are x" in text for text in s.said)
