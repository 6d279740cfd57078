"""Speculative decoding against the plain loop, in one run and in turns, on three kinds of prompt.

    python -m bench.speculative [--model smollm2-135m] [--draft MODEL | --drop N] [--tokens 160] [--rounds 3]

    summarize   a page of ``bench/texts/alice.txt`` (Lewis Carroll, 1865; public domain) is to be retold in its words
    edit        a list is to be given back with one name changed
    story       nothing to copy from: what speculation costs where it cannot help

All greedy, with all metrics and 10 alternatives for each token. The replies of the plain loop, of prompt lookup and of
a draft model, if there is one, grow side by side in bursts, and must be the same ids. ``--drop N`` drafts with a copy
of the model itself that lacks N of its middle layers: a stand-in where no smaller model of the family is at hand. It is
asked at every step, whether or not that pays. Prints how many guessed tokens were right, how many tokens a pass of the
model gave, and the time of the plain loop over that of the speculating one, the median of the rounds with the lowest
and the highest; writes them to ``bench/results/speculative.json``.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

from chatapp.engine.loading import load  # first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip

from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.draft_model import ModelDrafter
from chatapp.engine.decode.gain import Costs
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.records import Limits
from chatapp.engine.decode.speculative import SpeculativeGenerator
from chatapp.engine.decoders import draft_costs
from chatapp.engine.ranks import Alone
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
BURST, CAPACITY = 8, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--drop", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    loaded = load(Load(request=1, model=arguments.model, draft=arguments.draft))
    draft, costs = None, draft_costs(loaded, Alone())
    if arguments.drop:
        draft, costs = shortened(loaded.model, arguments.drop), Costs(row=0, pass_=0)
    elif loaded.draft != "lookup":
        draft = loaded.draft.model
    figures: dict[str, Any] = {}
    for kind, text in PROMPTS.items():
        rounds = [compare(loaded, draft, costs, text, arguments.tokens) for _ in range(arguments.rounds)]
        figures[kind] = {name: summary([figures[name] for figures in rounds]) for name in rounds[0]}
        for name, found in figures[kind].items():
            low, high = found["from_to"]
            print(
                f"{kind:10} {name:7} {found['accepted']:4} of {found['drafted']:4} guesses right, "
                f"{found['tokens_per_pass']:.2f} tokens a pass, {found['speed_up']:.2f} ({low:.2f} to {high:.2f}) "
                "times as fast as plain",
                flush=True,
            )
    path = HERE / "results" / "speculative.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"model": arguments.model, "dtype": loaded.dtype, "prompts": figures}, indent=1))


def shortened(model: Any, drop: int) -> Any:
    """The same model without some of its middle layers; the weights are shared."""
    short, inner = copy.copy(model), copy.copy(model.model)
    first = (len(inner.layers) - drop) // 2
    inner.layers = [*inner.layers[:first], *inner.layers[first + drop :]]
    short.model = inner
    return short


def compare(loaded: Any, draft: Any, costs: Costs, text: str, tokens: int) -> dict[str, dict[str, Any]]:
    """Figures of each way to speculate on one prompt."""
    prompt = loaded.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    names = ["plain", "lookup"] + (["draft"] if draft else [])
    generators = {name: generator(loaded, draft, costs, name, prompt, tokens) for name in names}
    streams = {name: made.generate(prompt) for name, made in generators.items()}
    replies: dict[str, list[int]] = {name: [next(stream).id] for name, stream in streams.items()}
    seconds = dict.fromkeys(streams, 0.0)
    growing = True
    while growing:
        growing = False
        for name in names:
            began = time.perf_counter()
            burst = [token.id for token in itertools.islice(streams[name], BURST)]
            mx.synchronize()
            seconds[name] += time.perf_counter() - began
            replies[name] += burst
            growing = growing or bool(burst)
        names.append(names.pop(0))
    plain = replies.pop("plain")
    figures = {}
    for name, reply in replies.items():
        assert reply == plain, f"{name} gave another reply than the plain loop"
        made = generators[name]
        figures[name] = {
            "drafted": made.drafted,
            "accepted": made.accepted,
            "tokens": len(plain),
            "tokens_per_pass": len(plain) / made.passes,
            "speed_up": seconds["plain"] / seconds[name],
        }
    return figures


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of all rounds, which differ in their times only."""
    times = [figures["speed_up"] for figures in rounds]
    return {**rounds[0], "speed_up": statistics.median(times), "from_to": [min(times), max(times)]}


def generator(loaded: Any, draft: Any, costs: Costs, name: str, prompt: list[int], tokens: int) -> Any:
    sampler = create("standard")
    config = sampler.configure(Sampling(temperature=0.0), ModelFacts(loaded.vocab_size, loaded.tokenizer))
    cache = SessionCache(loaded.model, CacheLimits(CAPACITY))
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
        return SpeculativeGenerator(**common, drafter=LookupDrafter(draft_costs(loaded, Alone())))
    own = SessionCache(draft, CacheLimits(CAPACITY))
    own.prepare(prompt)
    for _ in own.prefill(prompt[:-1]):
        pass
    return SpeculativeGenerator(**common, drafter=ModelDrafter(draft, own, sampler, config, 0, costs=costs))


if __name__ == "__main__":
    main()
