"""Several ranks give what one process gives: ids, what was reused, and the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.conftest import Start
from tests.distributed.talk import assert_alike, everything


@pytest.mark.parametrize("ranks", [2, 3])
async def test_a_long_conversation_with_a_tiny_model(start: Start, divisible_model: Path, ranks: int):
    one = await everything(await start(1), divisible_model, capacity=128, words=6)
    several = await everything(await start(ranks), divisible_model, capacity=128, words=6)
    assert_alike(one, several)


@pytest.mark.model
@pytest.mark.timeout(900)
async def test_three_ranks_with_the_default_model(start: Start, default_model_dir: Path):
    one = await everything(await start(1), default_model_dir, capacity=96, words=2)
    three = await everything(await start(3), default_model_dir, capacity=96, words=2)
    assert_alike(one, three)
