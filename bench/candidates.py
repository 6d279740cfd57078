"""What several candidates cost: the time of a step that advances n replies over that of a step that advances one.

    python -m bench.candidates [--model smollm2-135m] [--counts 2 4 8] [--tokens 4] [--rounds 20]

One reply and n of them grow side by side from the same prompt at temperature 0.8, top-p 0.95, with all metrics and 10
alternatives for each token. Every round advances each by a few tokens, in an order that rotates; a ratio is the median
over rounds of the ratio within a round. Prints figures and writes them to ``bench/results/candidates.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from chatapp.engine.loading import load  # first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip

from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.records import Limits
from chatapp.engine.samplers import ModelFacts, create
from chatapp.protocol import Load, Sampling

PROMPT = "Write a long story about a lighthouse keeper who finds a map."
SAMPLING = Sampling(temperature=0.8, top_p=0.95)
RESULTS = Path(__file__).parent / "results" / "candidates.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    loaded = load(Load(request=1, model=arguments.model))
    seconds = measure(loaded, arguments.counts, arguments.tokens, arguments.rounds)
    figures = {}
    for count, values in seconds.items():
        ratio = statistics.median(value / one for value, one in zip(values, seconds[1], strict=True))
        rate = count * arguments.tokens / statistics.median(values)
        figures[count] = {"tokens_per_second": rate, "time_over_one": ratio}
        print(f"{count} at once: {rate:6.1f} tokens/s in all, {ratio:.2f} times the time of one")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"model": arguments.model, "dtype": loaded.dtype, "candidates": figures}, indent=1))


def measure(loaded, counts: list[int], tokens: int, rounds: int) -> dict[int, list[float]]:
    """Seconds that each count of replies takes to grow by ``tokens`` tokens each, one figure for each round."""
    streams = {count: stream(loaded, count) for count in [1, *counts]}
    for count, replies in streams.items():  # reads the prompt
        burst(replies, 2 * count)
    order = list(streams)
    seconds: dict[int, list[float]] = {count: [] for count in order}
    for _ in range(rounds):
        for count in order:
            seconds[count].append(burst(streams[count], count * tokens))
        order.append(order.pop(0))
    return seconds


def stream(loaded, count: int):
    """One plain reply, or several candidates, that never end."""
    prompt = loaded.tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True)
    sampler = create("standard")
    common = {
        "model": loaded.model,
        "cache": SessionCache(loaded.model, CacheLimits(2048)),
        "tokenizer": loaded.tokenizer,
        "sampler": sampler,
        "config": sampler.configure(SAMPLING, ModelFacts(loaded.vocab_size, loaded.tokenizer)),
        "limits": Limits(),
    }
    if count == 1:
        return TokenGenerator(**common, seed=0).generate(prompt)
    return CandidateGenerator(**common, seeds=tuple(range(count))).generate(prompt)


def burst(replies, records: int) -> float:
    """Seconds for the next records, the step that they leave in flight included."""
    began = time.perf_counter()
    for _ in range(records):
        next(replies)
    mx.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
