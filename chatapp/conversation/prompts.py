"""What a model is given to answer: the turns of a branch, as it is now or as it was when a message was written."""

from __future__ import annotations

from collections.abc import Sequence

from chatapp.conversation import journal
from chatapp.conversation.events import Message
from chatapp.conversation.records import Records
from chatapp.conversation.tree import Conversation
from chatapp.errors import ChatappError
from chatapp.protocol import Turn


def turns(system: str, path: Sequence[Message], records: Records, model: str) -> tuple[Turn, ...]:
    """Messages as the engine takes them, the system message first.

    Args:
        system: Empty for none.
        path: Oldest first.
        records: Of the conversation.
        model: Replies of this model carry the ids that were sampled, so that they need not be tokenized again.

    Raises:
        ChatappError: A message has a role that no model knows.
    """
    first = [Turn("system", system)] if system else []
    return (*first, *(_turn(message, records, model) for message in path))


def _turn(message: Message, records: Records, model: str) -> Turn:
    match message.role:
        case "system" | "user" | "assistant" | "tool":
            return Turn(message.role, message.content, _ids(message, records, model))
        case _:
            raise ChatappError(f"No model knows the role {message.role!r}; edit or delete that message.", "usage")


def _ids(message: Message, records: Records, model: str) -> tuple[int, ...]:
    """The ids that the model sampled; none where a person wrote a part or the records do not fit the text."""
    if message.role != "assistant" or message.model != model:
        return ()
    return records.ids(message.id, message.content)


def before(content: bytes, id: str) -> Conversation:
    """The conversation as it was when a message was written: its system message, what was shown and what deleted.

    Args:
        content: Of the conversation's file.
        id: The message.
    """
    conversation = Conversation()
    for event in journal.read(content).events:
        if isinstance(event, Message) and event.id == id:
            break
        conversation.apply(event)
    return conversation
