"""Chooses one line of a list, with a field that filters it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from chatapp.text import visible
from chatapp.ui.screens.dialog import Dialog
from chatapp.ui.widgets.options import Options


class PickScreen(Dialog[str | None]):
    """A list to choose from; its result is the chosen value, or None where the person left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(
        self,
        title: str,
        values: Sequence[tuple[str, str]],
        current: str = "",
        preview: Callable[[str], None] | None = None,
    ) -> None:
        """Makes the screen.

        Args:
            title: What is chosen.
            values: Each value and what is shown for it.
            current: The value in force.
            preview: Called with the value under the cursor; with ``current`` when the person leaves.
        """
        super().__init__()
        self._title = title
        self._values = list(values)
        self._current = current
        self._preview = preview
        self._shown: list[str] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(visible(self._title), classes="dialog-title", markup=False)
            yield Input(placeholder="filter", compact=True)
            yield Options(markup=False, compact=True)
            yield Static("↑ ↓ choose · Enter takes it · Esc leaves", classes="dialog-hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self._filter("")

    def _filter(self, text: str) -> None:
        fitting = [(value, shown) for value, shown in self._values if text.lower() in shown.lower()]
        self._shown = [value for value, _ in fitting]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(
            Option(f"{'●' if value == self._current else ' '} {visible(shown)}") for value, shown in fitting
        )
        if fitting:
            options.highlighted = self._shown.index(self._current) if self._current in self._shown else 0

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def on_key(self, event: events.Key) -> None:
        options = self.query_one(OptionList)
        if event.key in ("up", "down"):
            event.stop()
            (options.action_cursor_up if event.key == "up" else options.action_cursor_down)()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._preview is not None and event.option_index < len(self._shown):
            self._preview(self._shown[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._shown[event.option_index])

    def on_input_submitted(self) -> None:
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self.dismiss(self._shown[index])

    def action_leave(self) -> None:
        if self._preview is not None:
            self._preview(self._current)
        self.dismiss(None)
