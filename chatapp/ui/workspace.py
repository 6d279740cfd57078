"""All that is open: the engine, the conversations, and which one is shown. No Textual here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable

from chatapp import paths
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.settings import Settings
from chatapp.ui.changes import PromptBack, Refused, Said
from chatapp.ui.chat import Chat
from chatapp.ui.downloads import Downloads
from chatapp.ui.link import EngineLink

#: Longest wait at the end for the engine to stop its replies, and for it to save its caches, in seconds.
_ENDING_SECONDS = 5.0


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
        """Closes a conversation that goes to the trash; what the engine saved of it is removed.

        Raises:
            Refused: A reply is being written in it.
        """
        chat = self._open.get(id)
        if chat is not None:
            if chat.busy:
                raise Refused("A reply is being written in that conversation; open it, and Esc stops it.")
            chat.session.close()
            self._left.append(self._open.pop(id))
        for chat in self._left:
            if chat.id == id:
                chat.leave_soon(removed=True)  # after what it may still be saving
        paths.forget_prompt_cache(id)

    def rename(self, id: str, title: str) -> None:
        """Gives a conversation a title.

        Raises:
            ChatappError: It cannot be written.
        """
        chat = self._open.get(id)
        if chat is not None:
            chat.session.rename(title)
            return
        with contextlib.closing(self.store.open(id)) as session:
            session.rename(title)

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

    @property
    def untaken(self) -> list[Chat]:
        """Conversations of which something waits in memory because the disk does not take it."""
        return [chat for chat in self._open.values() if chat.session.trouble]

    def unsaved(self) -> list[Chat]:
        """As `untaken`, after one more attempt."""
        return [chat for chat in self.untaken if not chat.session.retry()]

    async def close(self) -> list[str]:
        """Stops what is in flight, saves it and ends the engine.

        Returns:
            What the person should be told at the end, as sentences.
        """
        replying = [chat for chat in self._open.values() if chat.stop(leaving=True)]
        if await _in_time(chat.settled() for chat in replying):
            await _in_time(chat.leave() for chat in self._open.values())
        await self.downloads.close()
        await self.link.close()
        await _in_time(chat.settled() for chat in replying)  # an engine that hung is ended: what it wrote is saved now
        said = [change for chat in self._open.values() for change in chat.changes if isinstance(change, Said)]
        told = [change.text for change in said if change.severity != "information"]
        told += [sentence for chat in self._open.values() if (sentence := chat.session.close())]
        return told


async def _in_time(waits: Iterable[Coroutine[object, object, None]]) -> bool:
    """Waits for all of them, but no longer than a person would at the end; whether they are done."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    if not tasks:
        return True
    _, late = await asyncio.wait(tasks, timeout=_ENDING_SECONDS)
    for task in late:
        task.cancel()
    return not late
