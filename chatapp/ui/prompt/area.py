"""`WritingArea`: the text area that the prompt and the message editor share."""

from __future__ import annotations

from textual import events
from textual.widgets import TextArea

from chatapp.ui.prompt.chips import Chips


class WritingArea(TextArea):
    """A plain text area in which large pastes become chips, and Enter is a binding instead of a new line."""

    def __init__(self, id: str, placeholder: str = "") -> None:
        super().__init__(id=id, placeholder=placeholder, compact=True, highlight_cursor_line=False)
        self.chips = Chips()

    @property
    def full_text(self) -> str:
        """The text with what its chips stand for."""
        return self.chips.unfold(self.text)

    @property
    def before_cursor(self) -> str:
        """The cursor's line up to the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def show_text(self, text: str) -> None:
        """Replaces the text and puts the cursor at its end; lines too long to edit become chips."""
        self.chips.clear()
        self.load_text(self.chips.fold(text))
        self.move_cursor(self.document.end)

    def type_text(self, text: str) -> None:
        """Puts text in place of the selection, as if typed."""
        if result := self.replace(text, *self.selection, maintain_selection_offset=False):
            self.move_cursor(result.end_location)

    def complete(self, start: int, replacement: str) -> None:
        """Replaces the cursor's line from a column up to the cursor."""
        row, column = self.cursor_location
        result = self.replace(replacement, (row, start), (row, column), maintain_selection_offset=False)
        self.move_cursor(result.end_location)

    def _on_key(self, event: events.Key) -> None:  # type: ignore[override] - called beside TextArea's, not in its place
        # TextArea would type a new line; left alone, the key bubbles to the bindings.
        if event.key == "enter":
            event.prevent_default()

    def _on_paste(self, event: events.Paste) -> None:  # type: ignore[override] - as above
        event.prevent_default()
        event.stop()
        self.type_text(self.chips.of_paste(event.text.replace("\r\n", "\n").replace("\r", "\n")))

    def action_delete_left(self) -> None:
        """Deletes the selection, the chip or the character before the cursor."""
        row, column = self.cursor_location
        start = self.chips.ending_at(self.document.get_line(row), column)
        if self.selection.is_empty and start is not None:
            self.delete((row, start), (row, column))
        else:
            super().action_delete_left()
