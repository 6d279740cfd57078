"""What was typed and not sent yet, kept for each conversation until it is sent."""

from __future__ import annotations

from pathlib import Path

from chatapp import paths
from chatapp.ui.prompt.files import read_or_empty, write_private

_NEW = "new"


class Drafts:
    """Drafts by conversation id; an empty id is the conversation that is not begun yet."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or paths.data_dir() / "drafts"
        self._waiting: dict[str, str] = {}  # what the disk did not take

    def load(self, conversation: str) -> str:
        """The draft of a conversation, empty if there is none."""
        waiting = self._waiting.get(conversation)
        return waiting if waiting is not None else read_or_empty(self._path(conversation))

    def save(self, conversation: str, text: str) -> str | None:
        """Keeps a draft, or removes it if it is blank; returns a sentence if it can be kept in memory only."""
        path = self._path(conversation)
        try:
            if text.strip():
                paths.private_dir(self._folder)
                write_private(path, text)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            self._waiting[conversation] = text
            return f"The draft could not be saved ({error.strerror}); chatapp keeps it as long as it runs."
        self._waiting.pop(conversation, None)
        return None

    def lost(self) -> list[str]:
        """Drafts that the disk does not take now either, as the person should be told them at the end."""
        for conversation, text in list(self._waiting.items()):
            self.save(conversation, text)
        return [f"This draft could not be saved: {text}" for text in self._waiting.values() if text.strip()]

    def _path(self, conversation: str) -> Path:
        return self._folder / f"{conversation or _NEW}.txt"
