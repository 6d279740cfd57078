"""Tiny models whose heads two and three ranks divide, and engines of several ranks on this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from chatapp.client import Engine
from chatapp.launch import Hosts
from tests.engine.folder import write_model

#: Starts an engine of so many ranks; it is ended after the test.
Start = Callable[[int], Awaitable[Engine]]


@pytest.fixture(scope="session")
def divisible_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of twelve heads and six key-value heads."""
    return write_model(
        tmp_path_factory.mktemp("models") / "divisible",
        hidden_size=96,
        num_attention_heads=12,
        num_key_value_heads=6,
        head_dim=8,
    )


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    engines: list[Engine] = []

    async def started(ranks: int) -> Engine:
        engines.append(await Engine.start(hosts=Hosts.here(ranks) if ranks > 1 else None))
        return engines[-1]

    yield started
    for engine in engines:
        await engine.close()
