"""The prompt cache on the default model: what an edit costs, what the checkpoints weigh, what rotation does to a text.

    python -m bench.cache [--model smollm2-135m] [--part rewind|rivals|perplexity|all] [--capacity 2048]

    rewind      a conversation that has rotated at C: time to the first token of "regenerate the last reply", "edit the
                last message" and "edit the message five turns back", each over a cold read of the same prompt in the
                same run, beside the share of tokens that was read; and the bytes of what is kept for going back
    rivals      the same script at a smaller C with chatapp, with mlx-lm's LRUPromptCache over its RotatingKVCache, and
                with a plain RotatingKVCache that is trimmed where it can be: tokens read, and whether the answer equals
                that of one cold pass with an explicit mask of what should be seen, and that of its own kind reading the
                prompt from the start
    perplexity  of ``bench/texts/alice.txt`` (Lewis Carroll, 1865; public domain) behind a system message with K = 0, 4
                and all of that message, against attention to everything, over the same tokens after the first C

Prints figures and writes them to ``bench/results/cache.json``, those of one part to ``cache-PART.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatapp.engine.loading import load  # first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip
from mlx_lm.models.cache import LRUPromptCache, RotatingKVCache, trim_prompt_cache

from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.session import CacheLimits, Plan, SessionCache
from chatapp.protocol import Load
from tests.cache.oracle import cold_caches

HERE = Path(__file__).parent
SYSTEM = "You are a patient reader of Victorian novels. Answer every question in plain words, and briefly."
CHUNK = 128  # as the engine reads on a CPU


@dataclass
class Script:
    """A conversation of given ids: exchanges of a question and a reply."""

    system: list[int]
    exchanges: list[tuple[list[int], list[int]]]
    opening: list[int]
    closing: list[int]
    spare: list[list[int]]

    def prompt(self, upto: int, question: list[int]) -> list[int]:
        """Everything before exchange ``upto``, and a question that is to be answered."""
        ids = list(self.system)
        for asked, reply in self.exchanges[:upto]:
            ids += asked + self.opening + reply + self.closing
        return ids + question + self.opening

    def edits(self) -> dict[str, list[int]]:
        """The prompts of the three ways to answer again."""
        last = len(self.exchanges) - 1
        return {
            "regenerate the last reply": self.prompt(last, self.exchanges[last][0]),
            "edit the last message": self.prompt(last, self.spare[0]),
            "edit the message five turns back": self.prompt(max(0, last - 5), self.spare[1]),
        }


def script(tokenizer: Any, tokens: int, said: int) -> Script:
    """A conversation of about so many tokens, each message ``said`` of them."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    text = encode((HERE / "texts" / "alice.txt").read_text())
    pieces = [text[at : at + said] for at in range(0, len(text) - said, said)]
    question = lambda piece: [*encode("<|im_start|>user\n"), *piece, *encode("<|im_end|>\n")]  # noqa: E731
    system = encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n")
    opening, closing = encode("<|im_start|>assistant\n"), encode("<|im_end|>\n")
    count = tokens // (len(question(pieces[0])) + len(opening) + said + len(closing)) + 1
    exchanges = [(question(pieces[2 * at]), pieces[2 * at + 1]) for at in range(count)]
    return Script(system, exchanges, opening, closing, [question(pieces[-1]), question(pieces[-2])])


def turn(cache: SessionCache, ids: list[int], keep: int, reply: list[int] = []) -> tuple[Plan, float, mx.array]:  # noqa: B006
    """Prepares a prompt as the engine does; returns the plan, the seconds to the first token, and its logits."""
    begun = time.perf_counter()
    plan = cache.prepare(ids, keep)
    for _ in cache.prefill(ids[plan.reused : -1], CHUNK):
        pass
    cache.checkpoint("start")
    logits = cache.model(mx.array([ids[-1:]]), cache=cache.layers)[0, -1]
    cache.read(ids[-1:])
    mx.eval(logits)
    seconds = time.perf_counter() - begun
    for _ in cache.prefill(reply, CHUNK):  # given ids in place of decoded ones: quicker, and the same cache
        pass
    if reply:
        cache.checkpoint("end")
    return plan, seconds, logits


def converse(cache: SessionCache, talk: Script) -> None:
    for at, (question, reply) in enumerate(talk.exchanges):
        turn(cache, talk.prompt(at, question), len(talk.system), reply)


# --- rewind --------------------------------------------------------------------------------------------------------


def rewind(model: Any, tokenizer: Any, capacity: int) -> dict[str, Any]:
    talk = script(tokenizer, tokens=int(capacity * 1.4), said=72)
    cache = SessionCache(model, CacheLimits(capacity))
    converse(cache, talk)
    found: dict[str, Any] = {
        "capacity": capacity,
        "tokens": len(cache.tokens),
        "live_bytes": kv.size_in_bytes(cache.layers),
        "put_by_bytes": kv.past_bytes(cache.layers),
        "checkpoints": len(cache.ladder),
        "checkpoint_bytes": cache.ladder.nbytes,
    }
    print(f"{found['tokens']} tokens in {len(talk.exchanges)} exchanges at C = {capacity}")
    print(
        f"live cache {found['live_bytes'] / 1e6:.0f} MB, put by {found['put_by_bytes'] / 1e6:.0f} MB, "
        f"{found['checkpoints']} checkpoints {found['checkpoint_bytes'] / 1e6:.0f} MB"
    )
    print(f"{'':34} {'prompt':>7} {'read':>6} {'share':>7} {'s':>7} {'cold s':>7} {'ratio':>7}  method")
    for name, ids in talk.edits().items():
        plan, seconds, logits = turn(cache, ids, len(talk.system))
        _, cold, expected = turn(SessionCache(model, CacheLimits(capacity)), ids, len(talk.system))
        found[name] = {
            "prompt": len(ids),
            "prefilled": plan.prefilled,
            "share": plan.prefilled / len(ids),
            "method": plan.method,
            "seconds": seconds,
            "cold_seconds": cold,
            "ratio": seconds / cold,
            "off_by": apart(logits, expected),
        }
        print(
            f"{name:34} {len(ids):7} {plan.prefilled:6} {plan.prefilled / len(ids):7.1%} {seconds:7.2f} {cold:7.2f} "
            f"{seconds / cold:7.3f}  {plan.method}"
        )
    found["bytes_after_the_edits"] = {"checkpoints": cache.ladder.nbytes, "put_by": kv.past_bytes(cache.layers)}
    print(
        f"after these edits: {len(cache.ladder)} checkpoints and left branches {cache.ladder.nbytes / 1e6:.0f} MB, "
        f"put by {kv.past_bytes(cache.layers) / 1e6:.0f} MB, of {cache.limits.going_back / 1e6:.0f} MB for both"
    )
    return found


# --- rivals --------------------------------------------------------------------------------------------------------


class Ours:
    """chatapp's cache."""

    name = "chatapp"

    def __init__(self, model: Any, capacity: int, system: int) -> None:
        self.cache = SessionCache(model, CacheLimits(capacity))
        self.system = system
        self.keep = self.cache.limits.kept(system)

    def answer(self, ids: list[int], reply: list[int]) -> tuple[int, mx.array]:
        plan, _, logits = turn(self.cache, ids, self.system, reply)
        return plan.prefilled, logits


class Plain:
    """A RotatingKVCache in each layer, trimmed while it says that it can be, else begun anew."""

    name = "RotatingKVCache"
    keep = 4

    def __init__(self, model: Any, capacity: int, system: int) -> None:
        self.model, self.capacity = model, capacity
        self.layers, self.tokens = self.fresh(), []

    def fresh(self) -> list[Any]:
        return [RotatingKVCache(self.capacity, keep=self.keep) for _ in self.model.layers]

    def rest(self, ids: list[int]) -> list[int]:
        same = next((n for n, (a, b) in enumerate(zip(self.tokens, ids, strict=False)) if a != b), len(self.tokens))
        same = min(same, len(ids) - 1)
        back = len(self.tokens) - same
        if back and trim_prompt_cache(self.layers, back) != back:
            self.layers, same = self.fresh(), 0
        return ids[same:]

    def answer(self, ids: list[int], reply: list[int]) -> tuple[int, mx.array]:
        rest = self.rest(ids)
        logits = self.read(rest)
        self.tokens = ids
        if reply:
            self.read(reply)
            self.tokens = ids + reply
        return len(rest), logits

    def read(self, ids: list[int]) -> mx.array:
        for at in range(0, len(ids), CHUNK):
            logits = self.model(mx.array([ids[at : at + CHUNK]]), cache=self.layers)[0, -1]
            mx.eval(logits, [layer.state for layer in self.layers])
        return logits


class Lru(Plain):
    """mlx-lm's LRUPromptCache over the same layers, filled after every turn as mlx-lm's server does."""

    name = "LRUPromptCache"

    def __init__(self, model: Any, capacity: int, system: int) -> None:
        super().__init__(model, capacity, system)
        self.lru = LRUPromptCache(max_size=10)

    def rest(self, ids: list[int]) -> list[int]:
        found, rest = self.lru.fetch_nearest_cache("model", ids)
        if not rest:  # the very prompt is there, and nothing is left to feed
            found, rest = None, ids
        self.layers = self.fresh() if found is None else found
        return rest

    def answer(self, ids: list[int], reply: list[int]) -> tuple[int, mx.array]:
        count, logits = super().answer(ids, reply)
        self.lru.insert_cache("model", list(self.tokens), self.layers)
        return count, logits


def rivals(model: Any, tokenizer: Any, capacity: int) -> dict[str, Any]:
    talk = script(tokenizer, tokens=int(capacity * 1.4), said=24)
    last = len(talk.exchanges) - 1
    asked = talk.edits()
    cold: dict[tuple[str, int], mx.array] = {}
    found: dict[str, Any] = {"capacity": capacity}
    print(f"\nthe same script at C = {capacity}: {len(talk.prompt(last, talk.exchanges[last][0]))} tokens")
    print(
        "tokens read; = or ≠: the likeliest token against the mask's; how far off that; how far off its own cold read"
    )
    print(f"{'':18} {'the turns':>10} " + " ".join(f"{name:>36}" for name in asked))
    for kind in (Ours, Lru, Plain):
        rival = kind(model, capacity, len(talk.system))
        turns = sum(
            rival.answer(talk.prompt(at, question), reply)[0] for at, (question, reply) in enumerate(talk.exchanges)
        )
        row: dict[str, Any] = {"turns": turns}
        for name, ids in asked.items():
            count, logits = rival.answer(ids, [])
            expected = cold.setdefault((name, rival.keep), cold_logits(model, ids, capacity, rival.keep))
            own = kind(model, capacity, len(talk.system)).answer(ids, [])[1]
            row[name] = {
                "read": count,
                "off_by": apart(logits, expected),
                "same_token": same(logits, expected),
                "off_by_own_cold": apart(logits, own),
            }
        found[rival.name] = row
        cells = [shown(row[name]) for name in asked]
        print(f"{rival.name:18} {turns:>10} " + " ".join(f"{cell:>36}" for cell in cells))
    return found


def shown(cell: dict[str, Any]) -> str:
    equal = "=" if cell["same_token"] else "≠"
    return f"{cell['read']:>5} read {equal} {cell['off_by']:8.1e} own {cell['off_by_own_cold']:8.1e}"


def cold_logits(model: Any, ids: list[int], capacity: int, keep: int) -> mx.array:
    logits = model(mx.array([ids]), cache=cold_caches(model, len(ids), capacity, keep))[0, -1]
    mx.eval(logits)
    return logits


def apart(a: mx.array, b: mx.array) -> float:
    """The largest difference of two log-distributions, in nats."""
    return float(mx.abs((a - mx.logsumexp(a)) - (b - mx.logsumexp(b))).max().item())


def same(a: mx.array, b: mx.array) -> bool:
    return bool((a.argmax() == b.argmax()).item())


# --- perplexity ----------------------------------------------------------------------------------------------------


def perplexity(model: Any, tokenizer: Any, capacity: int, tokens: int) -> dict[str, Any]:
    system = list(tokenizer.encode(f"<|im_start|>system\n{SYSTEM}<|im_end|>\n", add_special_tokens=False))
    text = list(tokenizer.encode((HERE / "texts" / "alice.txt").read_text(), add_special_tokens=False))
    ids = (system + text)[:tokens]
    kinds: dict[str, tuple[int, int]] = {
        "K = 0": (capacity, 0),
        "K = 4": (capacity, 4),
        f"K = system ({len(system)})": (capacity, len(system)),
        "full attention": (tokens + 1, 4),
    }
    print(f"\nperplexity of {len(ids) - capacity} tokens of alice.txt after the first {capacity}, C = {capacity}")
    found: dict[str, Any] = {"capacity": capacity, "tokens": len(ids)}
    for name, (size, keep) in kinds.items():
        found[name] = surprisal(model, ids, kv.make(model, size, keep), after=capacity)
        print(f"{name:20} {found[name]:8.2f}")
    return found


def surprisal(model: Any, ids: list[int], layers: list[Any], after: int) -> float:
    """exp of the mean surprisal of the tokens from position ``after`` on."""
    total = mx.array(0.0)
    for at in range(0, len(ids) - 1, CHUNK):
        chunk, wanted = ids[at : at + CHUNK], ids[at + 1 : at + CHUNK + 1]
        logits = model(mx.array([chunk[: len(wanted)]]), cache=layers)[0].astype(mx.float32)
        logp = mx.take_along_axis(logits, mx.array(wanted)[:, None], axis=-1)[:, 0] - mx.logsumexp(logits, axis=-1)
        total = total - (logp * (mx.arange(at + 1, at + 1 + len(wanted)) >= after)).sum()
        mx.eval(total, kv.arrays(layers))
    return float(mx.exp(total / (len(ids) - after)).item())


def main() -> None:
    """Measures, prints, writes."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument("--part", choices=["rewind", "rivals", "perplexity", "all"], default="all")
    options.add_argument("--capacity", type=int, default=2048)
    options.add_argument("--tokens", type=int, default=4096, help="of the text for perplexity")
    arguments = options.parse_args()
    loaded = load(Load(request=1, model=arguments.model), lambda *_: None)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "rewind": lambda: rewind(loaded.model, loaded.tokenizer, arguments.capacity),
        "rivals": lambda: rivals(loaded.model, loaded.tokenizer, arguments.capacity // 4),
        "perplexity": lambda: perplexity(loaded.model, loaded.tokenizer, arguments.capacity // 4, arguments.tokens),
    }
    found = {name: part() for name, part in parts.items() if arguments.part in (name, "all")}
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    file = results / ("cache.json" if arguments.part == "all" else f"cache-{arguments.part}.json")
    file.write_text(json.dumps(found, indent=2))
    print(f"\nwritten to {file}")


if __name__ == "__main__":
    main()
