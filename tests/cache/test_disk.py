"""Saved caches: what is worth saving, what is refused, and what a damaged file does."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.engine.cache import disk
from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.session import CacheLimits, SessionCache
from tests import tiny
from tests.cache import chat
from tests.cache.chat import END, REPLY, USER
from tests.cache.test_session import SYSTEM, answer, talk, words

every_family = pytest.mark.parametrize("family", tiny.FAMILIES)
LIMITS = CacheLimits(24)


def saved(folder: Path, family: str = "llama", turns: int = 6) -> tuple[SessionCache, Path, Any]:
    cache = SessionCache(tiny.make(family), LIMITS)
    shown = talk(cache, turns)
    path = folder / f"talk{disk.SUFFIX}"
    assert disk.save(cache, path, "model-1") is None
    return cache, path, shown


@every_family
def test_reopening_continues_without_reading(family: str, tmp_path: Path) -> None:
    cache, path, shown = saved(tmp_path, family)
    again = SessionCache(cache.model, LIMITS)
    assert disk.load(again, path, "model-1") is None
    assert again.tokens == cache.tokens
    plan, _ = answer(again, shown.add("user", words(4, 9)))
    assert plan.method == "disk"
    assert plan.prefilled <= 4 + len((END, USER, END, REPLY))
    plan, _ = answer(again, shown.add("user", words(4, 10)))
    assert plan.method != "disk"


@every_family
def test_regenerating_after_reopening_a_rotated_chat_reads_one_token(family: str, tmp_path: Path) -> None:
    cache, path, shown = saved(tmp_path, family)
    again = SessionCache(cache.model, LIMITS)
    disk.load(again, path, "model-1")
    plan, _ = answer(again, shown.upto(len(shown.messages) - 1))
    assert (plan.prefilled, plan.method) == (1, "disk")


@every_family
def test_an_early_edit_after_reopening_a_rotated_chat_reads_what_it_would_have_before(
    family: str, tmp_path: Path
) -> None:
    """Nothing is lost where an edit lies before rotation or, with full attention, in the last half window."""
    cache, path, shown = saved(tmp_path, family, turns=10)
    again = SessionCache(cache.model, LIMITS)
    disk.load(again, path, "model-1")
    length = len(cache.tokens)
    for at in range(0, len(shown.messages), 2):
        ids, system_end = shown.upto(at).add("user", words(5, 70)).render(False)
        before, after = cache.forecast(ids, system_end).reused, again.forecast(ids, system_end).reused
        near = family in tiny.FULL_ATTENTION and length - before <= 9
        assert after == before if before < 24 or near else after >= 23
    plan, _ = answer(again, shown.upto(2).add("user", words(5, 70)))
    assert plan.method == "disk"
    assert plan.reused > len(SYSTEM)


@every_family
@pytest.mark.parametrize("turns", [2, 3, 4])
def test_a_chat_can_be_left_and_reopened_again_and_again(family: str, turns: int, tmp_path: Path) -> None:
    """Shortly after rotation began too, when the first C columns and the latest ones overlap."""
    cache, path, shown = saved(tmp_path, family, turns)
    for _ in range(3):
        again = SessionCache(cache.model, LIMITS)
        assert disk.load(again, path, "model-1") is None
        assert again.tokens == cache.tokens
        for layer in kv.flat(again.layers):
            ends = [(part.start, part.stop) for part in getattr(layer, "past", ())]
            assert all(start < stop for start, stop in ends)
            assert all(left[1] <= right[0] for left, right in itertools.pairwise(ends))
        assert disk.save(again, path, "model-1") is None
    answer(again, shown.upto(1))


@every_family
def test_a_far_jump_back_after_reopening_leaves_an_older_restore_point(family: str, tmp_path: Path) -> None:
    """Case 14 with a reload before it: jump back far, edit, go on, and jump back again, further."""
    cache, path, shown = saved(tmp_path, family, turns=10)
    again = SessionCache(cache.model, LIMITS)
    disk.load(again, path, "model-1")
    answer(again, shown.upto(6).add("user", words(5, 50)), length=9)
    for at in (2, 0):
        edited = shown.upto(at).add("user", words(5, 51))
        expected = cache.forecast(*edited.render(False)).reused
        plan, _ = answer(again, edited)
        assert plan.reused == expected > 0


def test_a_quantized_rotated_cache_goes_back_after_reopening(tmp_path: Path) -> None:
    model = tiny.make("llama", head_dim=32)
    limits = CacheLimits(24, kv_bits=8)
    cache, again = SessionCache(model, limits), SessionCache(model, limits)
    ids = [1, *range(8, 90)]
    for _ in cache.prefill(ids[cache.prepare(ids, 1).reused :], 16):
        pass
    path = tmp_path / f"q{disk.SUFFIX}"
    assert disk.save(cache, path, "m") is None
    assert disk.load(again, path, "m") is None
    edited = [*ids[:15], 7, 7, 7]
    rows: list[list[Any]] = []
    for which in (cache, again):
        assert which.prepare(edited, 1).reused == 15
        reading = chat.Reading(model, which, 15)
        for token in edited[15:]:
            chat.step(reading, token)
        rows.append(reading.rows)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(*rows, strict=True))


def test_quantized_caches_are_saved_too(tmp_path: Path) -> None:
    model = tiny.make("llama", head_dim=32)
    limits = CacheLimits(24, kv_bits=8)
    cache, again = SessionCache(model, limits), SessionCache(model, limits)
    ids = [1, *range(8, 70)]
    for _ in cache.prefill(ids[cache.prepare(ids, 1).reused :], 16):
        pass
    path = tmp_path / f"q{disk.SUFFIX}"
    assert disk.save(cache, path, "m") is None
    assert disk.load(again, path, "m") is None
    first, second = (chat.Reading(model, which, len(ids)) for which in (cache, again))
    for token in (7, 8, 9):
        chat.step(first, token)
        chat.step(second, token)
    assert all(np.allclose(*pair, atol=1e-5) for pair in zip(first.rows, second.rows, strict=True))


def test_files_are_private_and_no_temporary_stays(tmp_path: Path) -> None:
    _, path, _ = saved(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(deadline=None, max_examples=60)
def test_a_changed_byte_anywhere_makes_the_file_ignored(
    tmp_path_factory: pytest.TempPathFactory, place: float, flip: int
) -> None:
    cache, path, _ = saved(tmp_path_factory.mktemp("damaged"), turns=2)
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= flip
    path.write_bytes(data)
    refused(cache, path)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_file_cut_short_is_ignored(tmp_path: Path, keep: float) -> None:
    cache, path, _ = saved(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(keep * len(data))])
    refused(cache, path)


def test_a_file_of_something_else_is_ignored(tmp_path: Path) -> None:
    cache, path, _ = saved(tmp_path)
    path.write_bytes(os.urandom(5000))
    refused(cache, path)


def test_a_folder_in_its_place_is_ignored(tmp_path: Path) -> None:
    cache, path, _ = saved(tmp_path)
    path.unlink()
    path.mkdir()
    again = SessionCache(cache.model, LIMITS)
    assert "ignored" in (disk.load(again, path, "model-1") or "")


def refused(cache: SessionCache, path: Path) -> None:
    again = SessionCache(cache.model, LIMITS)
    assert "damaged and was ignored" in (disk.load(again, path, "model-1") or "")
    assert again.tokens == []
    assert len(again.ladder) == 0


@pytest.mark.parametrize(
    ("limits", "fingerprint", "reason"),
    [
        (LIMITS, "model-2", "another model"),
        (CacheLimits(32), "model-1", "another max-kv-size"),
        (CacheLimits(24, kv_bits=8), "model-1", "another max-kv-size or kv-bits"),
        (CacheLimits(24, keep=2), "model-1", "another keep"),
    ],
)
def test_a_file_that_does_not_match_is_ignored_with_the_reason(
    tmp_path: Path, limits: CacheLimits, fingerprint: str, reason: str
) -> None:
    cache, path, _ = saved(tmp_path)
    again = SessionCache(cache.model, limits)
    assert reason in (disk.load(again, path, fingerprint) or "")
    assert again.tokens == []


def test_a_file_of_another_mlx_lm_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, path, _ = saved(tmp_path)
    monkeypatch.setattr("mlx_lm.__version__", "0.0.1")
    assert "another version" in (disk.load(SessionCache(cache.model, LIMITS), path, "model-1") or "")


def test_no_file_is_no_news(tmp_path: Path) -> None:
    cache = SessionCache(tiny.make("llama"), LIMITS)
    assert disk.load(cache, tmp_path / "none.safetensors", "m") is None
    assert cache.tokens == []


def test_the_oldest_saved_caches_make_room(tmp_path: Path) -> None:
    cache, path, _ = saved(tmp_path)
    size = path.stat().st_size
    paths = [tmp_path / f"{name}{disk.SUFFIX}" for name in "abc"]
    for age, each in enumerate(paths):
        assert disk.save(cache, each, "m", budget=int(3.5 * size)) is None
        os.utime(each, (1000 + age, 1000 + age))
    os.utime(path, (2000, 2000))
    assert disk.save(cache, tmp_path / f"d{disk.SUFFIX}", "m", budget=int(3.5 * size)) is None
    assert sorted(file.name[0] for file in tmp_path.iterdir()) == ["c", "d", "t"]


def test_what_a_killed_process_left_half_written_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, new = (tmp_path / f".{pid}.talk{disk.SUFFIX}" for pid in (1, 2))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    _, path, _ = saved(tmp_path)
    assert sorted(tmp_path.iterdir()) == [new, path]


def test_a_budget_of_nothing_saves_nothing(tmp_path: Path) -> None:
    cache, path, _ = saved(tmp_path)
    path.unlink()
    assert disk.save(cache, path, "m", budget=0) is None
    assert "more than all saved caches may take" in (disk.save(cache, path, "m", budget=100) or "")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    cache, path, _ = saved(tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("x")
    assert "could not be saved" in (disk.save(cache, blocked / path.name, "m") or "")
