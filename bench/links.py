"""Ranks over links of known latency and speed: docs/distributed.md's formula beside what is measured.

    python -m bench.links [--tokens 40] [--rounds 3] [--default]

Every rank reaches its neighbour through a relay, a process that holds what it is sent back for the link's latency and
passes it on no faster than the link's speed. The first row of a model is measured over relays that add nothing. To that
the formula adds what the link takes, with the latency that the relay really has: the first figure of each pair. Beside
it stands what was measured, for a decode step by itself and for a token of the decode loop, which runs a step ahead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.distributed import collectives, rate
from bench.relay import Link, one_way
from chatapp.models.registry import DEFAULT_MODEL
from tests.engine.folder import write_model

#: Put before a rank's own program: starts the relay to the next rank and has MLX connect to that instead.
IN_EACH_RANK = """
import json, os, subprocess, sys
if "MLX_HOSTFILE" in os.environ and "BENCH_LINK" in os.environ:
    options = os.environ.pop("BENCH_LINK").split()
    with open(os.environ["MLX_HOSTFILE"]) as file:
        hosts = json.load(file)
    rank = int(os.environ["MLX_RANK"])
    following = (rank + 1) % len(hosts)
    command = [sys.executable, "-m", "bench.relay", hosts[following][0], *options]
    relay = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    hosts[following] = [relay.stdout.readline().strip()]
    path = os.path.join(os.path.dirname(__file__), f"{os.getpid()}.json")
    with open(path, "w") as file:
        json.dump(hosts, file)
    os.environ["MLX_HOSTFILE"] = path
"""


@dataclass(frozen=True)
class Shared:
    """A model on some ranks.

    Attributes:
        hidden: Values of an activation, of four bytes each.
    """

    name: str
    model: str
    ranks: int
    layers: int
    hidden: int

    def step(self, link: Link, kind: str) -> float:
        """Seconds that the formula gives the messages of a decode step."""
        size, passes = 4 * self.hidden, 2 * (self.ranks - 1)
        if kind.startswith("tensor"):
            return 2 * self.layers * passes * link.message(size / self.ranks)
        return passes * link.message(size)

    def drawn(self, link: Link) -> float:
        """Seconds that it gives the all-sum by which the ranks agree on the drawn id."""
        return 2 * (self.ranks - 1) * link.message(8 / self.ranks)


PLAIN = Link(0.0)
LINKS = (Link(0.0003), Link(0.001), Link(0.003), Link(0.0003, 1e6))


@contextmanager
def over(link: Link) -> Iterator[None]:
    """Engines that are started inside have this link between their ranks."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(IN_EACH_RANK)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(Path(__file__).parents[1])])
        os.environ["BENCH_LINK"] = f"{link.latency} {link.speed}"
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@dataclass
class Row:
    """Milliseconds over one link."""

    step: float
    token: float
    kind: str

    @classmethod
    async def measured(cls, shared: Shared, link: Link, tokens: int, rounds: int) -> Row:
        with over(link):
            step = await asyncio.to_thread(collectives, shared.model, shared.ranks)
            found = await rate(shared.model, shared.ranks, tokens, rounds)
        return cls(1000 * step["with"], 1000 / float(str(found["decode"])), str(found["parallel"]))


async def compare(shared: Shared, tokens: int, rounds: int) -> None:
    plain = await Row.measured(shared, PLAIN, tokens, rounds)
    print(f"{shared.name}, {plain.kind}", flush=True)
    print(f"  {'nothing added':35} step {plain.step:17.1f} ms         token {plain.token:17.1f} ms", flush=True)
    for link in LINKS:
        real = Link(one_way(link) - one_way(PLAIN), link.speed)
        step = plain.step + 1000 * shared.step(real, plain.kind)
        token = plain.token + 1000 * (shared.step(real, plain.kind) + shared.drawn(real))
        found = await Row.measured(shared, link, tokens, rounds)
        print(
            f"  {link!s:18} really {1e6 * real.latency:5.0f} µs",
            f"step {step:8.1f} {found.step:8.1f} ms {found.step / step - 1:+5.0%} ",
            f"token {token:8.1f} {found.token:8.1f} ms {found.token / token - 1:+5.0%}",
            sep="  ",
            flush=True,
        )


async def run(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {"hidden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 8}
        shared = [
            Shared(
                f"Llama of {layers} layers on {ranks} ranks",
                str(write_model(folder / f"llama{layers}", num_hidden_layers=layers, **sizes)),
                ranks,
                layers,
                96,
            )
            for layers, ranks in ((2, 2), (12, 2), (2, 3))
        ]
        odd = {"hidden_size": 48, "num_attention_heads": 3, "num_key_value_heads": 3, "num_hidden_layers": 4}
        model = str(write_model(folder / "odd", family="deepseek_v2", **odd))
        shared.append(Shared("DeepSeek-V2 of 4 layers on 2 ranks", model, 2, 4, 48))
        if arguments.default:
            shared.append(Shared("SmolLM2-135M on 3 ranks", arguments.model or DEFAULT_MODEL, 3, 30, 576))
        for each in shared[arguments.only : arguments.only + 1] if arguments.only is not None else shared:
            await compare(each, arguments.tokens, arguments.rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--default", action="store_true", help="the default model too, which takes minutes")
    parser.add_argument("--model", help="folder of the default model, if it lies somewhere else")
    parser.add_argument("--only", type=int, help="the model of this number, from 0")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
