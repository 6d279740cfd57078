"""Several conversations under one budget."""

from __future__ import annotations

import pytest

from chatapp.engine.cache.pool import CachePool
from chatapp.engine.cache.session import CacheLimits
from chatapp.errors import ChatappError
from tests import tiny
from tests.cache import chat


def read(pool: CachePool, name: str, n: int = 60) -> None:
    cache = pool.get(name)
    ids = [1, *range(8, 8 + n)]
    chat.prefill(pool.model, cache, ids, 1, 16)
    pool.settle()


def test_switching_between_conversations_reads_nothing_again() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32))
    read(pool, "a")
    read(pool, "b")
    assert pool.get("a").forecast([1, *range(8, 68)], 1).prefilled == 1


def test_the_conversation_unused_for_longest_goes_first() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32))
    read(pool, "a")
    pool.budget = int(pool.nbytes * 2.5)
    read(pool, "b")
    pool.get("a")
    read(pool, "c")
    assert "b" not in pool
    assert "a" in pool
    assert "c" in pool
    assert pool.nbytes <= pool.budget


def test_the_one_in_use_stays_even_beyond_the_budget() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32), budget=1)
    read(pool, "a")
    assert "a" in pool
    read(pool, "b")
    assert "a" not in pool
    assert "b" in pool


def test_a_request_without_a_conversation_leaves_no_cache() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32))
    assert pool.get("") is not pool.get("")
    assert len(pool) == 0


def test_a_model_that_cannot_quantize_is_refused_at_the_start() -> None:
    """Case 12."""
    with pytest.raises(ChatappError, match="cannot be quantized"):
        CachePool(tiny.make("llama"), CacheLimits(32, kv_bits=8))
    CachePool(tiny.make("llama", head_dim=32), CacheLimits(32, kv_bits=8))
