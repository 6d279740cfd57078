"""A thousand random sequences of keys, pastes, clicks and sizes on the running app: no crash, no lost message.

Each sequence is drawn from a seed; a failure names it. Many sequences are played on one app, as a person would.
Keys arrive faster than they are served, as they do on a busy machine, and some are waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from textual import events
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size

from chatapp.conversation.store import Store
from chatapp.protocol import Generate
from chatapp.ui.keymap import ACTIONS
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine

#: How many apps the sequences are played on, and how many on each.
PARTS, SEQUENCES = 20, 50

#: Keys that hand the terminal to another program.
AVOIDED = {"ctrl+g", "E"}
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


SIZES = (Size(90, 28), Size(160, 50), Size(40, 15), Size(12, 4))

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


async def play(s: Stage, seed: int) -> None:
    """One sequence."""
    dice = random.Random(seed)
    for _ in range(dice.randint(4, 12)):
        kind = dice.random()
        if kind < 0.06:
            s.app.post_message(events.Paste(dice.choice(PASTES)))
        elif kind < 0.09:
            resize(s, dice.choice(SIZES))
        elif kind < 0.12:
            click(s, dice.randrange(90), dice.randrange(28))
        else:
            for key in dice.choice(HABITS) if kind < 0.25 else (dice.choice(KEYS),):
                s.app.post_message(key_event(key))
        if dice.random() < 0.2:
            await asyncio.sleep(dice.choice((0.0, 0.01, 0.03)))
    try:
        await s.served()
    except TimeoutError:
        screens = [type(screen).__name__ for screen in s.app.screen_stack]
        pytest.fail(f"seed {seed}: the app does not answer any more; screens {screens}, {s.app._exception!r}")


def resize(s: Stage, size: Size) -> None:
    driver = s.app._driver
    assert isinstance(driver, HeadlessDriver)
    driver._size = size
    s.app.post_message(events.Resize(size, size))


def click(s: Stage, x: int, y: int) -> None:
    for kind in (events.MouseDown, events.MouseUp):
        s.app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, x, y))


def key_event(key: str) -> events.Key:
    character = key if len(key) == 1 else {"space": " ", "slash": "/"}.get(key)
    return events.Key({"/": "slash", "@": "at"}.get(key, key), character)


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_thousand_random_sequences(tmp_path, monkeypatch, part):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("chatapp.ui.clipboard.program", lambda: None)
    shown: set[str] = set()
    async with stage(tmp_path / "chats", FakeEngine(reply), size=(90, 28)) as s:
        await s.say("hello")
        leaving = s.app.exit
        monkeypatch.setattr(s.app, "exit", lambda *_, **__: None)  # the palette can leave, too
        for seed in range(part * SEQUENCES, (part + 1) * SEQUENCES):
            await play(s, seed)
            assert s.app._exception is None, f"seed {seed}: {s.app._exception!r}"
            shown |= set(s.workspace.chat.session.conversation.messages)
        monkeypatch.setattr(s.app, "exit", leaving)
        await s.pilot.pause()
        workspace = s.workspace
        await s.until(lambda: not any(chat.busy for chat in workspace._open.values()))
        assert s.app._exception is None
    asked = {turn.content for e in s.engines for r in e.asked(Generate) for turn in r.turns if turn.role == "user"}
    ids, contents = on_disk(s.store)
    assert len(shown) > 2
    assert shown <= ids, "a message that was shown is in no file"
    assert asked <= contents, "the engine was asked something that is in no file"


def on_disk(store: Store) -> tuple[set[str], set[str]]:
    """Ids and contents of all messages in the files, those of trashed conversations and deleted messages too."""
    ids: set[str] = set()
    contents: set[str] = set()
    for each in (store, store.trash):
        for id in each.ids():
            with contextlib.closing(each.open(id, read_only=True)) as session:
                assert session.notices == [], f"{id}: {session.notices}"
                ids |= set(session.conversation.messages)
                contents |= {message.content for message in session.conversation.messages.values()}
    return ids, contents
