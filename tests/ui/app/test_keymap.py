"""The table of actions: every action has a method, no key is dead, overrides and clashes."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import TextArea

from chatapp.settings import Settings
from chatapp.ui import commands
from chatapp.ui.actions.groups import Groups
from chatapp.ui.keymap import ACTIONS, SCOPES, Keymap, normal_key, shown_key
from chatapp.ui.keysdoc import document
from chatapp.ui.screens.ask import AskScreen
from tests.ui.app.stage import stage

#: Moving about has keys only; everything else can be typed too.
MOVEMENT = {
    *("prompt.send", "prompt.newline", "prompt.escape", "prompt.older", "prompt.newer"),
    *("edit.confirm", "edit.newline", "edit.following", "edit.external", "edit.cancel"),
    *(f"message.{name}" for name in ("prompt", "escape", "next", "previous", "first", "last")),
    *(f"message.{name}" for name in ("down", "up", "page_down", "page_up")),
    *(f"token.{name}" for name in ("leave", "previous", "next", "next_word", "previous_word", "first", "last")),
    *(f"token.{name}_uncertain" for name in ("next", "previous")),
    *(f"list.{name}" for name in ("open", "search", "rename", "delete", "undo", "close")),
}


def test_everything_but_moving_about_has_a_command():
    for action in ACTIONS:
        named = bool(action.command) or action.name.startswith("pick_")
        assert named != (action.id in MOVEMENT), action.id


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_has_a_method(action):
    groups = Groups.__new__(Groups)
    groups.__init__(None)
    method, _ = groups.method(action.id)
    assert callable(method)


def test_ids_and_commands_are_unique():
    assert len({action.id for action in ACTIONS}) == len(ACTIONS)
    named = [action.command for action in ACTIONS if action.command]
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("scope", SCOPES)
def test_no_key_is_given_twice_where_it_could_be_meant(scope):
    seen: dict[str, str] = {}
    for action in Keymap().scope(scope):
        for key in map(normal_key, action.keys):
            assert key not in seen, f"{key}: {seen.get(key)} and {action.id}"
            seen[key] = action.id


def test_keys_for_anywhere_are_not_swallowed_by_the_text_areas():
    own = {key for binding in TextArea.BINDINGS for key in binding.key.split(",")}
    for action in ACTIONS:
        if action.scope == "anywhere" and not action.priority:
            assert not own & set(action.keys), action.id


def test_keys_that_terminals_cannot_send_are_never_the_only_way():
    unsure = {
        "shift+enter",
        "ctrl+enter",
        "alt+enter",
        "ctrl+i",
        "ctrl+m",
        "ctrl+up",
        "ctrl+down",
        "alt+up",
        "alt+down",
    }
    for action in ACTIONS:
        if action.keys and action.name not in ("older", "newer"):
            assert set(action.keys) - unsure, action.id


def test_an_override_replaces_the_keys_and_a_clash_is_named():
    keymap = Keymap({"message.edit": "x, f9", "message.copy": "r", "app.none": "q"})
    assert keymap.actions["message.edit"].keys == ("x", "f9")
    assert keymap.textual() == {"message.edit": "x,f9"}
    assert keymap.actions["message.copy"].keys == ("y",)
    unknown, clash = keymap.problems
    assert "app.none" in unknown
    assert "r of message.copy" in clash
    assert "message.regenerate" in clash


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("ctrl+i", "terminals send Tab"),
        ("ctrl+m", "terminals send Enter"),
        ("cmd+x", "'cmd' in cmd+x"),
        ("f99", "no key is called 'f99'"),
        ("ctrl+banana", "no key is called 'banana'"),
    ],
)
def test_a_key_that_can_never_be_pressed_is_named(key, complaint):
    keymap = Keymap({"app.new": f"f9 {key}"})
    assert keymap.actions["app.new"].keys == ("ctrl+n",)
    assert [complaint in problem and "app.new" in problem for problem in keymap.problems] == [True]


@pytest.mark.parametrize("key", ["f12", "ctrl+shift+x", "?", "question_mark", "ä", "insert", "alt+1", "at", "ctrl+at"])
def test_keys_by_all_their_names(key):
    assert Keymap({"app.new": key}).problems == []


@pytest.mark.parametrize(("one", "other"), [("?", "question_mark"), ("/", "slash"), ("-", "minus"), ("shift+x", "X")])
def test_two_names_of_one_key_clash(one, other):
    assert len(Keymap({"message.edit": one, "message.copy": other}).problems) == 1


def test_swapping_two_keys_is_no_clash():
    keymap = Keymap({"message.edit": "r", "message.regenerate": "e"})
    assert keymap.problems == []
    assert keymap.actions["message.edit"].keys == ("r",)


def test_keys_are_shown_as_people_write_them():
    assert [shown_key(key) for key in ("ctrl+j", "f1", "slash", "G", "shift+enter")] == [
        "Ctrl+J",
        "F1",
        "/",
        "G",
        "Shift+Enter",
    ]


async def test_a_rebound_key_works_and_the_old_one_does_not(tmp_path):
    async with stage(tmp_path, settings=Settings(keys={"message.heat": "x"})) as s:
        await s.say("one")
        before = s.screen.transcript.heat
        await s.press("escape", "h")
        assert s.screen.transcript.heat == before
        await s.press("x")
        assert s.screen.transcript.heat == before.next


async def test_an_action_without_a_key_gets_one_and_another_loses_its_own(tmp_path):
    settings = Settings(keys={"message.units": "", "chat.rename": "f9"})
    async with stage(tmp_path, settings=settings) as s:
        await s.say("one")
        await s.press("escape", "U")
        assert s.screen.transcript.unit == "nats"
        await s.press("f9")
        assert isinstance(s.app.screen, AskScreen)


def test_commands_complete_by_prefix_and_may_be_shortened():
    keymap = Keymap()
    found = [suggestion.replacement for suggestion in commands.complete("/re", keymap, {})]
    assert found == ["/redo", "/regenerate", "/rename ", "/restart"]
    assert commands.parse("/regen").action.id == "message.regenerate"
    assert commands.parse("/set top_k 4").argument == "top_k 4"
    with pytest.raises(commands.UsageError, match="can mean /redo, "):
        commands.parse("/re")
    with pytest.raises(commands.UsageError, match="no command /usr/bin"):
        commands.parse("/usr/bin")


def test_two_slashes_send_the_text_as_it_is():
    assert not commands.is_command("//etc/hosts")
    assert commands.literal("//etc/hosts") == "/etc/hosts"
    assert not commands.is_command("/etc/hosts\nis a file")


def test_the_page_on_keys_is_up_to_date():
    page = Path(__file__).parents[3] / "docs" / "keys.md"
    assert page.read_text() == document(Keymap()), "run: python -m chatapp.ui.keysdoc > docs/keys.md"
