"""A thousand random sequences of keys and pastes on the running app: no crash, no lost message.

Each sequence is drawn from a seed; a failure names it. Many sequences are played on one app, as a person would.
"""

from __future__ import annotations

import contextlib
import os
import random

import pytest
from textual import events

from chatapp.ui.keymap import ACTIONS
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine

#: Keys that would end or leave the app, or write files where tests run.
AVOIDED = {"ctrl+q", "ctrl+g", "E", "ctrl+c"}
KEYS = sorted(
    {key for action in ACTIONS for key in action.keys} - AVOIDED
    | {"tab", "shift+tab", "backspace", "delete", "left", "right", "up", "down", "home", "end", "space", "/", "@", "x"}
)
PASTES = (
    "[bold]not markup[/] [/]",
    "0123456789" * 3000,
    "\x1b]52;c;aGk=\x07\x1b[2J\u202e\u009b",
    "❤️👩‍👩‍👧‍👦🇩🇪 한국어 שלום\n" * 20,
    "/heat",
    "```python\nx = 1\n",
    "\n" * 100,
    "/nonsense [/]",
)


REPLIES = (
    "Short.",
    "# Title\n\n- a\n- b\n",
    "```\ncode",
    "<think>hm</think>So **this**.",
    "\x1b[2J ends",
    "| a |\n|---|\n| 1 |",
)

#: What people press one after the other.
HABITS = (
    ("i", "x", "y", "enter"),
    ("escape", "escape"),
    ("escape", "t", "2"),
    ("escape", "e", "x", "enter"),
    ("escape", "r"),
)


def reply(request, candidate: int) -> str:
    return random.Random(len(request.turns) + candidate).choice(REPLIES)


async def play(s: Stage, seed: int, length: int) -> None:
    """One sequence."""
    dice = random.Random(seed)
    for _ in range(length):
        kind = dice.random()
        if kind < 0.06:
            s.app.post_message(events.Paste(dice.choice(PASTES)))
        else:
            for key in dice.choice(HABITS) if kind < 0.2 else (dice.choice(KEYS),):
                s.app.post_message(key_event(key))
        if dice.random() < 0.2:
            await s.pilot.pause()
    await s.pilot.pause()


def key_event(key: str) -> events.Key:
    character = key if len(key) == 1 else {"space": " ", "slash": "/"}.get(key)
    return events.Key({"/": "slash", "@": "at"}.get(key, key), character)


async def fuzz(tmp_path, monkeypatch, seeds: range, length: int) -> None:
    monkeypatch.chdir(tmp_path)
    written: set[str] = set()
    async with stage(tmp_path / "chats", FakeEngine(reply), size=(90, 28)) as s:
        workspace = s.workspace
        await s.say("hello")
        for seed in seeds:
            chat = workspace.chat
            await play(s, seed, length)
            assert s.app.is_running, f"seed {seed}: the app ended"
            assert s.app._exception is None, f"seed {seed}: {s.app._exception!r}"
            written |= set(chat.session.conversation.messages)
        await s.until(lambda: not any(chat.busy for chat in workspace._open.values()))
    # All that was ever shown as a message is in the files, those of trashed conversations too.
    kept: set[str] = set()
    for store in (s.store, s.store.trash):
        for id in store.ids():
            with contextlib.closing(store.open(id, read_only=True)) as session:
                assert session.notices == [], f"{id}: {session.notices}"
                kept |= set(session.conversation.messages)
    assert len(written) > 2
    assert written <= kept


@pytest.mark.parametrize("part", range(4))
async def test_random_keys_and_pastes(tmp_path, monkeypatch, part):
    await fuzz(tmp_path, monkeypatch, range(part * 10, part * 10 + 10), 30)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif("CHATAPP_TEST_FUZZ" not in os.environ, reason="twelve minutes; CHATAPP_TEST_FUZZ=1 runs it")
@pytest.mark.parametrize("part", range(10))
async def test_a_thousand_random_sequences(tmp_path, monkeypatch, part):
    await fuzz(tmp_path, monkeypatch, range(1000 + part * 100, 1100 + part * 100), 30)
