"""Does the adaptive sampler help? Exact match on generated tasks, and what each of its states did.

    python -m bench.samplers [--model smollm2-135m] [--tasks 100] [--json FILE]

Three ways to draw, on the same generated tasks (adding two numbers; copying four words):

    greedy      the likeliest token
    standard    temperature 0.666, top-k 27, top-p 0.9: the base that the adaptive sampler moves away from
    adaptive    the same base, thresholds learned from the stream, attention statistics on

Intervals are Wilson's at 95 %; standard and adaptive are compared task by task (exact McNemar test). The second table
counts the adaptive sampler's states on a fixed set of prompts.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode import Limits, TokenGenerator
from chatapp.engine.loading import load
from chatapp.engine.samplers import ModelFacts, create
from chatapp.protocol import Load, Sampling
from chatapp.tokens import Token

BASE = {"temperature": 0.666, "top_k": 27, "top_p": 0.9}
SAMPLERS = {
    "greedy": Sampling(temperature=0.0),
    "standard": Sampling(**BASE),
    "adaptive": Sampling(sampler="adaptive", **BASE),
}
WORDS = ("apple", "river", "stone", "cloud", "green", "seven", "window", "paper", "light", "garden", "silver", "table")
PROMPTS = (
    "What is the capital of France?",
    "Write a short poem about rain.",
    "Why is the sky blue?",
    "Tell me a story about a fox and a crow.",
    "Name three animals that live in the sea.",
    "Explain what a prime number is.",
    "Give me a name for a black cat.",
    "Translate to French: Good morning, my friend.",
)


@dataclass(frozen=True)
class Task:
    kind: str
    prompt: str
    answer: str

    def solved(self, reply: str) -> bool:
        if self.kind == "arithmetic":
            return re.findall(r"\d+", reply.replace(",", ""))[-1:] == [self.answer]
        return re.findall(r"[a-z]+", reply.lower()) == self.answer.split()


def tasks(count: int, seed: int = 1) -> list[Task]:
    """As many of each kind; the same for the same seed."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        a, b = rng.randint(2, 12), rng.randint(2, 12)
        made.append(Task("arithmetic", f"What is {a} + {b}? Answer with the number only.", str(a + b)))
        line = " ".join(rng.sample(WORDS, 4))
        made.append(Task("copying", f"Copy this text word for word:\n{line}", line))
    return made


class Bench:
    def __init__(self, name: str) -> None:
        self.loaded = load(Load(request=1, model=name))
        self.facts = ModelFacts(
            self.loaded.vocab_size, self.loaded.tokenizer, tuple(self.loaded.tokenizer.eos_token_ids)
        )
        self.cache = SessionCache(self.loaded.model, CacheLimits(2048))
        self.probe = Probe(self.loaded.model)

    def reply(self, prompt: str, sampling: Sampling, seed: int, longest: int) -> list[Token]:
        tokenizer = self.loaded.tokenizer
        ids = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
        plan = self.cache.prepare(ids)
        for _ in self.cache.prefill(ids[plan.reused : -1]):
            pass
        sampler = create(sampling.sampler)
        config = sampler.configure(sampling, self.facts)
        generator = TokenGenerator(
            model=self.loaded.model,
            cache=self.cache,
            tokenizer=tokenizer,
            sampler=sampler,
            config=config,
            seed=seed,
            limits=Limits(max_tokens=longest, alternatives=0, stop_ids=frozenset(tokenizer.eos_token_ids)),
            probe=self.probe if sampler.wants_scores(config) else None,
        )
        return list(generator.generate(ids))


def accuracy(bench: Bench, count: int) -> dict[str, dict[str, list[bool]]]:
    solved: dict[str, dict[str, list[bool]]] = {name: defaultdict(list) for name in SAMPLERS}
    for seed, task in enumerate(tasks(count)):
        for name, sampling in SAMPLERS.items():
            tokens = bench.reply(task.prompt, sampling, seed, 20)
            solved[name][task.kind].append(task.solved("".join(token.text for token in tokens)))
    return solved


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Confidence interval of a share (Wilson 1927)."""
    share, spread = hits / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return middle - half, middle + half


def mcnemar(first: list[bool], second: list[bool]) -> tuple[int, int, float]:
    """Tasks that only one of two solved, and the two-sided exact p-value that they are as often one as the other."""
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    n = only_first + only_second
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1)) / 2**n
    return only_first, only_second, min(1.0, 2 * tail)


def states(bench: Bench, longest: int) -> list[dict[str, object]]:
    """What the adaptive sampler did on the fixed prompts, by state."""
    tokens = [
        token
        for seed, prompt in enumerate(PROMPTS)
        for token in bench.reply(prompt, SAMPLERS["adaptive"], seed, longest)
    ]
    rows = []
    for state, count in Counter(token.state for token in tokens).most_common():
        of = [token for token in tokens if token.state == state]
        rows.append(
            {
                "state": state,
                "tokens": count,
                "share": count / len(tokens),
                "entropy": sum(token.entropy for token in of) / count,
                "varentropy": sum(token.varentropy for token in of) / count,
                "sampled_entropy": sum(token.sampled_entropy for token in of) / count,
                "surprisal": sum(token.surprisal for token in of) / count,
                "examples": [token.text for token in of[:6]],
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tasks", type=int, default=100, help="of each kind")
    parser.add_argument("--longest", type=int, default=60, help="tokens of a reply for the table of states")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()

    bench = Bench(arguments.model)
    solved = accuracy(bench, arguments.tasks)
    for kind in ("arithmetic", "copying"):
        for name in SAMPLERS:
            hits, count = sum(solved[name][kind]), len(solved[name][kind])
            low, high = wilson(hits, count)
            print(f"{kind:11} {name:9} {hits:4} of {count}  {hits / count:6.1%}  [{low:.1%}, {high:.1%}]")
        only_standard, only_adaptive, p = mcnemar(solved["standard"][kind], solved["adaptive"][kind])
        print(f"{kind:11} only standard {only_standard}, only adaptive {only_adaptive}, p = {p:.2f}")
    rows = states(bench, arguments.longest)
    print("state      tokens  share      H      V  drawn H      S  examples")
    for row in rows:
        print(
            f"{row['state']:9} {row['tokens']:7} {row['share']:6.1%} {row['entropy']:6.2f} {row['varentropy']:6.2f}"
            f" {row['sampled_entropy']:8.2f} {row['surprisal']:6.2f}  {' '.join(map(repr, row['examples']))}"
        )
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps({"solved": solved, "states": rows}, indent=1))


if __name__ == "__main__":
    main()
