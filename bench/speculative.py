"""Speculative decoding against the plain loop, in one run and in turns, on three kinds of prompt.

    python -m bench.speculative [--model smollm2-135m] [--draft MODEL] [--tokens 160] [--capacity 2048]

    summarize   a page of ``bench/texts/alice.txt`` (Lewis Carroll, 1865; public domain) is to be retold in its words
    edit        a list is to be given back with one name changed
    story       nothing to copy from: what speculation costs where it cannot help

All greedy, with all metrics and 10 alternatives for each token. The replies of the plain loop, of prompt lookup and of
the draft model, if one is named, grow side by side in bursts, and must be the same ids. Prints how many guessed tokens
were right, how many tokens a pass of the model gave, and the time of the plain loop over that of the speculating one;
writes them to ``bench/results/speculative.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from chatapp.engine.loading import load  # first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip

from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.records import Limits
from chatapp.engine.decode.speculative import ModelDrafter, SpeculativeGenerator
from chatapp.engine.samplers import ModelFacts, create
from chatapp.protocol import Load, Sampling

HERE = Path(__file__).parent
PAGE = (HERE / "texts" / "alice.txt").read_text("utf-8")[180:2200]
NAMES = ["Ada", "Boris", "Clara", "David", "Elena", "Fritz", "Greta", "Hugo", "Ida", "Jonas", "Karla", "Linus"]
LIST = "\n".join(f"{number}. {name} keeps the lighthouse on day {number}." for number, name in enumerate(NAMES, 1))
PROMPTS = {
    "summarize": f"{PAGE}\n\nSummarize this text, using its own sentences.",
    "edit": f"{LIST}\n\nRepeat this whole list, but write Anna instead of Ada.",
    "story": "Write a story about a lighthouse keeper who finds a map.",
}
BURST = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--capacity", type=int, default=2048)
    arguments = parser.parse_args()
    loaded = load(Load(request=1, model=arguments.model, draft=arguments.draft))
    figures = {}
    for kind, text in PROMPTS.items():
        figures[kind] = compare(loaded, text, arguments.tokens, arguments.capacity)
        for name, found in figures[kind].items():
            print(
                f"{kind:10} {name:7} {found['accepted']:4} of {found['drafted']:4} guesses right, "
                f"{found['tokens_per_pass']:.2f} tokens a pass, {found['speed_up']:.2f} times as fast as plain"
            )
    path = HERE / "results" / "speculative.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"model": arguments.model, "dtype": loaded.dtype, "prompts": figures}, indent=1))


def compare(loaded, text: str, tokens: int, capacity: int) -> dict[str, dict[str, float]]:
    """Figures of each way to speculate on one prompt."""
    prompt = loaded.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    generators = {name: generator(loaded, name, prompt, tokens, capacity) for name in names(loaded)}
    streams = {name: made.generate(prompt) for name, made in generators.items()}
    replies: dict[str, list[int]] = {name: [next(stream).id] for name, stream in streams.items()}
    seconds = dict.fromkeys(streams, 0.0)
    while any(len(reply) < tokens for reply in replies.values()):
        before = sum(map(len, replies.values()))
        for name, stream in streams.items():
            began = time.perf_counter()
            replies[name] += [token.id for token, _ in zip(stream, range(BURST), strict=False)]
            mx.synchronize()
            seconds[name] += time.perf_counter() - began
        if sum(map(len, replies.values())) == before:
            break
    plain = replies.pop("plain")
    figures = {}
    for name, reply in replies.items():
        assert reply == plain, f"{name} gave another reply than the plain loop"
        made = generators[name]
        figures[name] = {
            "drafted": made.drafted,
            "accepted": made.accepted,
            "tokens": len(plain),
            "tokens_per_pass": len(plain) / (len(plain) - made.accepted),
            "speed_up": seconds["plain"] / seconds[name],
        }
    return figures


def names(loaded) -> list[str]:
    return ["plain", "lookup"] + ([] if loaded.draft == "lookup" else ["draft"])


def generator(loaded, name: str, prompt: list[int], tokens: int, capacity: int):
    sampler = create("standard")
    config = sampler.configure(Sampling(temperature=0.0), ModelFacts(loaded.vocab_size, loaded.tokenizer))
    cache = SessionCache(loaded.model, CacheLimits(capacity))
    cache.prepare(prompt)
    for _ in cache.prefill(prompt[:-1]):
        pass
    common = {
        "model": loaded.model,
        "cache": cache,
        "tokenizer": loaded.tokenizer,
        "sampler": sampler,
        "config": config,
        "seed": 0,
        "limits": Limits(max_tokens=tokens, stop_ids=frozenset(loaded.tokenizer.eos_token_ids)),
    }
    if name == "plain":
        return TokenGenerator(**common)
    if name == "lookup":
        return SpeculativeGenerator(**common, drafter=LookupDrafter())
    own = SessionCache(loaded.draft.model, CacheLimits(capacity))
    return SpeculativeGenerator(**common, drafter=ModelDrafter(loaded.draft.model, own, sampler, config, 0))


if __name__ == "__main__":
    main()
