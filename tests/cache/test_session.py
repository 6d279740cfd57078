"""What a turn costs, and that it is right: the cases that people meet, on every family."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.rotating import BLOCK
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.errors import ChatappError, UsageError
from tests import tiny
from tests.cache import chat
from tests.cache.chat import END, REPLY, THOUGHT, USER, Shown
from tests.cache.oracle import cold_logprobs

CAPACITY = 24
SYSTEM = (9, 10, 11)
every_family = pytest.mark.parametrize("family", tiny.FAMILIES)


def new_cache(family: str, **limits: Any) -> SessionCache:
    return SessionCache(tiny.make(family), CacheLimits(CAPACITY, **limits))


def words(n: int, seed: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(chat.WORDS, 90, n).tolist())


def talk(cache: SessionCache, turns: int, said: int = 6, length: int = 7) -> Shown:
    """A conversation of some turns; it rotates at the second."""
    shown = Shown(SYSTEM)
    for turn in range(turns):
        shown = shown.add("user", words(said, turn))
        shown = shown.add("reply", answer(cache, shown, length)[1])
    return shown


def answer(cache: SessionCache, shown: Shown, length: int = 4, **options: Any) -> tuple[Any, tuple[int, ...]]:
    """Answers as the engine does, checks every logit against the cold run; returns the plan and the reply."""
    ids, system_end = shown.render(options.pop("thinking", False), options.pop("going_on", False))
    plan, reading = chat.prefill(cache.model, cache, ids, system_end, step=8)
    reply = chat.decode(reading, ids[-1], length, in_flight=True, seed=1)
    reading.check()
    return plan, reply


def cold_reply(cache: SessionCache, shown: Shown, length: int) -> list[int]:
    """The greedy reply of a cold start."""
    ids, system_end = shown.render(False)
    keep = cache.limits.kept(system_end)
    for _ in range(length):
        ids.append(int(cold_logprobs(cache.model, ids, CAPACITY, keep)[-1].argmax()))
    return ids[len(ids) - length :]


def greedy_reply(cache: SessionCache, shown: Shown, length: int) -> list[int]:
    ids, system_end = shown.render(False)
    _, reading = chat.prefill(cache.model, cache, ids, system_end, step=8)
    token, reply = ids[-1], []
    for _ in range(length):
        token = chat.step(reading, token)
        reply.append(token)
    return reply


@every_family
def test_regenerating_the_last_reply_reads_one_token_after_rotation(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    plan, _ = answer(cache, shown.upto(len(shown.messages) - 1))
    assert plan.prefilled == 1
    assert plan.method == ("trim" if family in tiny.FULL_ATTENTION else "checkpoint")


@every_family
def test_editing_the_last_message_reads_no_more_than_that_message(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    edited = shown.upto(len(shown.messages) - 2).add("user", words(5, 99))
    plan, _ = answer(cache, edited)
    assert plan.prefilled <= 5 + len((END, USER, END, REPLY))


@every_family
def test_the_next_turn_reads_no_more_than_the_new_message(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    plan, _ = answer(cache, shown.add("user", words(5, 99)))
    assert plan.prefilled <= 5 + len((END, USER, END, REPLY))


@every_family
def test_an_early_edit_in_a_rotated_chat_gives_the_reply_of_a_cold_start(family: str) -> None:
    """Case 1: token-identical at temperature 0."""
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    edited = shown.upto(2).add("user", words(6, 77))
    assert greedy_reply(cache, edited, 8) == cold_reply(cache, edited, 8)


@every_family
def test_the_last_word_of_a_message_changes_the_reply(family: str) -> None:
    """Case 2: the old word does not steer the new reply."""
    cache = new_cache(family)
    shown = talk(cache, turns=5)
    last = shown.messages[-2].ids
    edited = shown.upto(len(shown.messages) - 2).add("user", (*last[:-1], (last[-1] + 1) % 90))
    assert greedy_reply(cache, edited, 8) == cold_reply(cache, edited, 8)


@every_family
def test_a_template_that_drops_reasoning_costs_only_what_it_rewrites(family: str) -> None:
    """Case 5: three turns; each reads the last exchange again, not the conversation."""
    cache = new_cache(family)
    shown = Shown(SYSTEM)
    for turn in range(4):
        shown = shown.add("user", words(4, turn))
        previous = list(cache.tokens)
        ids, _ = shown.render(thinking=True)
        same = next((n for n, pair in enumerate(zip(previous, ids, strict=False)) if pair[0] != pair[1]), len(previous))
        plan, reply = answer(cache, shown, thinking=True)
        assert plan.reused >= min(same, len(ids) - 1) - 1 or turn == 0
        assert plan.prefilled <= 2 * (4 + 4 + 8)
        shown = shown.add("reply", (20, 21, THOUGHT, *reply))


@every_family
def test_continuing_a_reply_reads_it_again_at_most(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    plan, _ = answer(cache, shown, going_on=True)
    assert plan.prefilled == 1 if family in tiny.FULL_ATTENTION else plan.prefilled <= 8


@every_family
def test_a_cancel_while_reading_stops_within_a_chunk(family: str) -> None:
    """Case 11."""
    cache = new_cache(family)
    ids = [1, *words(70, 5)]
    plan, reading = chat.prefill(cache.model, cache, ids, 1, step=10, stop_after=3)
    reading.check()
    assert plan.reused == 0
    assert 0 < len(cache.tokens) <= 30
    assert cache.forecast(ids, 1).reused == len(cache.tokens)


@every_family
def test_a_far_jump_back_leaves_the_restore_points_before_it(family: str) -> None:
    """Case 14: jump back far in a rotated chat, edit, go on, and jump back again, further."""
    cache = new_cache(family)
    shown = talk(cache, turns=10)
    far = shown.upto(10).add("user", words(5, 50))
    first, _ = answer(cache, far)
    further = shown.upto(8).add("user", words(5, 51))
    again, _ = answer(cache, further)
    for plan, edited in ((first, far), (again, further)):
        assert plan.prefilled <= 5 + len((END, USER, END, REPLY)), edited


@every_family
def test_a_prompt_that_differs_in_the_last_token_of_a_checkpoint_does_not_get_it(family: str) -> None:
    cache = new_cache(family, way=8)
    shown = talk(cache, turns=6)
    ids, system_end = shown.render(False)
    for length in sorted({rung.length for rung in cache.ladder} | {CAPACITY, CAPACITY + 1}):
        other = [*ids[: length - 1], (ids[length - 1] + 1) % 90]
        assert cache.forecast([*other, 7, 7], system_end).reused < length
        for tail in (1, 2):  # the second time the live layers agree with the prompt beyond that checkpoint
            prompt = [*other, *words(6, tail)]
            _, reading = chat.prefill(cache.model, cache, prompt, system_end, step=8)
            chat.step(reading, prompt[-1])
            reading.check()


@pytest.mark.parametrize("family", tiny.FULL_ATTENTION)
def test_a_trim_that_is_refused_is_noticed_and_nothing_is_answered_from_it(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    before = shown.upto(len(shown.messages) - 1)
    with monkeypatch.context() as patch:
        patch.setattr(cache.layers[-1], "trim", lambda n: 0, raising=False)
        with pytest.raises(ChatappError, match="did not go back"):
            cache.prepare(*before.render(False))
    plan, _ = answer(cache, before)
    assert plan.method == "cold"


@every_family
@pytest.mark.parametrize("keep", [0, 2, 5])
def test_the_record_is_that_of_the_layers_after_a_rollback(family: str, keep: int) -> None:
    cache = new_cache(family)
    talk(cache, turns=3)
    before, block = list(cache.tokens), list(words(5, 4))
    place = cache.mark(len(block))
    cache.model(mx.array([block]), cache=cache.layers)
    cache.read(block)
    kept = cache.rollback(place, keep)
    assert kept == (keep if family in tiny.FULL_ATTENTION or keep == len(block) else 0)
    assert cache.tokens == before + block[:kept]
    assert kv.offset(cache.layers) in (len(cache.tokens), None)
    reading = chat.Reading(cache.model, cache, len(cache.tokens))
    chat.step(reading, 9)
    reading.check()


@every_family
def test_no_more_is_kept_than_other_ranks_can(family: str) -> None:
    """They may have layers of other kinds."""
    cache = new_cache(family)
    shown = talk(cache, turns=3)
    ids, system_end = shown.add("user", words(4, 40)).render(False)
    most = cache.forecast(ids, system_end).reused - 1
    plan = cache.prepare(ids, system_end, cache.forecast(ids, system_end, most).reused)
    assert plan.reused <= most
    assert (plan.reused == most) == (family in tiny.FULL_ATTENTION)
    reading = chat.Reading(cache.model, cache, plan.reused)
    for _ in cache.prefill(ids[plan.reused : -1], 8, logits=reading.add):
        pass
    chat.step(reading, ids[-1])
    reading.check()

    cache.least = lambda number: 0
    place = cache.mark(3)
    cache.model(mx.array([[5, 6, 7]]), cache=cache.layers)
    cache.read([5, 6, 7])
    assert cache.rollback(place, 2) == 0
    assert cache.tokens == ids


@every_family
def test_undoing_an_edit_finds_the_old_branch_again(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    answer(cache, shown.upto(8).add("user", words(5, 51)))
    plan, _ = answer(cache, shown.add("user", words(3, 52)))
    assert plan.prefilled <= 3 + len((END, USER, END, REPLY))


@every_family
def test_a_tiny_budget_keeps_the_system_message_and_the_last_point_before_rotation(family: str) -> None:
    cache = new_cache(family, checkpoint_bytes=1)
    shown = talk(cache, turns=6)
    lengths = [rung.length for rung in cache.ladder]
    assert lengths == ([] if family in tiny.FULL_ATTENTION else [len(SYSTEM) + 2, CAPACITY - 1])
    same = shown.render(False)[0][: CAPACITY - 1]
    assert cache.forecast([*same, 9, 9], 5).reused == CAPACITY - 1
    plan, _ = answer(cache, shown.upto(0).add("user", words(6, 3)))
    assert plan.reused >= len(SYSTEM) + 2


@every_family
def test_another_system_message_and_so_another_k(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    assert cache.keep == len(SYSTEM) + 2
    longer = Shown((9, 10, 40, 41, 42, 43), shown.messages).add("user", words(3, 1))
    answer(cache, longer)
    assert cache.keep == 8
    endless = Shown(words(CAPACITY, 4), shown.messages).add("user", words(3, 1))
    answer(cache, endless)
    assert cache.keep == CAPACITY // 2
    none = Shown((), shown.messages).add("user", words(3, 1))
    answer(cache, none)
    assert cache.keep == 4


@every_family
def test_the_same_prompt_with_another_k_after_rotation(family: str) -> None:
    cache = new_cache(family)
    ids, _ = talk(cache, turns=6).render(False)
    for system_end in (5, 9, 5, 7):
        plan, reading = chat.prefill(cache.model, cache, [*ids, 9], system_end, step=8)
        chat.step(reading, 9)
        reading.check()
        assert cache.keep == system_end
        assert plan.reused > 0 or family == "mamba2"


@every_family
@pytest.mark.parametrize("same", [CAPACITY - 1, CAPACITY, CAPACITY + 1])
def test_another_k_where_a_prompt_leaves_the_old_one_about_where_rotation_began(family: str, same: int) -> None:
    cache = new_cache(family)
    ids, _ = talk(cache, turns=6).render(False)
    for system_end in (9, 5, 8):
        edited = [*ids[:same], *words(CAPACITY, system_end)]
        _, reading = chat.prefill(cache.model, cache, edited, system_end, step=1)
        chat.step(reading, edited[-1])
        reading.check()


@every_family
def test_another_k_behind_one_long_chunk(family: str) -> None:
    """Every column is held, but what the tokens from C on saw, and so their keys and values, went by the old K."""
    cache = new_cache(family)
    ids = [1, *words(60, 3), 9]
    for system_end in (5, 9, 6):
        _, reading = chat.prefill(cache.model, cache, ids, system_end, step=100)
        chat.step(reading, 9)
        reading.check()
        cache.forget()
        chat.prefill(cache.model, cache, ids, system_end, step=100)


@every_family
def test_a_forecast_changes_nothing(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    before = list(cache.tokens), [(rung.kind, rung.length, rung.used) for rung in cache.ladder], cache.nbytes
    ids, system_end = shown.upto(3).render(False)
    cache.forecast(ids, system_end)
    after = list(cache.tokens), [(rung.kind, rung.length, rung.used) for rung in cache.ladder], cache.nbytes
    assert after == before


@every_family
def test_an_error_while_reading_leaves_a_cache_that_answers_right(family: str) -> None:
    """The model fails in the middle of a pass: some layers have read the chunk and some have not."""
    cache = new_cache(family)
    shown = talk(cache, turns=4).add("user", words(12, 9))
    ids, system_end = shown.render(False)
    last = cache.model.layers[-1]
    works = type(last).__call__

    def fails(*_args: Any, **_options: Any) -> None:
        raise RuntimeError("out of memory")

    type(last).__call__ = lambda self, *args, **options: (fails if self is last else works)(self, *args, **options)
    try:
        plan = cache.prepare(ids, system_end)
        with pytest.raises(RuntimeError, match="out of memory"):
            list(cache.prefill(ids[plan.reused : -1], 4))
    finally:
        type(last).__call__ = works
    assert cache.tokens == []
    answer(cache, shown)


@pytest.mark.parametrize("family", [family for family in tiny.FAMILIES if family != "mamba2"])
def test_tokens_that_were_run_but_not_recorded_are_not_trusted(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=2)
    cache.model(mx.array([[33]]), cache=cache.layers)
    answer(cache, shown.add("user", words(3, 3)))


@every_family
@pytest.mark.parametrize("budget", [0, 40_000])
def test_memory_is_bounded_with_all_that_is_kept_for_going_back(
    family: str, budget: int, request: pytest.FixtureRequest
) -> None:
    """After 20·C tokens the live bytes are those of C, and MLX holds no more than is accounted for."""
    cache = new_cache(family, checkpoint_bytes=budget)
    # A buffer that MLX uses again may be twice as large as what is put in it, and counts in full.
    before = mx.set_cache_limit(0)
    request.addfinalizer(lambda: mx.set_cache_limit(before))
    empty = mx.get_active_memory()
    seen: dict[int, tuple[int, int, int]] = {}
    for count in range(1, 20 * CAPACITY + 1):
        logits = cache.model(mx.array([[count % 80]]), cache=cache.layers)
        cache.read([count % 80])
        mx.eval(logits, kv.arrays(cache.layers))
        if count in (CAPACITY + 1, 20 * CAPACITY):
            live = kv.size_in_bytes(cache.layers)
            seen[count] = live, cache.nbytes, mx.get_active_memory() - empty
    live, total, active = seen[20 * CAPACITY]
    assert live == seen[CAPACITY + 1][0]
    assert active - total < 32_768  # MLX gives out whole pages
    # Beyond the budget: the first C columns and the latest `BLOCK`, each a window or two more; two checkpoints.
    columns = 2 * CAPACITY + BLOCK + 2 * CAPACITY
    assert total <= live + budget + columns * live / CAPACITY + 2 * live


def test_full_attention_trims_anywhere_before_rotation_and_takes_no_checkpoints() -> None:
    cache = SessionCache(tiny.make("llama"), CacheLimits(4096))
    shown = talk(cache, turns=8)
    assert len(cache.ladder) == 0
    ids, system_end = shown.upto(5).render(False)
    plan, _ = answer(cache, shown.upto(5))
    assert plan.method == "trim"
    assert plan.reused == len(ids) - 1
    assert system_end == 5


def test_checkpoints_of_layers_that_hold_everything_store_none_of_it() -> None:
    """Before rotation a hybrid model's checkpoint is its recurrent state alone."""
    model = tiny.make("qwen3_next")
    cache = SessionCache(model, CacheLimits(4096))
    talk(cache, turns=8)
    recurrent = sum(layer.nbytes for layer in cache.layers if not hasattr(layer, "offset"))
    assert len(cache.ladder) > 8
    assert all(rung.saved.nbytes == recurrent for rung in cache.ladder)


def test_a_long_text_is_read_with_checkpoints_on_the_way() -> None:
    cache = new_cache("mamba2", way=16)
    ids = [1, *words(100, 3)]
    list(cache.prefill(ids[cache.prepare(ids).reused : -1], 8))
    lengths = [rung.length for rung in cache.ladder]
    assert lengths == [16, CAPACITY - 1, 39, 55, 71, 87, 100]  # the first one behind each multiple of 16
    assert cache.forecast([*ids[:50], 7, 7]).reused == 39


def test_a_long_reply_is_decoded_with_checkpoints_on_the_way() -> None:
    cache = new_cache("mamba2", way=16)
    shown = Shown(SYSTEM).add("user", words(3, 1))
    _, reply = answer(cache, shown, length=60)
    plan, _ = answer(cache, shown.add("reply", (*reply[:50], 7)), going_on=True)
    assert plan.prefilled <= 16 + 1


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_kv_size": 4}, "max-kv-size must be at least 8"),
        ({"max_kv_size": 64, "keep": 33}, "keep must be from 0 to half"),
        ({"max_kv_size": 64, "keep": -1}, "keep must be from 0 to half"),
        ({"max_kv_size": 64, "kv_bits": 7}, "kv-bits must be"),
    ],
)
def test_limits_out_of_range_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CacheLimits(**limits)


@every_family
def test_a_branch_that_was_left_goes_back_to_its_own_tokens_not_to_those_of_the_branch_between(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=4)
    other = shown.upto(2)
    for turn in range(6):
        other = other.add("user", words(6, 40 + turn))
        other = other.add("reply", answer(cache, other, 7)[1])
    for turn in range(5):
        shown = shown.add("user", words(6, 50 + turn))
        shown = shown.add("reply", answer(cache, shown, 7)[1])
    for at in (14, 12, 10, 8, 6, 4):
        answer(cache, shown.upto(at).add("user", words(5, 60 + at)))


def test_after_a_batch_that_crossed_the_start_of_rotation_everything_can_be_gone_back_to() -> None:
    cache = new_cache("llama")
    ids = [1, *words(CAPACITY - 6, 2)]
    list(cache.prefill(ids[cache.prepare(ids, 1).reused :], 8))
    batch = kv.expand(cache.layers, 2)
    reply = words(10, 8)
    for token in reply:
        cache.model(mx.array([[token], [7]]), cache=batch)
    cache.adopt(kv.select(batch, 0), reply)
    plan = cache.forecast([*ids[:12], 9, 9], 1)
    assert (plan.reused, plan.method) == (12, "trim")


@every_family
def test_a_branch_that_was_left_is_found_again_without_reading(family: str) -> None:
    cache = new_cache(family)
    shown = talk(cache, turns=6)
    other = shown.upto(6).add("user", words(9, 51))
    other = other.add("reply", answer(cache, other, 9)[1])
    for branch in (shown, other, shown):
        plan, _ = answer(cache, branch.add("user", words(3, 52)))
        assert plan.prefilled <= 3 + len((END, USER, END, REPLY))
