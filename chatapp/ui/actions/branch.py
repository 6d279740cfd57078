"""Actions on named branches: a name is a mark on a leaf of the tree, to be found again."""

from __future__ import annotations

from collections.abc import Callable

from chatapp.text import visible
from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.chat import Chat


class BranchActions(Group):
    def list(self, argument: str) -> None:
        self._with_name(argument, "Go to which branch?", self._go)

    def _go(self, chat: Chat, name: str) -> None:
        chat.show(chat.session.conversation.branches[name])
        self.screen.show_branch()
        self.say(f"This is the branch “{name}”.")

    def name(self, argument: str) -> None:
        chat = self.chat
        chat.must_be_free()
        if not chat.path():
            raise Refused("There is nothing to name yet; write a message first.")
        if argument:
            self._name(chat, argument)
            return
        from chatapp.ui.screens.ask import AskScreen

        self.screen.ask(AskScreen("Name of this branch"), lambda name: self._name(chat, name or ""))

    def _name(self, chat: Chat, name: str) -> None:
        name = " ".join(name.split())
        if name:
            chat.session.name_branch(name)
            self.screen.rebuild()
            self.say(f"This branch is “{name}”; /branches goes back to it.")

    def unname(self, argument: str) -> None:
        self._with_name(argument, "Take which name away?", self._unname)

    def _unname(self, chat: Chat, name: str) -> None:
        chat.session.remove_branch(name)
        self.screen.rebuild()
        self.say(f"The name “{name}” is gone; its messages are where they were.")

    def delete(self, argument: str) -> None:
        self._with_name(argument, "Delete which branch?", self._delete)

    def _delete(self, chat: Chat, name: str) -> None:
        chat.session.remove_branch(name, messages=True)
        self.screen.show_branch()
        self.say(f"The messages that only “{name}” has are deleted; u in the transcript brings them back.")

    def _with_name(self, argument: str, question: str, do: Callable[[Chat, str], None]) -> None:
        """Does something to the branch that is named, or to the one that the person picks."""
        chat = self.chat
        chat.must_be_free()
        branches = chat.session.conversation.branches
        if not branches:
            raise Refused("No branch has a name here; /name-branch names the one that is shown.")
        if argument:
            if argument not in branches:
                raise Refused(f"There is no branch {argument!r}; there are {', '.join(sorted(branches))}.")
            do(chat, argument)
            return
        from chatapp.ui.screens.pick import PickScreen

        def picked(name: str | None) -> None:
            if name is not None and not chat.busy and name in chat.session.conversation.branches:
                do(chat, name)

        values = [(name, f"{name}  {self._end_of(chat, name)}") for name in sorted(branches)]
        self.screen.ask(PickScreen(question, values, chat.branch_name), picked)

    def _end_of(self, chat: Chat, name: str) -> str:
        """The beginning of a branch's last message."""
        message = chat.session.conversation.messages.get(chat.session.conversation.branches[name])
        return " ".join(visible(message.content[:60]).split()) if message is not None else ""
