"""Actions on messages: the keys of the transcript."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.heat import Heat
from chatapp.ui.requests import SYSTEM

_FENCE = regex.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", regex.MULTILINE | regex.DOTALL)


class MessageActions(Group):
    # -- moving

    def prompt(self, argument: str) -> None:
        self.screen.focus_prompt()

    def escape(self, argument: str) -> None:
        if not self.halt():
            self.screen.focus_prompt()

    def next(self, argument: str) -> None:
        self.transcript.move_message(1)

    def previous(self, argument: str) -> None:
        self.transcript.move_message(-1)

    def first(self, argument: str) -> None:
        self.transcript.first_message()

    def last(self, argument: str) -> None:
        self.transcript.last_message()

    def down(self, argument: str) -> None:
        self.transcript.action_scroll_down()

    def up(self, argument: str) -> None:
        self.transcript.action_scroll_up()

    def page_down(self, argument: str) -> None:
        self.transcript.action_page_down()

    def page_up(self, argument: str) -> None:
        self.transcript.action_page_up()

    # -- changing

    def edit(self, argument: str) -> None:
        self.screen.groups.edit.open(self.target())

    def edit_external(self, argument: str) -> None:
        editing, text = self.screen.groups.edit.begin(self.target())
        self.edit_outside(text, lambda edited: self.screen.show_editor(editing, edited))

    def regenerate(self, argument: str) -> None:
        self.chat.regenerate(self._tree_target())
        self._follow()

    def candidates(self, argument: str) -> None:
        count = self.number(argument, 4, 2, 8)
        self.chat.regenerate(self._tree_target(), candidates=count)
        self._follow()

    def extend(self, argument: str) -> None:
        self.chat.extend(self._tree_target())
        self._follow()

    def _follow(self) -> None:
        self.transcript.follow()
        self.screen.tick()

    def older(self, argument: str) -> None:
        self._sibling(-1)

    def newer(self, argument: str) -> None:
        self._sibling(1)

    def _sibling(self, step: int) -> None:
        shown = self.chat.sibling(self._tree_target(), step)
        if shown is None:
            raise Refused("There is no other alternative this way; r makes one.")
        self.screen.rebuild()
        self.transcript.focus_message(shown)

    def compare(self, argument: str) -> None:
        siblings = self.chat.session.conversation.siblings(self._tree_target())
        if len(siblings) < 2:
            raise Refused("This message has no alternatives yet; r makes one.")
        self._compare([message.id for message in siblings], "Alternatives")

    def choose_among(self, messages: Sequence[str]) -> None:
        """Shows replies that were made at once, side by side, to choose one."""
        self._compare(messages, "Choose a reply to go on with")

    def _compare(self, messages: Sequence[str], title: str) -> None:
        from chatapp.ui.screens.compare import CompareScreen

        shown = {message.id for message in self.chat.path()}
        views = [self.screen.views.one(id) for id in messages]
        current = next((place for place, id in enumerate(messages) if id in shown), 0)

        def chosen(id: str | None) -> None:
            if id is not None and not self.chat.busy:
                self.chat.choose(id)
                self.screen.tick()

        self.screen.ask(CompareScreen(title, views, current, self.transcript), chosen)

    def delete(self, argument: str) -> None:
        self.chat.delete(self._tree_target())
        self.screen.tick()
        self.say("Deleted with what follows it; u brings it back.")

    def undo(self, argument: str) -> None:
        self.chat.undo()
        self.screen.tick()

    def redo(self, argument: str) -> None:
        self.chat.redo()
        self.screen.tick()

    def branch(self, argument: str) -> None:
        session = self.chat.session
        copy = session.fork() if session.read_only else session.branch(self._tree_target())
        title = session.conversation.title or "conversation"
        if not session.read_only:  # a fork has all of this already
            copy.rename(f"{title} (branch)")
            if session.conversation.settings:
                copy.set_settings(session.conversation.settings)
        self.workspace.show_session(copy)
        self.screen.show_chat()
        self.say("This is a copy; the other conversation stays as it was.")

    # -- taking along

    def copy(self, argument: str) -> None:
        text = self.screen.get_selected_text() or self.transcript.source_of(self.target())
        self.app.copy_to_clipboard(text)
        self.say("Copied.")

    def copy_code(self, argument: str) -> None:
        blocks = code_blocks(self.transcript.source_of(self.target()))
        if not blocks:
            raise Refused("There is no code block in this message.")
        self.app.copy_to_clipboard(blocks[-1])
        self.say("The last code block is copied.")

    # -- looking

    def fold(self, argument: str) -> None:
        if not self.transcript.toggle_fold():
            raise Refused("There is no reasoning in this message to fold.")

    def heat(self, argument: str) -> None:
        if not argument:
            self.transcript.cycle_heat()
        elif argument in list(Heat):
            self.transcript.heat = Heat(argument)
        else:
            raise Refused(f"Heat can be {', '.join(Heat)}; not {argument!r}.")
        if not self.chat.session.read_only and self.chat.session.conversation.messages:
            self.chat.set_option("heat", str(self.transcript.heat))

    def scale(self, argument: str) -> None:
        self.transcript.percentile = not self.transcript.percentile

    def units(self, argument: str) -> None:
        self.transcript.unit = "bits" if self.transcript.unit == "nats" else "nats"

    async def tokens(self, argument: str) -> None:
        if not self.transcript.enter_tokens():
            raise Refused("Nothing is known about the tokens of this conversation yet.")
        self.transcript.focus()
        await self.screen.groups.app.show_inspector()

    def _tree_target(self) -> str:
        id = self.target()
        if id == SYSTEM:
            raise Refused("This works on messages, not on the system message.")
        return self.chat.message(id).id


def code_blocks(source: str) -> list[str]:
    """The contents of the fenced code blocks of a Markdown text, the one that is still open too."""
    return [match[2] for match in _FENCE.finditer(source)]
