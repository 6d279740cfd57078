"""Decode rates side by side, in one run and in turns, on one model.

    python -m bench.decode [--model smollm2-135m] [--tokens 8] [--rounds 40]

    bare        chatapp's loop, greedy, without metrics and alternatives
    metrics     the same loop with all metrics and 10 alternatives for each token
    drawn       the same at temperature 0.8 with top-p 0.9: filters and a draw over the whole vocabulary
    adaptive    the adaptive sampler, which looks at the last layer's attention
    attention   greedy, with attention statistics of all layers in the records
    mlx-lm      mlx-lm's stream_generate, greedy
    mlx-lm drawn   the same with mlx-lm's sampler at temperature 0.8, top-p 0.9

All replies grow side by side: every round decodes a few tokens of each, in an order that rotates. A ratio is the median
over rounds of the ratio within a round, so that a slow second of the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from chatapp.engine.loading import load  # first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip
from mlx_lm.generate import generation_stream, stream_generate
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from chatapp.engine.attention import Probe
from chatapp.engine.decode import Limits, TokenGenerator
from chatapp.engine.samplers import Doubt, ModelFacts, create
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Load, Sampling

PROMPT = "Write a long story about a lighthouse keeper who finds a map."
GREEDY = Sampling(temperature=0.0)
DRAWN = Sampling(temperature=0.8, top_p=0.9)


class PlainCache:
    """mlx-lm's own cache behind the interface of the decode loop, so that only the loop differs."""

    def __init__(self, model):
        self.tokens: list[int] = []
        self.layers = make_prompt_cache(model)

    def read(self, ids):
        self.tokens.extend(ids)

    def reset(self):
        raise AssertionError("a benchmark does not fail")


class Bare(Standard):
    """The likeliest token and no numbers."""

    def __call__(self, logits, scores, history, cfg, state):
        token = mx.argmax(logits, axis=-1)
        zero = mx.zeros(token.shape)
        return token, Doubt(zero, zero, zero, zero, zero.astype(mx.uint32), zero), state


def ours(
    loaded, sampler, sampling: Sampling, alternatives: int, attention: bool = False
) -> Callable[[list[int]], Iterator[object]]:
    config = sampler.configure(sampling, ModelFacts(loaded.vocab_size, loaded.tokenizer))

    def start(prompt):
        generator = TokenGenerator(
            model=loaded.model,
            cache=PlainCache(loaded.model),
            tokenizer=loaded.tokenizer,
            sampler=sampler,
            config=config,
            seed=1,
            limits=Limits(alternatives=alternatives),
            probe=Probe(loaded.model) if attention or sampler.wants_scores(config) else None,
            attention=attention,
        )
        return generator.generate(prompt)

    return start


def mlx_lm(loaded, sampler) -> Callable[[list[int]], Iterator[object]]:
    def start(prompt):
        loaded.tokenizer._eos_token_ids = set()  # never stop early
        return stream_generate(loaded.model, loaded.tokenizer, prompt, max_tokens=-1, sampler=sampler)

    return start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    loaded = load(Load(request=1, model=arguments.model))
    prompt = loaded.tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True)
    variants = {
        "bare": ours(loaded, Bare(), GREEDY, 0),
        "metrics": ours(loaded, create("standard"), GREEDY, 10),
        "drawn": ours(loaded, create("standard"), DRAWN, 10),
        "adaptive": ours(loaded, create("adaptive"), Sampling(), 10),
        "attention": ours(loaded, create("standard"), GREEDY, 10, attention=True),
        "mlx-lm": mlx_lm(loaded, make_sampler(temp=0.0)),
        "mlx-lm drawn": mlx_lm(loaded, make_sampler(temp=0.8, top_p=0.9)),
    }
    rates = measure(variants, prompt, arguments.tokens, arguments.rounds)
    for name, values in rates.items():
        middle = statistics.median(values)
        print(f"{name:14} {middle:7.2f} tokens/s   (lowest {min(values):.2f}, highest {max(values):.2f})")
    ratios = {
        f"{above} / {below}": statistics.median(a / b for a, b in zip(rates[above], rates[below], strict=True))
        for above, below in (
            ("metrics", "bare"),
            ("metrics", "mlx-lm"),
            ("drawn", "mlx-lm drawn"),
            ("adaptive", "metrics"),
            ("attention", "metrics"),
        )
    }
    for name, ratio in ratios.items():
        print(f"{name:26} {ratio:.3f}")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"rates": rates, "ratios": ratios}, indent=1))


def measure(variants, prompt: list[int], tokens: int, rounds: int) -> dict[str, list[float]]:
    """Rates of each variant, one for each round."""
    streams = {name: start(prompt) for name, start in variants.items()}
    for stream in streams.values():  # reads the prompt, compiles kernels, imports what is imported late
        burst(stream, 4)
    order = list(streams)
    rates: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        for name in order:
            rates[name].append(tokens / burst(streams[name], tokens))
        order.append(order.pop(0))
    return rates


def burst(stream: Iterator[object], tokens: int) -> float:
    """Seconds for the next tokens, the step that they leave in flight included."""
    began = time.perf_counter()
    for _ in range(tokens):
        next(stream)
    mx.synchronize(mx.default_stream(mx.default_device()))
    mx.synchronize(generation_stream)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
