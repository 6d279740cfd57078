"""Actions of the message editor that stands in the prompt's place."""

from __future__ import annotations

from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.requests import SYSTEM
from chatapp.ui.widgets.edit_box import Editing


class EditActions(Group):
    def open(self, id: str) -> None:
        """Opens the editor on a message, or on the system message."""
        self.screen.show_editor(*self.begin(id))

    def begin(self, id: str) -> tuple[Editing, str]:
        """An edit of a message, or of the system message, and the text that it begins with.

        That is the message's, or what an earlier edit had become when the program ended before it was confirmed.

        Raises:
            Refused: It cannot be edited now.
        """
        if self.chat.busy:
            raise Refused("A reply is being written; Esc stops it.")
        if id == SYSTEM:
            editing = Editing(SYSTEM, "the system message", 0, keep=True, answered=False)
            return editing, self._left(id, self.chat.session.conversation.system)
        message = self.chat.message(id)
        mine = message.role != "assistant"
        path = [each.id for each in self.chat.path()]
        later = len(path) - path.index(id) - 1
        whose = "your message" if mine else "the reply"
        # A changed question wants a new answer; a corrected answer usually leaves the rest as it is.
        editing = Editing(id, whose, later, keep=not mine and later > 0, answered=mine)
        return editing, self._left(id, message.content)

    def _left(self, id: str, content: str) -> str:
        left = self.screen.drafts.load(self.screen.edit_draft(id)) or content
        if left != content:
            self.say("This is your edit as it was when chatapp ended; Esc gives it up.")
        return left

    def confirm(self, argument: str) -> None:
        box = self.screen.edit_box
        if box.editing is not None:
            self._apply(box.editing, box.area.full_text)
            self.screen.hide_editor()
            self.screen.tick()

    def _apply(self, editing: Editing, text: str) -> None:
        if editing.id == SYSTEM:
            self.chat.set_system(text.strip())
            return
        if not text.strip():
            raise Refused("A message cannot be empty; d in the transcript deletes it.")
        self.chat.edit(editing.id, text, editing.keep)
        if editing.whose == "the reply" and not editing.keep:
            self.say("The reply is changed; c goes on from its end.")

    def newline(self, argument: str) -> None:
        self.screen.edit_box.area.type_text("\n")

    def following(self, argument: str) -> None:
        self.screen.edit_box.toggle_following()

    def external(self, argument: str) -> None:
        area = self.screen.edit_box.area
        self.edit_outside(area.full_text, area.show_text)

    def cancel(self, argument: str) -> None:
        self.screen.hide_editor()
