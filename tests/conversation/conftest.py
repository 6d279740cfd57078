from __future__ import annotations

import pytest

from chatapp.conversation.store import Store


@pytest.fixture
def store() -> Store:
    return Store()
