"""chatapp's own files. `Store.take_in` copies one line by line; here they are read as those of any other program."""

from __future__ import annotations

from chatapp.conversation import journal
from chatapp.conversation.exchange.reading import UnreadableError
from chatapp.conversation.exchange.transcript import Transcript, tree_of
from chatapp.conversation.tree import fold


def recognizes(text: str) -> bool:
    """Whether the first line is that of a conversation file."""
    first = text.split("\n", 1)[0].encode("utf-8", "replace")
    return any(getattr(event, "schema", None) for event in journal.read(first + b"\n").events)


def is_conversation(data: bytes, name: str) -> bool:
    """Whether a file is one that `Store.take_in` can copy.

    Raises:
        UnreadableError: A later version of the program wrote it.
    """
    first = data[: data.find(b"\n") + 1]
    if not recognizes(first.decode("utf-8", "replace")):
        return False
    _check(journal.read(first), name)
    return True


def _check(reading: journal.Reading, name: str) -> None:
    if reading.newer:
        raise UnreadableError(f"{name} was written by a later version of chatapp; update this one first.")


def read(text: str, name: str) -> Transcript:
    """Reads a file; damaged lines are skipped and named in the notices.

    Raises:
        UnreadableError: A later version of the program wrote it.
    """
    reading = journal.read(text.encode("utf-8", "replace") + b"\n")
    _check(reading, name)
    conversation = fold(reading.events)
    conversation.settle()
    if any(message.peak_entropy is not None for message in conversation.messages.values()):
        reading.notices.append("The token records lie in another file; the heat was not taken over.")
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
