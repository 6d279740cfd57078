"""What was typed and not sent yet, kept for each conversation until it is sent."""

from __future__ import annotations

from pathlib import Path

from chatapp import paths
from chatapp.ui.prompt.files import read_or_empty, write_private

_NEW = "new"


class Drafts:
    """Drafts by conversation id; an empty id is the conversation that is not begun yet."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or paths.private_dir(paths.data_dir() / "drafts")

    def load(self, conversation: str) -> str:
        """The draft of a conversation, empty if there is none."""
        return read_or_empty(self._path(conversation))

    def save(self, conversation: str, text: str) -> str | None:
        """Keeps a draft, or removes it if it is blank; returns a sentence if that failed."""
        path = self._path(conversation)
        try:
            if text.strip():
                write_private(path, text)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            return f"The draft could not be saved ({error.strerror}); what you typed is still here."
        return None

    def _path(self, conversation: str) -> Path:
        return self._folder / f"{conversation or _NEW}.txt"
