"""Which events a change of a conversation is made of. Pure: nothing is written or changed here."""

from __future__ import annotations

from collections.abc import Sequence

from chatapp.conversation.events import Head, Hide, KnownEvent, Message, Title, storable
from chatapp.conversation.tree import Conversation, fold

#: Letters of a title made from the first message.
TITLE_LENGTH = 60


def shown(conversation: Conversation, message: Message) -> list[KnownEvent]:
    """Shows a new message; one that follows the shown leaf is shown by itself."""
    return [] if message.parent == conversation.head else [Head(message.id)]


def edited(conversation: Conversation, message: Message) -> Head:
    """Shows an edited version; one in place keeps what is shown after it."""
    old = message.edits
    if not message.in_place or old is None:
        return Head(message.id)
    leaf = conversation.head if conversation.on_path(old) else conversation.leaf_under(old)
    return Head(leaf, through=message.id)


def shown_through(conversation: Conversation, id: str) -> Head:
    """Shows the branch through a message, down to the leaf that was shown there last."""
    if not conversation.has_versions(id):
        return Head(conversation.leaf_under(id))
    if conversation.on_path(id) and conversation.children(id):
        return Head(conversation.head, through=id)
    return Head(conversation.leaf_under(id), through=id)


def hidden(conversation: Conversation, id: str, *, following: bool) -> Hide:
    """Hides a message, or everything from it on; the shown leaf moves where it is hidden itself."""
    gone = set(conversation.descendants(id)) if following else {id}
    ids = tuple(message for message in conversation.messages if message in gone)
    return Hide(ids, _head_without(conversation, id, gone)) if conversation.head in gone else Hide(ids)


def _head_without(conversation: Conversation, id: str, gone: set[str]) -> str | None:
    """The leaf under the neighbouring alternative, else what came before."""
    siblings = [message.id for message in conversation.siblings(id)]
    place = siblings.index(id)
    for neighbour in [*reversed(siblings[:place]), *siblings[place + 1 :]]:
        if neighbour not in gone and neighbour not in conversation.view.hidden:
            return conversation.leaf_under(neighbour)
    before = [message.id for message in conversation.path(id) if message.id not in gone]
    return before[-1] if before else None


def own_part(conversation: Conversation, leaf: str) -> str:
    """The first message of a branch below which there is nothing but this branch."""
    own = leaf
    for message in reversed(conversation.path(leaf)):
        if message.id != leaf and len(conversation.children(message.id)) > 1:
            break
        own = message.id
    return own


def first_title(conversation: Conversation, role: str, content: str) -> list[KnownEvent]:
    """A title from the first message of the person, where there is none yet."""
    is_first = role == "user" and not conversation.title and not conversation.messages
    return title(_shortened(content)) if is_first else []


def title(text: str) -> list[KnownEvent]:
    """A title on one line; nothing for an empty one."""
    line = storable(" ".join(text.split()))
    return [Title(line)] if line else []


def filled(messages: Sequence[Message], head: str | None, name: str) -> list[KnownEvent]:
    """A conversation of given messages, parents first: shows ``head`` (None: the last), titled or by itself."""
    first = next((message.content for message in messages if message.role == "user"), "")
    lines: list[KnownEvent] = [*messages, *title(name or _shortened(first))]
    leaf = head or (messages[-1].id if messages else None)
    return lines if fold(lines).head == leaf else [*lines, Head(leaf)]


def _shortened(text: str) -> str:
    line = " ".join(text[: 4 * TITLE_LENGTH].split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
