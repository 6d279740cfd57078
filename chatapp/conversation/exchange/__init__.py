"""Exchange with other programs: `registry` lists the formats, each is a module, `transcript` is what they share."""

from __future__ import annotations

from pathlib import Path

from chatapp.conversation.exchange import registry
from chatapp.conversation.exchange.transcript import transcript_of
from chatapp.conversation.files import FILES, write_atomically
from chatapp.conversation.session import ConversationSession
from chatapp.errors import ChatappError


def export(
    session: ConversationSession,
    path: Path,
    *,
    format: str | None = None,
    tree: bool = False,
    to: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes a conversation into a file that only its owner can read.

    Args:
        session: The conversation.
        path: Of the file. One that is there already is kept: a number is added to the name.
        format: A name of `registry.EXPORTERS`; None goes by the file's ending.
        tree: All branches instead of the shown one.
        to: The last message of another branch to take.
        overwrite: Replace a file that is there.

    Returns:
        Where it was written.

    Raises:
        ChatappError: The format is not known, or the file cannot be written.
    """
    exporter = registry.exporter(format or registry.format_of(path.suffix))
    text = exporter.write(transcript_of(session, tree=tree, to=to), tree=tree)
    target = path if overwrite else _free(path)
    try:
        write_atomically(FILES, target, text.encode())
    except OSError as error:
        raise ChatappError(f"{target} could not be written: {error.strerror or error}.") from error
    return target


def _free(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
