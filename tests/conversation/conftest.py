from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store


class TidyStore(Store):
    """Closes at the end of a test what the test left open."""

    sessions: list[ConversationSession]

    def _opened(self, *arguments: Any) -> ConversationSession:
        self.sessions.append(super()._opened(*arguments))
        return self.sessions[-1]

    def _made(self, *arguments: Any) -> ConversationSession:
        self.sessions.append(super()._made(*arguments))
        return self.sessions[-1]


@pytest.fixture(autouse=True)
def private_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rescued lines may go to the folder for temporary files: not to this machine's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))


@pytest.fixture
def store() -> Iterator[Store]:
    made = TidyStore()
    made.sessions = []
    yield made
    for session in made.sessions:
        session.close()
