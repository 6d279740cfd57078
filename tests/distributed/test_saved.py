"""A saved prompt cache in parts, one for each rank: all of one moment, or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from chatapp import paths
from chatapp.protocol import Leave, Turn
from tests.distributed.conftest import Start
from tests.distributed.talk import SEEDED, Talk

QUESTION = Turn("user", "What is the capital of France?")
NEXT = Turn("user", "And of Spain?")
NOT_TOGETHER = "The saved prompt cache was ignored: the ranks' parts are not of the same moment."


@pytest.mark.parametrize("damage", ["none", "mixed", "missing"])
async def test_parts_are_used_together_or_not_at_all(start: Start, divisible_model: Path, damage: str):
    file = paths.prompt_cache("c")
    first = Talk(await start(2), cache_file=str(file))
    await first.load(divisible_model, max_kv_size=256)
    reply = await first.reply("first", QUESTION, sampling=SEEDED)
    await first.left()
    parts = sorted(file.parent.iterdir())
    assert [part.name for part in parts] == ["c.rank0of2.cache.safetensors", "c.rank1of2.cache.safetensors"]
    shutil.copy(parts[1], earlier := parts[1].with_suffix(".earlier"))
    await first.reply("second", QUESTION, reply, NEXT, sampling=SEEDED)
    await first.left()
    if damage == "mixed":
        earlier.replace(parts[1])
    elif damage == "missing":
        parts[1].unlink()
    await first.engine.close()

    second = Talk(await start(2), cache_file=str(file))
    await second.load(divisible_model, max_kv_size=256)
    await second.reply("second", QUESTION, reply, NEXT, sampling=SEEDED)
    reused, _, method = second.said[0].facts[:3]
    assert (method == "disk", reused > 0) == ((True, True) if damage == "none" else (False, False))
    assert second.said[0].ids == first.said[1].ids
    assert second.notes == {"none": [], "mixed": [NOT_TOGETHER], "missing": [NOT_TOGETHER]}[damage]


async def test_other_ranks_read_again_and_removing_leaves_nothing(start: Start, divisible_model: Path):
    file = paths.prompt_cache("c")
    ids: list[list[int]] = []
    for ranks in (2, 3):
        talk = Talk(await start(ranks), cache_file=str(file))
        await talk.load(divisible_model, max_kv_size=256)
        await talk.reply("first", QUESTION, sampling=SEEDED)
        await talk.left()
        assert talk.said[0].facts[2] == "cold"
        assert not talk.notes
        ids.append(talk.said[0].ids)
    assert len(list(file.parent.iterdir())) == 2 + 3
    await talk.engine.ask(Leave(talk.engine.next_request(), "c", str(file), removed=True))
    assert not list(file.parent.iterdir())
    assert ids[0] == ids[1]
