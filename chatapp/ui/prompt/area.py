"""`WritingArea`: the text area that the prompt and the message editor share."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.document._document import EditResult
from textual.document._edit import Edit
from textual.widgets import TextArea

from chatapp.ui.prompt import standins
from chatapp.ui.prompt.chips import Chips


class WritingArea(TextArea):
    """A plain text area in which large pastes become chips, and Enter is a binding instead of a new line."""

    def __init__(self, id: str, placeholder: str = "") -> None:
        super().__init__(id=id, placeholder=placeholder, compact=True, highlight_cursor_line=False)
        self.chips = Chips()

    @property
    def full_text(self) -> str:
        """The text with what its chips and stand-ins stand for."""
        return self.chips.unfold(standins.take_out(self.text))

    @property
    def selected_text(self) -> str:
        """The selection, as it is copied."""
        return self.chips.unfold(standins.take_out(super().selected_text))

    @property
    def before_cursor(self) -> str:
        """The cursor's line up to the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def load_text(self, text: str) -> None:
        """Replaces the text, with stand-ins for what a terminal must not get."""
        super().load_text(standins.put_in(text))

    def edit(self, edit: Edit) -> EditResult:
        """Every change goes through here; see `load_text`."""
        edit.text = standins.put_in(edit.text)
        return super().edit(edit)

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn."""
        return Text(standins.drawn(self.document.get_line(line_index)), end="", no_wrap=True)

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

    async def _on_key(self, event: events.Key) -> None:  # called beside TextArea's, not in its place
        if event.key == "enter":  # TextArea would type a new line; left alone, the key bubbles to the bindings
            event.prevent_default()

    def _on_paste(self, event: events.Paste) -> None:  # type: ignore[override] - as above
        event.prevent_default()
        event.stop()
        self.take_paste(event.text)

    def take_paste(self, text: str) -> None:
        """Puts a pasted text in place of the selection, a large one as a chip."""
        self.type_text(self.chips.of_paste(text.replace("\r\n", "\n").replace("\r", "\n")))

    def action_delete_left(self) -> None:
        """Deletes the selection, the chip or the character before the cursor."""
        row, column = self.cursor_location
        start = self.chips.ending_at(self.document.get_line(row), column)
        if self.selection.is_empty and start is not None:
            self.delete((row, start), (row, column))
        else:
            super().action_delete_left()
