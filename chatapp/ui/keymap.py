"""Every action a person can take: its id, keys, words, slash command and where its keys work.

This table is the only place where a key is written down. Bindings, F1 help, the command palette, slash commands and
``docs/keys.md`` are made from it. An action's id is ``group.name``; the method ``name`` of the group's handler in
``chatapp/ui/actions`` carries it out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from textual.binding import Binding
from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

#: Where an action's keys work. Keys of an inner scope win over those of an outer one: tokens, then transcript, then
#: anywhere; prompt, then anywhere; edit, then anywhere; list, then anywhere.
Scope = Literal["anywhere", "prompt", "edit", "transcript", "tokens", "list"]

SCOPES: dict[Scope, str] = {
    "anywhere": "Anywhere",
    "prompt": "Prompt",
    "edit": "Editing a message",
    "transcript": "Transcript",
    "tokens": "Tokens",
    "list": "Conversations",
}

# Scopes that are looked at after this one when a key is pressed.
_OUTER: dict[Scope, tuple[Scope, ...]] = {
    "anywhere": (),
    "prompt": ("anywhere",),
    "edit": ("anywhere",),
    "transcript": ("anywhere",),
    "tokens": ("transcript", "anywhere"),
    "list": ("anywhere",),
}


@dataclass(frozen=True)
class Action:
    """Something a person can do.

    Attributes:
        id: ``group.name``; also the name in config.toml's ``[keys]``.
        keys: Textual key names; empty where it is reached by the palette or a slash command only.
        label: A few words for the footer.
        help: One line for F1 and the palette.
        scope: Where the keys work.
        command: The slash command without its slash; empty for pure movement.
        argument: What the slash command takes after its name, for completion and help; empty for nothing.
        footer: Shown in the footer.
        priority: The key is looked at before the focused widget sees it.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope
    command: str = ""
    argument: str = ""
    footer: bool = False
    priority: bool = False

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        return self.id.partition(".")[2]


def _action(
    scope: Scope,
    id: str,
    keys: str,
    label: str,
    help: str,
    command: str = "",
    argument: str = "",
    footer: bool = False,
    priority: bool = False,
) -> Action:
    return Action(id, tuple(keys.split()), label, help, scope, command, argument, footer, priority)


ACTIONS: tuple[Action, ...] = (
    # -- anywhere
    _action("anywhere", "app.help", "f1", "Help", "Keys and commands for where you are", "help", footer=True),
    _action("anywhere", "app.inspector", "f2", "Inspector", "Show or hide the token inspector", "inspector"),
    _action("anywhere", "app.conversations", "f3", "Chats", "Show or hide your conversations", "chats", footer=True),
    _action("anywhere", "app.model", "f4", "Model", "Choose, download or switch the model", "model", "[name]"),
    _action("anywhere", "app.restart", "f5", "Restart", "Start the engine again", "restart"),
    _action(
        "anywhere", "app.palette", "ctrl+p", "Palette", "All actions by name", "palette", footer=True, priority=True
    ),
    _action("anywhere", "app.theme", "ctrl+t", "Theme", "Choose a theme", "theme", "[name]", priority=True),
    _action("anywhere", "app.new", "ctrl+n", "New", "Start a new conversation", "new", priority=True),
    _action("anywhere", "app.screenshot", "", "Screenshot", "Export the screen as SVG", "screenshot", "[file]"),
    _action("anywhere", "app.quit", "ctrl+q", "Quit", "Leave; everything is saved", "quit", priority=True),
    _action("anywhere", "chat.stop", "", "Stop", "Stop the reply or the download", "stop"),
    _action("anywhere", "chat.system", "", "System", "Edit the system message", "system", "[text]"),
    _action("anywhere", "chat.sampling", "f8", "Sampling", "Sampling settings of this conversation", "sampling"),
    _action("anywhere", "chat.set", "", "Set", "Set one sampling option", "set", "option value"),
    _action("anywhere", "chat.pause", "", "Pause", "Stop before a token above this entropy", "pause", "[nats|off]"),
    _action("anywhere", "chat.thinking", "", "Reasoning", "Reasoning, if the model can", "thinking", "[on|off]"),
    _action("anywhere", "chat.rename", "", "Rename", "Name this conversation", "rename", "[title]"),
    _action("anywhere", "chat.export", "", "Export", "Export as HTML, Markdown or JSON", "export", "[file]"),
    _action("anywhere", "chat.retry_save", "", "Save again", "Try to save again after a failure", "save"),
    _action("anywhere", "chat.save_elsewhere", "", "Save elsewhere", "Write a copy to a folder", "save-to", "folder"),
    _action("anywhere", "chat.score", "", "Score", "Heat on your own messages too", "score", "[on|off]"),
    _action("anywhere", "branch.list", "", "Branches", "Go to a named branch", "branches", "[name]"),
    _action("anywhere", "branch.name", "", "Name branch", "Name the branch that is shown", "name-branch", "[name]"),
    _action("anywhere", "branch.unname", "", "Forget name", "Take a name away", "unname-branch", "[name]"),
    _action("anywhere", "branch.delete", "", "Delete branch", "Delete a named branch", "delete-branch", "[name]"),
    # -- prompt
    _action("prompt", "prompt.send", "enter", "Send", "Send the message", footer=True),
    _action("prompt", "prompt.newline", "ctrl+j shift+enter", "New line", "Begin a new line", footer=True),
    _action("prompt", "prompt.escape", "escape", "Stop / transcript", "Stop reply or download, else to the transcript"),
    _action("prompt", "prompt.external", "ctrl+g", "$EDITOR", "Write the message in $EDITOR", "editor"),
    _action("prompt", "prompt.older", "ctrl+up alt+up", "Older", "Earlier prompt"),
    _action("prompt", "prompt.newer", "ctrl+down alt+down", "Newer", "Later prompt"),
    # -- editing a message
    _action("edit", "edit.confirm", "enter", "Confirm", "Take over the edit", footer=True),
    _action("edit", "edit.newline", "ctrl+j shift+enter", "New line", "Begin a new line"),
    _action("edit", "edit.following", "tab", "Later turns", "Keep later turns, or branch here", footer=True),
    _action("edit", "edit.external", "ctrl+g", "$EDITOR", "Go on in $EDITOR"),
    _action("edit", "edit.cancel", "escape", "Leave", "Leave without a change", footer=True),
    # -- transcript
    _action("transcript", "message.prompt", "i", "Prompt", "Back to the prompt", footer=True),
    _action("transcript", "message.escape", "escape", "Stop / prompt", "Stop reply or download, else to the prompt"),
    _action("transcript", "message.next", "j", "Next", "Next message"),
    _action("transcript", "message.previous", "k", "Previous", "Previous message"),
    _action("transcript", "message.first", "g home", "First", "First message"),
    _action("transcript", "message.last", "G end", "Last", "Last message"),
    _action("transcript", "message.down", "down", "Down", "Scroll down"),
    _action("transcript", "message.up", "up", "Up", "Scroll up"),
    _action("transcript", "message.page_down", "pagedown space", "Page down", "Scroll down by a page"),
    _action("transcript", "message.page_up", "pageup", "Page up", "Scroll up by a page"),
    _action("transcript", "message.edit", "e", "Edit", "Edit this message", "edit", footer=True),
    _action("transcript", "message.edit_external", "E", "$EDITOR", "Edit this message in $EDITOR", "edit-external"),
    _action("transcript", "message.regenerate", "r", "Again", "Another reply", "regenerate", footer=True),
    _action("transcript", "message.candidates", "R", "Four", "Four replies at once, side by side", "candidates", "[n]"),
    _action("transcript", "message.extend", "c", "Continue", "Go on from the end of this reply", "continue"),
    _action("transcript", "message.older", "left", "Alternative", "Earlier alternative of this message", "older"),
    _action("transcript", "message.newer", "right", "Alternative", "Later alternative of this message", "newer"),
    _action("transcript", "message.compare", "s", "Compare", "Alternatives side by side", "compare"),
    _action("transcript", "message.delete", "d", "Delete", "Delete this message and what follows", "delete"),
    _action("transcript", "message.undo", "u", "Undo", "Undo the last change of the conversation", "undo", footer=True),
    _action("transcript", "message.redo", "ctrl+r", "Redo", "Redo what was undone", "redo"),
    _action("transcript", "message.copy", "y", "Copy", "Copy this message", "copy"),
    _action(
        "transcript", "message.copy_code", "Y", "Copy code", "Copy the last code block of this message", "copy-code"
    ),
    _action("transcript", "message.branch", "b", "Branch", "Branch to a new conversation from here", "branch"),
    _action("transcript", "message.fold", "z", "Fold", "Fold or show the reasoning part", "fold"),
    _action("transcript", "message.heat", "h", "Heat", "Next heat: off, entropy, varentropy, both, surprisal", "heat"),
    _action("transcript", "message.scale", "H", "Scale", "Heat scale: fixed or percentile", "scale"),
    _action("transcript", "message.units", "U", "Units", "Show nats or bits", "units"),
    _action("transcript", "message.tokens", "t", "Tokens", "Walk the tokens of this reply", "tokens", footer=True),
    # -- tokens
    _action("tokens", "token.leave", "escape", "Leave", "Back to messages", footer=True),
    _action("tokens", "token.previous", "h left", "Left", "Previous token"),
    _action("tokens", "token.next", "l right", "Right", "Next token"),
    _action("tokens", "token.next_word", "w", "Word", "Next word"),
    _action("tokens", "token.previous_word", "b", "Word back", "Previous word"),
    _action("tokens", "token.next_uncertain", "n", "Uncertain", "Next uncertain token", footer=True),
    _action("tokens", "token.previous_uncertain", "N", "Uncertain back", "Previous uncertain token"),
    _action("tokens", "token.first", "0 home", "Start", "First token"),
    _action("tokens", "token.last", "$ end", "End", "Last token"),
    _action("tokens", "token.alternatives", "enter", "Alternatives", "What else it might have said", "alternatives"),
    *(
        _action("tokens", f"token.pick_{n}", str(n), f"Pick {n}", f"Take alternative {n} and go on from there")
        for n in range(1, 10)
    ),
    _action("tokens", "token.pick", "", "Pick", "Take an alternative by its number and go on from there", "pick", "n"),
    _action("tokens", "token.sample", "s", "Sample", "Several continuations from here", "sample", "[n]", footer=True),
    _action("tokens", "token.attention", "a", "Attention", "What this token looked at", "attention", "[on|off]"),
    # -- conversations
    _action("list", "list.open", "enter", "Open", "Open this conversation", footer=True),
    _action("list", "list.search", "slash", "Search", "Search titles and texts"),
    _action("list", "list.rename", "r", "Rename", "Rename this conversation", footer=True),
    _action("list", "list.delete", "d delete", "Trash", "Move this conversation to the trash", footer=True),
    _action("list", "list.undo", "u", "Undo", "Take it out of the trash again"),
    _action("list", "list.close", "escape", "Close", "Back to the conversation", footer=True),
)


class Keymap:
    """The actions with the person's own keys laid over them."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """Reads overrides of config.toml's ``[keys]``: an action's id, and keys parted by commas or spaces.

        What cannot be followed (an unknown id, a clash) is left at its default and told in `problems`.
        """
        self.problems: list[str] = []
        self.actions = {action.id: action for action in ACTIONS}
        wanted = dict(self._known(overrides or {}))
        while clash := self._clash(wanted):
            changed, key, other = clash
            self.problems.append(
                f"The key {key} of {changed.id} in config.toml already belongs to {other.id}; change one of them there."
            )
            del wanted[changed.id]
        self.actions |= wanted

    def _known(self, overrides: Mapping[str, str]) -> Iterator[tuple[str, Action]]:
        for id_, written in overrides.items():
            if id_ not in self.actions:
                self.problems.append(f"config.toml names no action of chatapp in [keys]: {id_}. F1 shows the ids.")
                continue
            keys = written.replace(",", " ").split()
            complaints = [complaint for key in keys if (complaint := key_complaint(key))]
            self.problems += [f"config.toml, keys of {id_}: {complaint}" for complaint in complaints]
            if not complaints:
                yield id_, replace(self.actions[id_], keys=tuple(keys))

    def _clash(self, wanted: Mapping[str, Action]) -> tuple[Action, str, Action] | None:
        """The first changed action that shares a key with another one, all changes taken together."""
        together = {**self.actions, **wanted}
        for changed in wanted.values():
            for other in together.values():
                if other.id == changed.id or not _meet(other.scope, changed.scope):
                    continue
                taken = {normal_key(key) for key in other.keys}
                for key in changed.keys:
                    if normal_key(key) in taken:
                        return changed, key, other
        return None

    def scope(self, scope: Scope) -> list[Action]:
        """The actions of one scope, in the order of the table."""
        return [action for action in self.actions.values() if action.scope == scope]

    def reachable(self, scope: Scope) -> list[Action]:
        """What can be done in a scope: its own actions, then those of the scopes around it."""
        return [action for name in (scope, *_OUTER[scope]) for action in self.scope(name)]

    def textual(self) -> dict[str, str]:
        """The overrides as `textual.app.App.set_keymap` takes them."""
        defaults = {action.id: action.keys for action in ACTIONS}
        return {id_: _bound(action) for id_, action in self.actions.items() if action.keys != defaults[id_]}

    def keys(self, id_: str) -> str:
        """An action's keys as they are shown to people."""
        return " ".join(shown_key(key) for key in self.actions[id_].keys)


def bindings(*scopes: Scope) -> list[Binding]:
    """The Textual bindings of some scopes; each runs the screen's action ``do`` with the action's id."""
    return [
        Binding(
            _bound(action),
            f"screen.do('{action.id}')",
            action.label,
            id=action.id,
            show=action.footer,
            priority=action.priority,
            tooltip=action.help,
        )
        for action in ACTIONS
        if action.scope in scopes
    ]


def _bound(action: Action) -> str:
    """An action's keys for Textual; a key that no terminal sends where there are none, for Textual wants one."""
    return ",".join(action.keys) or f"no-key-{action.id}"


def commands(actions: Iterable[Action] = ACTIONS) -> dict[str, Action]:
    """Slash commands by name."""
    return {action.command: action for action in actions if action.command}


_SHOWN = {
    "escape": "Esc",
    "enter": "Enter",
    "slash": "/",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "space": "Space",
    "tab": "Tab",
    "home": "Home",
    "end": "End",
    "delete": "Del",
}


def shown_key(key: str) -> str:
    """``ctrl+j`` as ``Ctrl+J``, ``slash`` as ``/``; a single letter keeps its case."""
    *modifiers, last = key.split("+")
    if not modifiers:
        return _SHOWN.get(last, last.upper() if last[0] == "f" and last[1:].isdigit() else last)
    return "+".join([*(modifier.capitalize() for modifier in modifiers), _SHOWN.get(last, last.upper())])


#: Keys that a terminal sends as another one.
_SENT_AS = {"ctrl+i": "tab", "ctrl+m": "enter", "ctrl+[": "escape", "ctrl+left_square_bracket": "escape"}
_MODIFIERS = {"ctrl", "shift", "alt", "super", "hyper", "meta"}
_NAMED = {key.value for key in Keys} | set(KEY_NAME_REPLACEMENTS.values())


def key_complaint(key: str) -> str | None:
    """Why a key of config.toml can never be pressed; None if it can."""
    *modifiers, last = key.split("+")
    if key.lower() in _SENT_AS:
        return f"terminals send {shown_key(_SENT_AS[key.lower()])} for {key}."
    if unknown := [modifier for modifier in modifiers if modifier.lower() not in _MODIFIERS]:
        return f"{unknown[0]!r} in {key} is none of {', '.join(sorted(_MODIFIERS))}."
    character = key_to_character(last)
    if last in _NAMED or (character is not None and (len(last) == 1 or character.isascii())):
        return None
    return f"no key is called {last!r}; keys are named like f9, pageup, slash or x."


def normal_key(key: str) -> str:
    """Spelling variants of one key made alike, so that a clash is seen: ``G`` is what terminals send for shift+g."""
    *modifiers, last = key.strip().split("+")
    if modifiers == ["shift"] and len(last) == 1 and last.isalpha():
        return last.upper()
    if len(last) == 1 and not last.isalnum():  # as Textual names it
        name = unicodedata.name(last, last).lower().replace("-", "_").replace(" ", "_")
        last = KEY_NAME_REPLACEMENTS.get(name, name)
    return "+".join([*sorted(modifier.lower() for modifier in modifiers), last])


def _meet(first: Scope, second: Scope) -> bool:
    """Whether one key in both scopes is a clash: an inner scope may shadow an outer one on purpose, except anywhere."""
    if first == second:
        return True
    return "anywhere" in (first, second)
