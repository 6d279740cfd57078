"""Ranks over links of known latency and speed: docs/distributed.md's formula beside what is measured.

    python -m bench.links [--tokens 40] [--rounds 3] [--default]

Every rank reaches its neighbour through a relay, a process that holds what it is sent back for the link's latency and
passes it on no faster than the link's speed. The first row of a model is measured over relays that add nothing. To that
the formula adds what the link takes, with the latency that the relay really has (in brackets): the first figure of each
pair. Beside it stands what was measured: for a decode step by itself, for a token of the decode loop, which runs a step
ahead, and for reading a prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
        """Seconds that the formula gives the messages of a decode step: all-sums, or hops and the result to all."""
        if kind.startswith("tensor"):
            return 2 * self.layers * self.all_sum(link, 4 * self.hidden)
        return 2 * (self.ranks - 1) * link.message(4 * self.hidden)

    def token(self, link: Link, kind: str) -> float:
        """Seconds that it gives a token's: a step's, and the all-sum by which the ranks agree on the drawn id."""
        return self.step(link, kind) + self.all_sum(link, 8)

    def prompt(self, link: Link, kind: str, tokens: int) -> float:
        """Seconds that it gives a prompt's, which is read in chunks, and the first token's.

        Of a prompt the caches are computed and nothing more: the last layer's sums and the pipeline's result are not.
        Before each chunk, and after the last, the ranks agree on whether the request was cancelled.
        """
        chunks = [min(CHUNK, tokens - 1 - first) for first in range(0, tokens - 1, CHUNK)]
        if kind.startswith("tensor"):
            read = sum(2 * (self.layers - 1) * self.all_sum(link, 4 * self.hidden * chunk) for chunk in chunks)
        else:
            read = sum((self.ranks - 1) * link.message(4 * self.hidden * chunk) for chunk in chunks)
        return read + (len(chunks) + 1) * self.all_sum(link, 4) + self.token(link, kind)

    def all_sum(self, link: Link, size: float) -> float:
        """Around the ring and around it again, a part of the data at a time."""
        return 2 * (self.ranks - 1) * link.message(size / self.ranks)


#: Tokens of a prompt that a CPU reads at once.
CHUNK = 128

PLAIN = Link(0.0)
LINKS = (Link(0.0003), Link(0.001), Link(0.003), Link(0.0003, 10e6), Link(0.0003, 1e6))


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
    """Milliseconds over one link: a step by itself, a token of the loop, a prompt of so many tokens."""

    step: float
    token: float
    prompt: float
    length: int
    kind: str

    @classmethod
    async def measured(cls, shared: Shared, link: Link, tokens: int, rounds: int) -> Row:
        with over(link):
            step = await asyncio.to_thread(collectives, shared.model, shared.ranks)
            found = await rate(shared.model, shared.ranks, tokens, rounds)
        length = found["prompt_tokens"]
        token, prompt = 1000 / found["decode"], 1000 * length / found["prompt"]
        return cls(1000 * step["with"], token, prompt, length, found["parallel"])

    def over(self, shared: Shared, link: Link) -> Row:
        """What the formula makes of this row, which nothing was added to, for a link."""
        added = {
            "step": self.step + 1000 * shared.step(link, self.kind),
            "token": self.token + 1000 * shared.token(link, self.kind),
            "prompt": self.prompt + 1000 * shared.prompt(link, self.kind, self.length),
        }
        return replace(self, **added)


async def compare(shared: Shared, tokens: int, rounds: int) -> None:
    plain = await Row.measured(shared, PLAIN, tokens, rounds)
    print(f"{shared.name}, {plain.kind}; milliseconds, the prompt has {plain.length} tokens", flush=True)
    _show("nothing added", plain, plain)
    for link in LINKS:
        real = Link(one_way(link) - one_way(PLAIN), link.speed)
        found = await Row.measured(shared, link, tokens, rounds)
        _show(f"{link} ({1e6 * real.latency:.0f})", plain.over(shared, real), found)


def _show(link: str, formula: Row, found: Row) -> None:
    pairs = (("step", formula.step, found.step), ("token", formula.token, found.token))
    pairs = (*pairs, ("prompt", formula.prompt, found.prompt))
    cells = (f"{what} {told:7.1f} {came:7.1f} {came / told - 1:+5.0%}" for what, told, came in pairs)
    print(f"  {link:28}", *cells, sep="  ", flush=True)


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
