"""What one step costs beside the model's own work: the draw, the numbers and the alternatives, alone.

    python -m bench.step [--vocab 49152] [--rounds 200]

Random logits of the vocabulary's size, one row. A figure is the least of all rounds, in milliseconds: what the step
takes when nothing else runs. mlx-lm's own step normalises the logits and calls its sampler.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import chatapp.engine.loading  # noqa: F401 - first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip
from mlx_lm.sample_utils import make_sampler

from chatapp.engine.decode.step import sample
from chatapp.engine.samplers import ModelFacts, create
from chatapp.protocol import Sampling


def ours(logits: mx.array, name: str, sampling: Sampling, alternatives: int = 10) -> Callable[[], list[mx.array]]:
    """A step of a sampler with all numbers."""
    sampler = create(name)
    config = sampler.configure(sampling, ModelFacts(logits.shape[-1]))
    history = mx.zeros((1, 0), mx.uint32)

    def step() -> list[mx.array]:
        drawn, _ = sample(logits, None, history, sampler, config, sampler.start(config, (1,)), alternatives)
        return drawn.arrays()

    return step


def mlx_lm(logits: mx.array, **options: float) -> Callable[[], list[mx.array]]:
    """What mlx-lm's loop does with the logits."""
    sampler = make_sampler(**options)
    return lambda: [sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=int, default=49_152)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    logits = mx.random.normal((1, arguments.vocab), key=mx.random.key(0)) * 4
    mx.eval(logits)
    steps = {
        "the likeliest token, no numbers": lambda: [mx.argmax(logits, axis=-1)],
        "greedy, all numbers, 10 alternatives": ours(logits, "standard", Sampling(temperature=0.0)),
        "temperature 0.8, the same": ours(logits, "standard", Sampling(temperature=0.8)),
        "top-k 20, top-p 0.95, the same": ours(logits, "standard", Sampling(temperature=0.8, top_k=20, top_p=0.95)),
        "top-p 0.9, the same": ours(logits, "standard", Sampling(temperature=0.8, top_p=0.9)),
        "adaptive, the same": ours(logits, "adaptive", Sampling()),
        "mlx-lm, greedy": mlx_lm(logits, temp=0.0),
        "mlx-lm, temperature 0.8": mlx_lm(logits, temp=0.8),
        "mlx-lm, top-p 0.9": mlx_lm(logits, temp=0.8, top_p=0.9),
    }
    least = {name: float("inf") for name in steps}
    for _ in range(arguments.rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            mx.eval(step())
            least[name] = min(least[name], (time.perf_counter() - began) * 1e3)
    for name, milliseconds in least.items():
        print(f"{name:40} {milliseconds:6.2f} ms")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(least, indent=1))


if __name__ == "__main__":
    main()
