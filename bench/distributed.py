"""Ranks on this machine: decode rates for 1, 2 and 3 of them in one run, and the part of it that collectives take.

    python -m bench.distributed [--tiny-tokens 200] [--tokens 16] [--rounds 2]
    python -m bench.distributed --expect --weights 40e9 --bandwidth 400e9 --layers 80 --hidden 8192 --bytes 2 \\
        --latency 20e-6 --link 5e9 [--compute 2e-3]

The default model (9 heads, 3 key-value heads) runs on 1 and 3 ranks, a tiny one on 1, 2 and 3. "collectives" is what
a decode step of the same share of the model takes with its all_sums, less what it takes where they are left out: the
messages, and the waiting for each other.

``--expect`` works out docs/distributed.md's formula for other machines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chatapp.client import Engine
from chatapp.launch import Hosts
from chatapp.models.registry import DEFAULT_MODEL
from chatapp.protocol import Ended, Generate, Load, Loaded, Sampling, Started, Turn

#: The end of a turn, in both models' vocabularies.
END = 2

PROMPT = Turn("user", "Write a long story about a lighthouse keeper who finds a map. " * 6)


async def rate(model: str, ranks: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Median decode and prompt rates, in tokens per second; the first of the rounds is not counted."""
    engine = await Engine.start(hosts=Hosts.here(ranks) if ranks > 1 else None)
    try:
        loaded = await engine.ask(Load(engine.next_request(), model, max_kv_size=2048))
        assert isinstance(loaded, Loaded)
        ends: list[Ended] = []
        length = 0
        for number in range(rounds + 1):  # the first warms up
            endless = {END: -1000.0}
            sampling = Sampling(temperature=1.0, seed=number, max_tokens=tokens if number else 4, logit_bias=endless)
            async for event in engine.request(Generate(engine.next_request(), "", (PROMPT,), sampling)):
                if isinstance(event, Started):
                    length = event.prompt_tokens
                if isinstance(event, Ended):
                    ends.append(event)
        return {
            "decode": statistics.median(end.generation_tps for end in ends[1:] if end.tokens > 1),
            "prompt": statistics.median(end.prompt_tps for end in ends[1:]),
            "prompt_tokens": length,
            "parallel": loaded.parallel or "alone",
        }
    finally:
        await engine.close()


def collectives(model: str, ranks: int) -> dict[str, float]:
    """Seconds of a decode step on so many ranks here, with its collectives and without, and bytes of weights on one."""
    command = Hosts.here(ranks).command("")
    script = [sys.executable, "-m", "bench.distributed", "--measure", model]
    launched = [*command[: command.index("--") + 1], *script]
    theirs, ours = os.pipe()  # the ranks end when their standard input does
    try:
        done = subprocess.run(launched, capture_output=True, text=True, check=True, stdin=theirs)
    finally:
        os.close(theirs)
        os.close(ours)
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))


def measure(model: str) -> None:
    """One rank of `collectives`."""
    import mlx.core as mx

    from chatapp.engine import loading
    from chatapp.engine.distributed import Group
    from chatapp.engine.progress import Progress
    from chatapp.engine.sharding import Share
    from chatapp.models.progress import silent

    ranks = Group(mx.distributed.init(strict=True), Progress())
    request = Load(1, model, max_kv_size=256)
    loaded = loading.load(request, share=Share.of(model, ranks, silent))
    all_sum = mx.distributed.all_sum
    times: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(8):  # in turn, so that the machine's mood counts for both
        for name, found in times.items():
            ranks.agree(True)
            mx.distributed.all_sum = all_sum if name == "with" else lambda array, group=None: array
            found.append(_step(loaded.model))
            mx.distributed.all_sum = all_sum
    if ranks.rank == 0:
        medians = {name: statistics.median(found[1:]) for name, found in times.items()}
        print(json.dumps({**medians, "bytes": loaded.bytes}), flush=True)


def _step(model: Any) -> float:
    """Seconds of a decode step: the second of two, with an empty cache."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([[5]]), cache=cache))
    began = time.perf_counter()
    mx.eval(mx.argmax(model(mx.array([[7]]), cache=cache)[:, -1], axis=-1))
    return time.perf_counter() - began


def expect(arguments: argparse.Namespace) -> None:
    """The formula of docs/distributed.md, for 1, 2, 4 and 8 machines."""
    size = arguments.hidden * arguments.bytes
    for ranks in (1, 2, 4, 8):
        one = 2 * (ranks - 1) * (arguments.latency + size / (ranks * arguments.link))
        together = (2 * arguments.layers + 1) * one
        tensor = arguments.weights / (ranks * arguments.bandwidth) + arguments.compute + together
        hops = 2 * (ranks - 1) * (2 * arguments.latency + size / arguments.link)
        pipeline = arguments.weights / arguments.bandwidth + arguments.compute + hops
        share = together / tensor
        print(
            f"{ranks} machines  tensor {1 / tensor:6.1f} tok/s ({share:4.0%} in collectives)  "
            f"pipeline {1 / pipeline:6.1f} tok/s  {arguments.weights / ranks / 1e9:5.1f} GB of weights on each"
        )


async def compare(arguments: argparse.Namespace, tiny: str) -> None:
    plan = [
        *((tiny, "tiny", ranks, arguments.tiny_tokens) for ranks in (1, 2, 3)),
        *((arguments.model or DEFAULT_MODEL, DEFAULT_MODEL, ranks, arguments.tokens) for ranks in (1, 3)),
    ]
    for model, name, ranks, tokens in plan:
        found = await rate(model, ranks, tokens, arguments.rounds)
        print(
            f"{name:12} {ranks} {found['parallel']:9} decode {found['decode']:7.2f} tok/s",
            f"prompt {found['prompt']:7.1f} tok/s",
            sep="  ",
            end="",
            flush=True,
        )
        if ranks > 1:
            step = await asyncio.to_thread(collectives, model, ranks)
            whole, together = step["with"], step["with"] - step["without"]
            print(
                f"  step {1000 * whole:6.1f} ms, of it collectives {1000 * together:6.1f} ({together / whole:.0%})",
                f"{step['bytes']:,.0f} bytes of weights on a rank",
                sep="  ",
                end="",
            )
        print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of the default model, if it lies somewhere else")
    parser.add_argument("--tiny-tokens", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--expect", action="store_true", help="work out the formula instead of measuring")
    parser.add_argument("--weights", type=float, help="bytes of the weights that one token reads")
    parser.add_argument("--bandwidth", type=float, help="of a machine's memory, in bytes per second")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--hidden", type=int, help="values of an activation")
    parser.add_argument("--bytes", type=int, default=2, help="of one value")
    parser.add_argument("--latency", type=float, help="of one message between neighbours, in seconds")
    parser.add_argument("--link", type=float, help="of the link, in bytes per second")
    parser.add_argument(
        "--compute", type=float, default=0.0, help="what a token costs beside reading weights, in seconds"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure)
    elif arguments.expect:
        expect(arguments)
    else:
        from tests.engine.folder import write_model

        with tempfile.TemporaryDirectory() as folder:
            tiny = write_model(
                Path(folder) / "tiny", hidden_size=96, num_attention_heads=12, num_key_value_heads=6, head_dim=8
            )
            asyncio.run(compare(arguments, str(tiny)))


if __name__ == "__main__":
    main()
