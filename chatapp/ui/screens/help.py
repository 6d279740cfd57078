"""F1: what can be done here, made from the keymap."""

from __future__ import annotations

from typing import ClassVar

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
                yield Static(help_text(self._keymap, self._scope))
            yield Static("↑ ↓ scroll · Esc closes", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def help_text(keymap: Keymap, scope: Scope) -> Content:
    """The help for someone who is in a scope."""
    near: list[Scope] = list(dict.fromkeys(action.scope for action in keymap.reachable(scope)))
    order: list[Scope] = [*near, *(other for other in SCOPES if other not in near)]
    blocks: list[Content] = []
    for name in order:
        here = " (you are here)" if name == scope else ""
        rows = [_row(action, keymap) for action in _shown(keymap.scope(name))]
        blocks.append(Content("\n").join([Content.styled(SCOPES[name] + here, "bold $primary"), *rows]))
    return Content("\n\n").join(blocks)


def _shown(actions: list[Action]) -> list[Action]:
    """Without the nine picks, which are one line."""
    return [action for action in actions if not (action.name.startswith("pick_") and action.name != "pick_1")]


def _row(action: Action, keymap: Keymap) -> Content:
    keys = "1 … 9" if action.name == "pick_1" else keymap.keys(action.id)
    command = f"/{action.command} {action.argument}".strip() if action.command else ""
    words = action.help.replace("alternative 1", "that alternative")
    return Content.assemble(
        (f"{keys:<18} ", "bold"), f"{words:<42} ", (f"{command:<22} ", "$text-accent"), (action.id, "$foreground 35%")
    )
