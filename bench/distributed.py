"""Ranks on this machine: decode rates for 1, 2 and 3 of them in one run, and the part of it that collectives take.

    python -m bench.distributed [--tiny-tokens 200] [--tokens 24] [--rounds 3]
    python -m bench.distributed --expect --weights 40e9 --bandwidth 400e9 --layers 80 --hidden 8192 --bytes 2 \\
        --latency 20e-6 --link 5e9 [--compute 2e-3]

The default model (9 heads, 3 key-value heads) runs on 1 and 3 ranks, a tiny one on 1, 2 and 3. "collectives" is the
time that the all_sums of one token take by themselves, in a chain as the model makes them: two for each layer, of one
activation, and one for the sampled id.

``--expect`` works out docs/distributed.md's formula for other machines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chatapp.client import Engine
from chatapp.launch import Hosts
from chatapp.models.registry import DEFAULT_MODEL
from chatapp.protocol import Ended, Generate, Load, Loaded, Sampling, Turn

PROMPT = Turn("user", "Write a long story about a lighthouse keeper who finds a map. " * 6)


async def rate(model: str, ranks: int, tokens: int, rounds: int) -> dict[str, object]:
    """Median decode and prompt rates, in tokens per second."""
    engine = await Engine.start(hosts=Hosts.here(ranks) if ranks > 1 else None)
    try:
        loaded = await engine.ask(Load(engine.next_request(), model, max_kv_size=2048))
        assert isinstance(loaded, Loaded)
        ends: list[Ended] = []
        for number in range(rounds + 1):  # the first warms up
            sampling = Sampling(temperature=1.0, seed=number, max_tokens=tokens if number else 4)
            async for event in engine.request(Generate(engine.next_request(), "", (PROMPT,), sampling)):
                if isinstance(event, Ended):
                    ends.append(event)
        return {
            "decode": statistics.median(end.generation_tps for end in ends[1:] if end.tokens > 1),
            "prompt": statistics.median(end.prompt_tps for end in ends[1:]),
            "parallel": loaded.parallel or "alone",
            "bytes": loaded.bytes,
        }
    finally:
        await engine.close()


def collectives(ranks: int, layers: int, hidden: int) -> float:
    """Seconds that one token's collectives take on so many ranks here."""
    if ranks == 1:
        return 0.0
    command = Hosts.here(ranks).command("")
    script = [sys.executable, "-m", "bench.distributed", "--measure", str(layers), str(hidden)]
    done = subprocess.run(
        [*command[: command.index("--") + 1], *script], capture_output=True, text=True, check=True, stdin=sys.stdin
    )
    return float(json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["seconds"])


def measure(layers: int, hidden: int) -> None:
    """One rank of `collectives`."""
    import mlx.core as mx

    group = mx.distributed.init(strict=True)
    times: list[float] = []
    for _ in range(12):
        activation, token = mx.ones((1, 1, hidden)), mx.zeros((2,), mx.uint32)
        mx.eval(activation, token)
        began = time.perf_counter()
        for _ in range(2 * layers):
            activation = mx.distributed.all_sum(activation, group=group) / group.size()
        mx.eval(activation, mx.distributed.all_sum(token, group=group))
        times.append(time.perf_counter() - began)
    if group.rank() == 0:
        print(json.dumps({"seconds": statistics.median(times[2:])}), flush=True)


def expect(arguments: argparse.Namespace) -> None:
    """The formula of docs/distributed.md, for 1, 2, 4 and 8 machines."""
    size = arguments.hidden * arguments.bytes
    for ranks in (1, 2, 4, 8):
        one = 2 * (ranks - 1) * (arguments.latency + size / (ranks * arguments.link))
        together = (2 * arguments.layers + 1) * one
        tensor = arguments.weights / (ranks * arguments.bandwidth) + arguments.compute + together
        hop = arguments.latency + size / arguments.link
        pipeline = arguments.weights / arguments.bandwidth + arguments.compute + 3 * (ranks - 1) * hop
        share = together / tensor
        print(
            f"{ranks} machines  tensor {1 / tensor:6.1f} tok/s ({share:4.0%} in collectives)  "
            f"pipeline {1 / pipeline:6.1f} tok/s  {arguments.weights / ranks / 1e9:5.1f} GB of weights on each"
        )


async def compare(arguments: argparse.Namespace, tiny: str) -> None:
    plan = [
        *((tiny, "tiny", ranks, 2, 96, arguments.tiny_tokens) for ranks in (1, 2, 3)),
        *((DEFAULT_MODEL, DEFAULT_MODEL, ranks, 30, 576, arguments.tokens) for ranks in (1, 3)),
    ]
    for model, name, ranks, layers, hidden, tokens in plan:
        found = await rate(arguments.model or model if name != "tiny" else model, ranks, tokens, arguments.rounds)
        together = await asyncio.to_thread(collectives, ranks, layers, hidden)
        decode = float(str(found["decode"]))
        print(
            f"{name:14} {ranks} {found['parallel']:11} decode {decode:7.2f} tok/s  prompt {found['prompt']:7.1f} tok/s",
            f"{found['bytes']:>11,} bytes on a rank",
            f"collectives {1000 * together:7.2f} ms a token, {together * decode:4.0%} of it",
            sep="  ",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of the default model, if it lies somewhere else")
    parser.add_argument("--tiny-tokens", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, type=int, help=argparse.SUPPRESS)
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
        measure(*arguments.measure)
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
