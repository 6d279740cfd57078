"""Several conversations under one budget."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
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


def test_a_draft_models_caches_are_within_the_budget_and_go_with_their_conversations() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32, checkpoint_bytes=800), draft_model=tiny.make("phi3"))
    for name in ("a", "b"):
        read(pool, name)
        before = pool.nbytes
        draft = pool.draft(name)
        assert draft is not None
        assert draft is pool.draft(name)
        chat.prefill(draft.model, draft, [1, *range(8, 68)], 1, 16)
        assert pool.nbytes == before + draft.nbytes > before
        assert draft.limits.checkpoint_bytes == 100
    pool.budget = pool.nbytes - 1
    pool.settle()
    assert "a" not in pool
    again = pool.draft("a")
    assert again is not None
    assert again.tokens == []


def test_without_a_draft_model_there_is_no_draft_cache() -> None:
    assert CachePool(tiny.make("llama"), CacheLimits(32)).draft("a") is None


def test_the_budgets_are_shares_of_the_memory_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=48_000))
    assert CachePool(tiny.make("llama"), CacheLimits(32)).budget == 12_000
    assert CacheLimits(32).going_back == 4_000
    assert CacheLimits(32, checkpoint_bytes=7).going_back == 7


def test_a_request_without_a_conversation_leaves_no_cache() -> None:
    pool = CachePool(tiny.make("llama"), CacheLimits(32))
    assert pool.get("") is not pool.get("")
    assert len(pool) == 0


def test_a_model_that_cannot_quantize_is_refused_at_the_start() -> None:
    """Case 12."""
    with pytest.raises(ChatappError, match="cannot be quantized"):
        CachePool(tiny.make("llama"), CacheLimits(32, kv_bits=8))
    CachePool(tiny.make("llama", head_dim=32), CacheLimits(32, kv_bits=8))
