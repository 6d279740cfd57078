"""chatapp's own files: to take in a conversation from another machine."""

from __future__ import annotations

from chatapp.conversation import journal
from chatapp.conversation.exchange.reading import UnreadableError
from chatapp.conversation.exchange.transcript import Transcript, tree_of
from chatapp.conversation.tree import fold


def recognizes(text: str) -> bool:
    """Whether the first line is that of a conversation file."""
    first = text.split("\n", 1)[0].encode("utf-8", "replace")
    return any(getattr(event, "schema", None) for event in journal.read(first + b"\n").events)


def read(text: str, name: str) -> Transcript:
    """Reads a file; damaged lines are skipped and named in the notices.

    Raises:
        UnreadableError: A later version of the program wrote it.
    """
    reading = journal.read(text.encode("utf-8", "replace") + b"\n")
    if reading.newer:
        raise UnreadableError(f"{name} was written by a later version of chatapp; update this one first.")
    conversation = fold(reading.events)
    shown = conversation.path()
    return Transcript(
        conversation.title,
        conversation.system,
        conversation.model,
        conversation.created,
        tree_of(conversation),
        shown[-1].id if shown else None,
        notices=reading.notices,
    )
