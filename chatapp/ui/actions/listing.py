"""Actions of the list of conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.widgets.chat_list import ChatList, Entry

if TYPE_CHECKING:
    from chatapp.ui.screens.chat import ChatScreen


class ListActions(Group):
    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._trashed: list[str] = []

    def open(self, argument: str) -> None:
        chosen = self._chosen()
        if chosen.id != self.chat.id:
            self.workspace.open(chosen.id)
            self.screen.show_chat()
        self._list.show_current(chosen.id)
        if chosen.message is not None:
            self._show_message(chosen.message)
        else:
            self.screen.focus_prompt()

    def _show_message(self, id: str) -> None:
        """Shows the branch that a found message is on, and goes to it."""
        conversation = self.chat.session.conversation
        if id not in conversation.messages:
            return
        if id not in {message.id for message in self.chat.path()} and not self.chat.busy:
            self.chat.show(id)
            self.screen.tick()
        self.transcript.focus_message(id)
        self.transcript.focus()

    def search(self, argument: str) -> None:
        self._list.focus_search()

    def rename(self, argument: str) -> None:
        from chatapp.ui.screens.ask import AskScreen

        chosen = self._chosen()
        self.screen.ask(
            AskScreen("Title of the conversation", chosen.title), lambda title: self._rename(chosen.id, title)
        )

    def _rename(self, id: str, title: str | None) -> None:
        if not title or not title.strip():
            return
        self.workspace.rename(id, title)
        self.screen.rebuild()
        self._list.reload()

    def delete(self, argument: str) -> None:
        chosen = self._chosen()
        if chosen.id == self.chat.id:
            if self.chat.busy:
                raise Refused("A reply is being written in this conversation; Esc in the prompt stops it.")
            self.workspace.new()
            self.screen.show_chat()
        self.workspace.forget(chosen.id)
        self.workspace.store.remove(chosen.id)
        self._trashed.append(chosen.id)
        self._list.drop(chosen.id)
        self.say(f"“{chosen.title}” is in the trash; u takes it out again.")

    def undo(self, argument: str) -> None:
        if not self._trashed:
            raise Refused("Nothing was moved to the trash here.")
        self.workspace.store.restore(self._trashed.pop())
        self._list.reload()

    async def close(self, argument: str) -> None:
        await self._list.remove()
        self.screen.focus_prompt()

    @property
    def _list(self) -> ChatList:
        lists = self.screen.query(ChatList)
        if not lists:
            raise Refused("The list of conversations is closed; F3 opens it.")
        return lists.first()

    def _chosen(self) -> Entry:
        chosen = self._list.chosen
        if chosen is None:
            raise Refused("No conversation is chosen.")
        return chosen
