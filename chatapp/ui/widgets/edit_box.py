"""Editing a message in place of the prompt: the text, what happens to later turns, what will be read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from chatapp.protocol import Forecasted
from chatapp.text import visible
from chatapp.ui.keymap import bindings
from chatapp.ui.prompt.area import WritingArea


@dataclass
class Editing:
    """What is edited.

    Attributes:
        id: Of the message, or `chatapp.ui.chat.SYSTEM`.
        whose: "your message", "the reply", "the system message".
        later: How many messages follow it.
        keep: Whether these stay after the edited version, or the edit branches here.
        answered: An edit that branches is answered by the model.
    """

    id: str
    whose: str
    later: int
    keep: bool
    answered: bool


class EditArea(WritingArea):
    """The writing area of the editor."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("edit")]


class EditBox(Vertical):
    """See the module's docstring; ``editing`` is None while it is hidden."""

    class Changed(Message):
        """The text or the choice changed: a new forecast is wanted."""

    def __init__(self) -> None:
        super().__init__(id="edit-box")
        self.display = False
        self.editing: Editing | None = None
        self.area = EditArea("edit-area")
        self._title = Static(id="edit-title", markup=False)
        self._forecast = Static(id="edit-forecast", markup=False)

    def compose(self) -> ComposeResult:
        yield self._title
        yield self.area
        yield self._forecast

    def open(self, editing: Editing, text: str) -> None:
        """Shows a text to edit."""
        self.editing = editing
        self.area.show_text(text)
        self.display = True
        self.show_forecast(None)
        self._show_title()
        self.area.focus()

    def close(self) -> None:
        """Hides the editor."""
        self.editing = None
        self.display = False

    def toggle_following(self) -> None:
        """Keeps later turns, or branches here."""
        if self.editing is not None and self.editing.later:
            self.editing.keep = not self.editing.keep
            self._show_title()
            self.post_message(self.Changed())

    def _show_title(self) -> None:
        assert self.editing is not None
        editing = self.editing
        words = f"Editing {editing.whose}"
        if editing.later:
            turns = "the later message" if editing.later == 1 else f"the {editing.later} later messages"
            words += f" · keeps {turns}" if editing.keep else f" · branches here, {turns} kept as an alternative"
            words += " (Tab)"
        if editing.answered and not editing.keep:
            words += " · a new reply follows"
        self._title.update(words)

    def show_forecast(self, forecast: Forecasted | str | None) -> None:
        """Says what the edit will read again, or why it would be refused."""
        if not isinstance(forecast, Forecasted):
            self._forecast.update(Content(visible(forecast or "")))
            return
        tokens = "1 token" if forecast.prefilled == 1 else f"{forecast.prefilled:,} tokens"
        self._forecast.update(
            Content(
                f"this edit reads {tokens} again; "
                f"{forecast.reused:,} of {forecast.prompt_tokens:,} are kept ({forecast.method})"
            )
        )

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.editing is not None:
            self.post_message(self.Changed())
