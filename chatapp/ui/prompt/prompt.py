"""The prompt: the writing area with its completions above and a line on attached files below."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static, TextArea
from textual.widgets.option_list import Option

from chatapp.text import visible
from chatapp.ui.commands import Arguments, Suggestion
from chatapp.ui.keymap import Keymap, bindings
from chatapp.ui.prompt.area import WritingArea
from chatapp.ui.prompt.attachments import mentioned
from chatapp.ui.prompt.completion import suggestions


class PromptArea(WritingArea):
    """The writing area of the prompt. While completions are open they get the arrow keys, Tab, Enter and Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("prompt")]

    class UpInEmpty(Message):
        """Up was pressed with nothing written: the person wants the last message back."""

    class Choosing(Message):
        """A key for the open completions: "up", "down", "tab", "enter" or "escape"."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    choosing = False

    async def _on_key(self, event: events.Key) -> None:
        if self.choosing and event.key in ("up", "down", "tab", "enter", "escape"):
            event.stop()
            event.prevent_default()
            self.post_message(self.Choosing(event.key))

    def action_cursor_up(self, select: bool = False) -> None:
        """Moves up; in an empty prompt asks for the last message."""
        if self.document.text:
            super().action_cursor_up(select)
        else:
            self.post_message(self.UpInEmpty())


class Prompt(Vertical):
    """See the module's docstring.

    Attributes:
        arguments: Values that commands' arguments complete to.
        folder: What relative paths after ``@`` start from.
    """

    class Changed(Message):
        """The text changed: the draft is to be kept."""

    class Ready(Message):
        """Enter was pressed on a completion that makes a whole command: send it."""

    def __init__(self, keymap: Keymap, placeholder: str) -> None:
        super().__init__(id="prompt")
        self.arguments: Arguments = {}
        self.folder = Path.cwd()
        self._keymap = keymap
        self.area = PromptArea("prompt-area", placeholder)
        self._list = OptionList(id="completions", markup=False, compact=True)
        self._attached = Static(id="attachments", markup=False)
        self._suggestions: list[Suggestion] = []
        self._dismissed: str | None = None

    def compose(self) -> ComposeResult:
        yield self._list
        yield self.area
        yield self._attached

    def on_mount(self) -> None:
        self._list.can_focus = False
        self._list.display = False
        self._attached.display = False

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self.post_message(self.Changed())
        self._show_attachments()
        self._complete()

    def _show_attachments(self) -> None:
        text = self.area.text
        files = mentioned(text, self.folder) if "@" in text else []
        self._attached.display = bool(files)
        if files:
            names = "  ".join(f"{visible(file.name)} {file.size / 1000:.1f} KB" for file in files)
            self._attached.update(f"attached: {names}")

    def _complete(self) -> None:
        area = self.area
        row, _ = area.cursor_location
        line = area.before_cursor
        if not area.text or line == self._dismissed:
            found: list[Suggestion] = []
        else:
            self._dismissed = None
            found = suggestions(line, row == 0, self._keymap, self.arguments, self.folder)
        if found == [] and not self._suggestions:
            return
        self._suggestions = found
        self._list.clear_options()
        self._list.add_options(Option(_row(suggestion)) for suggestion in found)
        self._list.display = area.choosing = bool(found)
        if found:
            self._list.highlighted = 0

    def on_prompt_area_choosing(self, event: PromptArea.Choosing) -> None:
        event.stop()
        match event.key:
            case "up":
                self._list.action_cursor_up()
            case "down":
                self._list.action_cursor_down()
            case "escape":
                self.close_completions()
            case _:
                self._accept(run=event.key == "enter")

    def close_completions(self) -> None:
        """Hides the completions until the line changes."""
        self._dismissed = self.area.before_cursor
        self._suggestions = []
        self._list.display = self.area.choosing = False

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._accept(run=False)
        self.area.focus()

    def _accept(self, run: bool) -> None:
        index = self._list.highlighted
        if index is None or index >= len(self._suggestions):
            self.close_completions()
            return
        chosen = self._suggestions[index]
        self.area.complete(chosen.start, chosen.replacement)
        if run and chosen.runs:
            self.close_completions()
            self.post_message(self.Ready())


def _row(suggestion: Suggestion) -> Content:
    return Content.assemble(visible(suggestion.text), ("  " + visible(suggestion.help), "dim"))
