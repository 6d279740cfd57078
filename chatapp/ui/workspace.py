"""All that is open: the engine, the conversations, and which one is shown. No Textual here."""

from __future__ import annotations

import asyncio

from chatapp import paths
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.settings import Settings
from chatapp.ui.changes import PromptBack, Said
from chatapp.ui.chat import Chat
from chatapp.ui.downloads import Downloads
from chatapp.ui.link import EngineLink

#: Longest wait for the engine to save its caches at the end, in seconds.
_SAVING_SECONDS = 5.0


class Workspace:
    """Conversations that are open, one of them shown.

    A reply that is in flight when another conversation is shown goes on in the background and is saved; the engine
    takes one request after another, so a reply asked for meanwhile waits for it.

    Attributes:
        store: Where conversations are kept.
        link: The engine.
        chat: The conversation that is shown.
        downloads: Models on their way.
    """

    def __init__(self, store: Store, link: EngineLink, settings: Settings, chat: ConversationSession) -> None:
        self.store = store
        self.link = link
        self.settings = settings
        self.downloads = Downloads(link)
        self._open: dict[str, Chat] = {}
        self._left: list[Chat] = []  # closed; the engine may still save their caches
        self.chat = self._add(chat)

    def _add(self, session: ConversationSession) -> Chat:
        chat = Chat(session, self.link, self.settings)
        self._open[chat.id] = chat
        return chat

    def new(self) -> Chat:
        """Shows a new conversation."""
        return self._show(self._add(self.store.new(self.link.status.model, self.settings.system)))

    def open(self, id: str) -> Chat:
        """Shows a conversation.

        Raises:
            ChatappError: It cannot be opened.
        """
        return self._show(self._open.get(id) or self._add(self.store.open(id)))

    def show_session(self, session: ConversationSession) -> Chat:
        """Shows a conversation that was just made (a branch, a fork)."""
        return self._show(self._add(session))

    def _show(self, chat: Chat) -> Chat:
        before, self.chat = self.chat, chat
        if before is not chat and not before.busy:
            self._close(before)
        return chat

    def _close(self, chat: Chat) -> None:
        if chat.session.trouble and not chat.session.retry():
            return  # what waits in memory stays there; `tend` tries again
        chat.leave_soon()
        chat.session.close()
        self._left.append(self._open.pop(chat.id))

    def forget(self, id: str) -> None:
        """Closes a conversation that goes to the trash, its reply stopped; what the engine saved of it is removed."""
        chat = self._open.pop(id, None)
        if chat is not None:
            chat.stop()
            chat.session.close()
            self._left.append(chat)
        for chat in self._left:
            if chat.id == id:
                chat.leave_soon(removed=True)  # after what it may still be saving
        paths.forget_prompt_cache(id)

    @property
    def elsewhere(self) -> list[Chat]:
        """Conversations that are not shown and whose reply is in flight."""
        return [chat for chat in self._open.values() if chat is not self.chat and chat.busy]

    def tend(self) -> list[Said]:
        """Looks after what is not shown: closes what has ended, and returns what the person should hear."""
        said, self.downloads.told = self.downloads.told, []
        for chat in self._left:
            said += [change for change in chat.changes if isinstance(change, Said)]
            chat.changes.clear()
        self._left = [chat for chat in self._left if not chat.at_rest]
        for chat in [chat for chat in self._open.values() if chat is not self.chat]:
            said += [change for change in chat.changes if isinstance(change, Said)]
            back = [change for change in chat.changes if isinstance(change, PromptBack)]
            said += [Said("A prompt in another conversation was stopped before it was read.") for _ in back]
            chat.changes.clear()
            if not chat.busy:
                self._close(chat)
                if chat.id not in self._open and chat.ended is not None:
                    title = chat.session.conversation.title or "untitled"
                    said.append(Said(f"The reply in “{title}” has ended and is saved."))
        return said

    def unsaved(self) -> list[Chat]:
        """Conversations of which something waits in memory because the disk does not take it; tries it once more."""
        return [chat for chat in self._open.values() if chat.session.trouble and not chat.session.retry()]

    async def close(self) -> list[str]:
        """Stops what is in flight, saves it and ends the engine.

        Returns:
            What the person should be told at the end, as sentences.
        """
        for chat in self._open.values():
            if chat.stop():
                await chat.settled()
        await self._leave_all()
        said = [change for chat in self._open.values() for change in chat.changes if isinstance(change, Said)]
        told = [change.text for change in said if change.severity != "information"]
        told += [sentence for chat in self._open.values() if (sentence := chat.session.close())]
        await self.downloads.close()
        await self.link.close()
        return told

    async def _leave_all(self) -> None:
        """Lets the engine save its caches, for as long as a person would wait at the end."""
        leaving = [asyncio.create_task(chat.leave()) for chat in self._open.values()]
        if leaving:
            await asyncio.wait(leaving, timeout=_SAVING_SECONDS)
