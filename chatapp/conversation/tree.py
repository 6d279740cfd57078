"""What a conversation is at a moment: its events folded into a tree of messages and a view of it. No files here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import UNSET

from chatapp.conversation import events
from chatapp.conversation.events import Message


@dataclass(frozen=True, slots=True)
class View:
    """What undo and redo go back and forth over.

    Attributes:
        head: The shown leaf; None before the first message.
        hidden: Deleted messages.
        versions: For messages with versions in place: slot (the oldest version's id) to the version shown.
        system: The system message.
        branches: Named leaves.
    """

    head: str | None = None
    hidden: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    system: str = ""
    branches: Mapping[str, str] = field(default_factory=dict[str, str])


class Conversation:
    """The tree of messages, and which of it is shown.

    Messages hang on *slots*: a message and the versions edited in place of it share one slot and so what follows.
    Change it only by `apply`; `chatapp.conversation.session.ConversationSession` writes each event down first.

    Attributes:
        id: Of the conversation.
        messages: All messages by id, deleted ones too, in the order of the file.
        partials: Replies that were begun and have not ended (in a file that somebody else is writing).
        title: Given by the person or made from the first message; empty if neither.
        settings: What the person set for this conversation.
        view: What is shown.
        schema: Of the file.
    """

    def __init__(self) -> None:
        self.id = ""
        self.created = ""
        self.model = ""
        self.forked_from = ""
        self.schema = events.SCHEMA
        self.title = ""
        self.settings: dict[str, Any] = {}
        self.messages: dict[str, Message] = {}
        self.partials: dict[str, Message] = {}
        self.view = View()
        self.complaints: list[str] = []
        self._slots: dict[str, str] = {}
        self._children: dict[str | None, list[str]] = {}
        self._last_shown: dict[str | None, str] = {}
        self._undo: list[tuple[View, View]] = []
        self._redo: list[tuple[View, View]] = []

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def system(self) -> str:
        """The system message; empty for none."""
        return self.view.system

    @property
    def head(self) -> str | None:
        """Id of the shown leaf."""
        return self.view.head

    @property
    def branches(self) -> Mapping[str, str]:
        """Named leaves: name to message id."""
        return self.view.branches

    @property
    def can_undo(self) -> bool:
        return bool(self._undo)

    @property
    def can_redo(self) -> bool:
        return bool(self._redo)

    def path(self, to: str | None = None) -> list[Message]:
        """The shown branch, oldest first, without deleted messages.

        Args:
            to: Ends there instead of at the head.
        """
        return [message for message in self._chain(to or self.view.head) if message.id not in self.view.hidden]

    def before(self, id: str) -> str | None:
        """The message that stands before one in the branches through it: its parent's shown version, if not deleted."""
        parent = self.messages[id].parent
        while parent is not None:
            slot = self._slots[parent]
            shown = self.view.versions.get(slot, slot)
            if shown not in self.view.hidden:
                return shown
            parent = self.messages[shown].parent
        return None

    def siblings(self, id: str) -> list[Message]:
        """All messages at this place, oldest first, the given one included: alternatives and edited versions."""
        parent = self._slot(self.messages[id].parent)
        return [self.messages[i] for i in self._children.get(parent, []) if i == id or i not in self.view.hidden]

    def children(self, id: str | None) -> list[Message]:
        """Messages that follow one directly (None: the first messages), deleted ones left out."""
        return [self.messages[i] for i in self._children.get(self._slot(id), []) if i not in self.view.hidden]

    def leaves(self) -> list[Message]:
        """The last message of every branch that is not deleted, oldest first."""
        hidden = self.view.hidden
        return [m for m in self.messages.values() if m.id not in hidden and not self.children(m.id)]

    def leaf_under(self, id: str) -> str:
        """The leaf that was shown last below a message; the message itself where nothing follows."""
        while following := self.children(id):
            last = self._last_shown.get(self._slot(id))
            id = last if last in {m.id for m in following} else following[-1].id
        return id

    def descendants(self, id: str) -> list[str]:
        """Ids of a message and of everything below it."""
        found, open_ids = [id], list(self._children.get(self._slot(id), []))
        while open_ids:
            child = open_ids.pop()
            found.append(child)
            if self._slot(child) == child:
                open_ids += self._children.get(child, [])
        return found

    def on_path(self, id: str) -> bool:
        """Whether the shown branch goes through this message or another version of it that shares what follows."""
        slot = self._slot(id)
        return any(self._slot(message.id) == slot for message in self._chain(self.view.head))

    def has_versions(self, id: str) -> bool:
        """Whether versions of this message share what follows."""
        slot = self._slots[id]
        return slot != id or any(root == slot and i != slot for i, root in self._slots.items())

    def _chain(self, id: str | None) -> list[Message]:
        chain: list[Message] = []
        shown = id
        while shown is not None:
            message = self.messages[shown]
            chain.append(message)
            slot = self._slot(message.parent)
            shown = None if slot is None else self.view.versions.get(slot, slot)
        return chain[::-1]

    def _slot(self, id: str | None) -> str | None:
        return None if id is None else self._slots[id]

    # Folding ---------------------------------------------------------------------------------------------------

    def apply(self, event: events.AnyEvent) -> None:
        """Folds one more event in. Events that refer to what is not there are reported in ``complaints``."""
        match event:
            case events.Opened():
                self._open(event)
            case Message():
                self._add(event)
            case events.Partial():
                self._grow(event)
            case events.Head():
                self._show(event)
            case events.Title():
                self.title = event.title
            case events.Settings():
                self.settings = event.settings
            case events.Undo():
                self._step_back(self._undo, self._redo)
            case events.Redo():
                self._step_back(self._redo, self._undo)
            case events.System() | events.Hide() | events.Branch():
                self._step(self._changed(event))
            case events.Unknown():
                pass

    def settle(self) -> None:
        """Takes ``partials`` as messages that ended in an error, for whoever looks once and follows nothing.

        Of several for one message the first is shown.
        """
        answered: set[str | None] = set()
        for partial in list(self.partials.values()):
            first = partial.parent not in answered
            answered.add(partial.parent)
            self.apply(msgspec.structs.replace(partial, finish="error", aside=not first))
            if first and self.head != partial.id:
                self.apply(events.Head(partial.id))

    def _open(self, event: events.Opened) -> None:
        if self.id:
            self.complaints.append(
                f"A second conversation ({event.id}) begins inside the file; it was joined to this one."
            )
            return
        self.id, self.created, self.model, self.schema = event.id, event.created, event.model, event.schema
        self.forked_from = event.forked_from
        self.view = replace(self.view, system=event.system)

    def _add(self, message: Message) -> None:
        self.partials.pop(message.id, None)
        if message.id in self.messages:
            if message == self.messages[message.id]:
                return
            message = msgspec.structs.replace(message, id=self._free_id(message.id))
            self.complaints.append(f"Two messages have one id; the second is now {message.id}.")
        if message.parent is not None and message.parent not in self.messages:
            self.complaints.append(f"The message before {message.id} is missing; it follows the one shown then.")
            message = msgspec.structs.replace(message, parent=self.view.head)
        edited = message.edits if message.in_place else None
        shares = edited in self.messages and self._slot(self.messages[edited].parent) == self._slot(message.parent)
        self._slots[message.id] = self._slots[edited] if shares and edited is not None else message.id
        self.messages[message.id] = message
        self._children.setdefault(self._slot(message.parent), []).append(message.id)
        follows = self._slot(message.parent) == self._slot(self.view.head)
        if follows and not shares and not message.aside:
            self._redo.clear()
            self.view = self._looking_at(message.id, self.view)
            self._last_shown[self._slot(message.parent)] = message.id

    def _free_id(self, id: str) -> str:
        number = 2
        while f"{id}~{number}" in self.messages:
            number += 1
        return f"{id}~{number}"

    def _grow(self, event: events.Partial) -> None:
        if event.dropped or event.id in self.messages:
            self.partials.pop(event.id, None)
            return
        begun = self.partials.get(event.id)
        if begun is None:
            begun = Message(
                event.id, event.parent, "assistant", "", event.created, event.model, event.sampling,
                continues=event.continues, given=event.given, setup=event.setup,
            )  # fmt: skip
        self.partials[event.id] = msgspec.structs.replace(begun, content=begun.content + event.content)

    def _show(self, event: events.Head) -> None:
        if event.id is not None and event.id not in self.messages:
            self.complaints.append(f"The message {event.id} that was shown is missing.")
            return
        head, view = event.id, self.view
        if event.through in self.messages:
            slot = self._slots[event.through]
            view = replace(view, versions={**view.versions, slot: event.through})
            head = event.through if self._slot(head) == slot else head
        self._step(self._looking_at(head, view))

    def _changed(self, event: events.System | events.Hide | events.Branch) -> View:
        view = self.view
        match event:
            case events.System():
                return replace(view, system=event.content)
            case events.Hide():
                view = replace(view, hidden=view.hidden | (self.messages.keys() & set(event.ids)))
                known = event.head is None or event.head in self.messages
                return self._looking_at(event.head, view) if event.head is not UNSET and known else view
            case events.Branch():
                others = {name: id for name, id in view.branches.items() if name != event.name}
                named = {event.name: event.id} if event.id in self.messages else {}
                return replace(view, branches={**others, **named})

    def _looking_at(self, head: str | None, view: View) -> View:
        if head is None:
            return replace(view, head=None)
        slot = self._slots[head]
        versions = view.versions if view.versions.get(slot, slot) == head else {**view.versions, slot: head}
        return replace(view, head=head, versions=versions)

    def _look_at(self, head: str | None, view: View) -> None:
        self.view = self._looking_at(head, view)
        for message in self._chain(head):
            self._last_shown[self._slot(message.parent)] = message.id

    def _step(self, view: View) -> None:
        self._undo.append((self.view, view))
        self._redo.clear()
        self._look_at(view.head, view)

    def _step_back(self, stack: list[tuple[View, View]], other: list[tuple[View, View]]) -> None:
        """Gives the fields that a step changed their old values; messages written since stay where they are."""
        if not stack:
            return
        old, new = stack.pop()
        changed = [name for name in View.__slots__ if getattr(old, name) != getattr(new, name)]
        view = replace(self.view, **{name: getattr(old, name) for name in changed})
        other.append((self.view, view))
        self._look_at(view.head, view)


def fold(lines: Iterable[events.AnyEvent]) -> Conversation:
    """The conversation that these events tell of."""
    conversation = Conversation()
    for event in lines:
        conversation.apply(event)
    return conversation
