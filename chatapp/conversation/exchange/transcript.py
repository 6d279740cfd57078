"""A conversation on its way out of or into chatapp: what every format can be turned into and made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatapp.conversation import events
from chatapp.conversation.events import Message
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.tree import Conversation
from chatapp.tokens import Token

#: How other programs call the roles, in lower case.
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "you": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "ai": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
}


class NotThisConversationError(ValueError):
    """One conversation of a file cannot be read; ``str(error)`` says where and why."""


@dataclass
class Transcript:
    """A tree of messages with what belongs to it.

    Attributes:
        messages: Parents before children. One without alternatives is a plain chain.
        head: The leaf to show; None is the last message.
        tokens: Records of messages that have them.
        notices: What could not be taken over, as sentences.
    """

    title: str = ""
    system: str = ""
    model: str = ""
    created: str = ""
    messages: list[Message] = field(default_factory=list[Message])
    head: str | None = None
    tokens: dict[str, list[Token]] = field(default_factory=dict[str, list[Token]])
    notices: list[str] = field(default_factory=list[str])

    def add(
        self,
        role: str,
        content: str,
        *,
        parent: str | None,
        created: str = "",
        model: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """Adds a message under an id of its own and returns that.

        Raises:
            NotThisConversationError: The role is not known.
        """
        known = ROLES.get(role.strip().lower())
        if known is None:
            raise NotThisConversationError(f"message {len(self.messages) + 1} has the unknown role {role!r}")
        id = str(len(self.messages) + 1)
        self.messages.append(
            Message(
                id, parent, known, events.storable(content), created, events.storable(model), extra=dict(extra or {})
            )
        )
        return id

    def add_in_order(self, role: str, content: str, **fields: Any) -> None:
        """Adds a message after the last one. A system message that comes first becomes the conversation's own."""
        if not self.messages and not self.system and ROLES.get(role.strip().lower()) == "system":
            self.system = events.storable(content)
            return
        self.add(role, content, parent=self.messages[-1].id if self.messages else None, **fields)

    def path(self) -> list[Message]:
        """The messages down to the head."""
        by_id = {message.id: message for message in self.messages}
        id = self.head or (self.messages[-1].id if self.messages else None)
        chain: list[Message] = []
        while id is not None:
            chain.append(by_id[id])
            id = by_id[id].parent
        return chain[::-1]

    def branches(self) -> list[list[Message]]:
        """The messages down to each leaf."""
        parents = {message.parent for message in self.messages}
        leaves = [message.id for message in self.messages if message.id not in parents]
        return [Transcript(messages=self.messages, head=leaf).path() for leaf in leaves]


def transcript_of(session: ConversationSession, *, tree: bool = False, to: str | None = None) -> Transcript:
    """What a session shows, with its token records.

    Args:
        session: The conversation.
        tree: All messages that are not deleted, instead of the shown branch.
        to: The last message of another branch to take.
    """
    conversation = session.conversation
    shown = conversation.path(to)
    messages = tree_of(conversation) if tree else _chained(shown)
    transcript = Transcript(
        conversation.title, conversation.system, conversation.model, conversation.created, messages,
        shown[-1].id if shown else None,
    )  # fmt: skip
    for message in messages:
        if tokens := session.tokens(message.id):
            transcript.tokens[message.id] = tokens
    return transcript


def children(messages: Sequence[Message]) -> dict[str | None, list[Message]]:
    """Messages by the one they follow."""
    found: dict[str | None, list[Message]] = {}
    for message in messages:
        found.setdefault(message.parent, []).append(message)
    return found


def _chained(messages: Sequence[Message]) -> list[Message]:
    """The messages with parents as shown: deleted ones between them and older versions are passed over."""
    chained: list[Message] = []
    for message in messages:
        chained.append(events.with_parent(message, chained[-1].id if chained else None))
    return chained


def tree_of(conversation: Conversation) -> list[Message]:
    """All messages that are not deleted, with parents as the tree shows them today."""
    hidden = conversation.view.hidden
    shown = (message for message in conversation.messages.values() if message.id not in hidden)
    return [events.with_parent(message, conversation.before(message.id)) for message in shown]
