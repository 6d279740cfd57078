"""A tiny model in a folder, and engines that run it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chatapp.client import Engine
from chatapp.protocol import Load
from tests.engine.folder import write_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest_asyncio.fixture
async def engine(tiny_model: Path) -> AsyncIterator[Engine]:
    """An engine with the tiny model loaded."""
    running = await Engine.start()
    await running.ask(Load(running.next_request(), str(tiny_model)))
    yield running
    await running.close()
