"""Asks for one line of text."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from chatapp.text import visible
from chatapp.ui.screens.dialog import Dialog


class AskScreen(Dialog[str | None]):
    """A question with a field; its result is the text, or None where the person left."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Leave")]

    def __init__(self, question: str, value: str = "") -> None:
        super().__init__()
        self._question = question
        self._value = value

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(visible(self._question), classes="dialog-title", markup=False)
            yield Input(self._value, compact=True)
            yield Static("Enter takes it over · Esc leaves", classes="dialog-hint", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
