"""F1: what can be done here, made from the keymap."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from chatapp.ui.keymap import SCOPES, Action, Keymap, Scope
from chatapp.ui.screens.dialog import Dialog


class HelpScreen(Dialog[None]):
    """Keys of the scope the person is in, then of the scopes around it, then of all others."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f1,q", "dismiss(None)", "Close")]

    def __init__(self, keymap: Keymap, scope: Scope) -> None:
        super().__init__()
        self._keymap = keymap
        self._scope: Scope = scope

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide help"):
            with VerticalScroll():
                yield HelpText(self._keymap, self._scope)
            yield Static("↑ ↓ scroll · Esc closes", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


class HelpText(Static):
    """The help, laid out for the width there is."""

    def __init__(self, keymap: Keymap, scope: Scope) -> None:
        super().__init__()
        self._keymap = keymap
        self._scope: Scope = scope
        self._width = 0

    def on_resize(self, event: events.Resize) -> None:
        if event.size.width != self._width:
            self._width = event.size.width
            self.update(help_text(self._keymap, self._scope, self._width))


def help_text(keymap: Keymap, scope: Scope, width: int) -> Content:
    """The help for someone who is in a scope, in so many cells."""
    near: list[Scope] = list(dict.fromkeys(action.scope for action in keymap.reachable(scope)))
    order: list[Scope] = [*near, *(other for other in SCOPES if other not in near)]
    blocks: list[Content] = []
    for name in order:
        here = " (you are here)" if name == scope else ""
        rows = [_row(action, keymap, width) for action in _shown(keymap.scope(name))]
        blocks.append(Content("\n").join([Content.styled(SCOPES[name] + here, "bold $primary"), *rows]))
    return Content("\n\n").join(blocks)


def _shown(actions: list[Action]) -> list[Action]:
    """Without the nine picks, which are one line."""
    return [action for action in actions if not (action.name.startswith("pick_") and action.name != "pick_1")]


#: Cells of the keys, of the commands without and with their arguments, and of the ids.
_KEYS, _COMMAND, _ARGUMENTS, _ID = 19, 15, 22, 25
#: From these widths on there are commands, and arguments and ids.
_MEDIUM, _WIDE = 66, 108
#: Cells of the first column where there is room for two only.
_NARROW_KEYS = 15


def _row(action: Action, keymap: Keymap, width: int) -> Content:
    keys = "1 … 9" if action.name == "pick_1" else keymap.keys(action.id)
    command = f"/{action.command}" if action.command else ""
    words = action.help.replace("alternative 1", "that alternative")
    if width < _MEDIUM:
        return Content.assemble(*_columns(keys.split(" ")[0] or command, _NARROW_KEYS, words, width))
    id, cells = "", _COMMAND
    if width >= _WIDE:
        id, cells = f" {action.id}", _ARGUMENTS
        command = f"{command} {action.argument}"
    lead, first, rest = _columns(keys, _KEYS, words, width - cells - (_ID if id else 0))
    return Content.assemble(lead, first, (f" {command:<{cells - 1}}", "$text-accent"), (id, "$fainter"), rest)


def _columns(keys: str, cells: int, words: str, width: int) -> tuple[tuple[str, str], str, str]:
    """Keys and the first and the further lines of what they do."""
    first, *rest = textwrap.wrap(words, max(8, width - cells)) or [""]
    return (
        (f"{keys:<{cells}}", "bold"),
        f"{first:<{max(0, width - cells)}}",
        "".join(f"\n{'':{cells}}{line}" for line in rest),
    )
