"""The list of conversations at the side: the newest first, or what a search finds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static
from textual.widgets.option_list import Option

from chatapp.conversation.store import Store
from chatapp.errors import ChatappError
from chatapp.text import visible
from chatapp.ui.keymap import bindings
from chatapp.ui.widgets.options import Options

#: Wait after a key in the search field before searching, in seconds.
_PAUSE = 0.15
_MOST = 500


@dataclass(frozen=True)
class Entry:
    """A line of the list.

    Attributes:
        id: Of the conversation.
        message: The message that a search found; None for the conversation as a whole.
        detail: The second line.
    """

    id: str
    title: str
    detail: str
    message: str | None = None


class ChatOptions(Options):
    """The lines, with the keys of the list."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list")]


class ChatList(Vertical):
    """See the module's docstring; reads the conversations in a thread, so that typing never waits for the disk."""

    def __init__(self, store: Store) -> None:
        super().__init__(id="chats")
        self._store = store
        self._entries: list[Entry] = []
        self._current = ""
        # Held here: a search may end after the list was closed.
        self._search = Input(placeholder="/ search", id="chats-search", compact=True)
        self._options = ChatOptions(id="chats-options", markup=False, compact=True)
        self._note = Static(id="chats-note", markup=False)

    def compose(self) -> ComposeResult:
        yield self._search
        yield self._options
        yield self._note

    def on_mount(self) -> None:
        if self.parent is not None:
            self.parent.add_class("-listed")  # where there is no room for both, the inspector makes way
        self.reload()

    def on_unmount(self) -> None:
        if self.parent is not None:
            self.parent.remove_class("-listed")

    @property
    def chosen(self) -> Entry | None:
        """The line under the cursor."""
        index = self._options.highlighted
        return self._entries[index] if index is not None and index < len(self._entries) else None

    def focus_options(self) -> None:
        """Puts the keyboard on the lines."""
        self._options.focus()

    def focus_search(self) -> None:
        """Puts the keyboard on the search field."""
        self._search.focus()

    def show_current(self, id: str) -> None:
        """Marks the conversation that is open."""
        self._current = id
        self._show(self._entries)

    def drop(self, id: str) -> None:
        """Takes a conversation out of the lines; the cursor stays at its place."""
        place = self._options.highlighted or 0
        self._show([entry for entry in self._entries if entry.id != id])
        if self._entries:
            self._options.highlighted = min(place, len(self._entries) - 1)
        self.reload()

    def reload(self) -> None:
        """Reads the conversations again."""
        self.run_worker(partial(self._load, self._search.value), exclusive=True, group="chats")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.run_worker(partial(self._load, event.value, _PAUSE), exclusive=True, group="chats")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_options()

    async def _load(self, query: str, pause: float = 0.0) -> None:
        await asyncio.sleep(pause)
        note = ""
        try:
            entries = await asyncio.to_thread(entries_of, self._store, query.strip())
        except ChatappError as error:
            entries, note = [], str(error)
        if not entries and not note:
            note = "Nothing found." if query.strip() else "No conversation is saved yet."
        self._note.update(visible(note))
        self._show(entries)

    def _show(self, entries: list[Entry]) -> None:
        options = self._options
        before = self.chosen
        self._entries = entries
        options.clear_options()
        options.add_options(Option(_line(entry, entry.id == self._current)) for entry in entries)
        wanted = before.id if before is not None else self._current
        place = next((index for index, entry in enumerate(entries) if entry.id == wanted), 0)
        if entries:
            options.highlighted = place


def entries_of(store: Store, query: str) -> list[Entry]:
    """All conversations, or the messages that a search finds. Reads the disk."""
    if not query:
        return [
            Entry(each.id, each.title or "untitled", f"{ago(time.time() - each.updated)} · {counted(each.messages)}")
            for each in store.summaries()[:_MOST]
            if each.readable
        ]
    return [Entry(hit.conversation, hit.title or "untitled", hit.excerpt, hit.message) for hit in store.search(query)]


def counted(messages: int) -> str:
    """So many messages."""
    return "1 message" if messages == 1 else f"{messages:,} messages"


def ago(seconds: float) -> str:
    """How long ago, in one word or two."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {name} ago"
    return "now"


def _line(entry: Entry, current: bool) -> Content:
    mark = "● " if current else "  "
    title, detail = (visible(text).replace("\n", " ") for text in (entry.title, entry.detail))
    return Content.assemble((mark + title, "bold" if current else ""), "\n  ", (detail, "dim"))
