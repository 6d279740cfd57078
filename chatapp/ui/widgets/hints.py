"""The bottom line: the few keys that matter where the person is. Made from the keymap."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from chatapp.ui.keymap import Action, Keymap, Scope


class Hints(Widget):
    """One line of keys for a scope, as many as fit; those of inner scopes come first."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__(id="hints")
        self._keymap = keymap
        self._scope: Scope = "prompt"

    def show_scope(self, scope: Scope) -> None:
        """Shows the keys of another scope."""
        if scope != self._scope:
            self._scope = scope
            self.refresh()

    def render(self) -> Content:
        actions = [action for action in self._keymap.reachable(self._scope) if action.footer and action.keys]
        return hint_line(actions, self._keymap, self.size.width)


def hint_line(actions: list[Action], keymap: Keymap, width: int) -> Content:
    """Keys and words of actions, cut at whole entries to a width in cells."""
    parts: list[tuple[str, str]] = []
    used = 0
    seen: set[str] = set()
    for action in actions:
        key = keymap.keys(action.id).split(" ")[0]
        size = cell_len(key) + cell_len(action.label) + 3
        if key in seen or used + size > width:
            continue
        seen.add(key)
        used += size
        parts += [(f" {key} ", "$footer-key-foreground bold"), (f"{action.label} ", "$faint")]
    return Content.assemble(*parts)
