"""Why a CPU computes in float32: the default model in three number formats, in turn, in one run.

    python -m bench.precision [--rounds 3]

Prompt is the rate of one pass over 64 tokens, generation that of the quickest of eight single steps; the best of the
rounds counts. ``CHATAPP_BLAS=stock`` shows the same without a fast BLAS. Prints figures and writes them to
``bench/results/precision.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import chatapp.engine.loading  # noqa: F401 - first: it puts a fast BLAS under MLX

import mlx.core as mx  # isort: skip
import mlx.nn as nn  # isort: skip
from mlx_lm.models.cache import make_prompt_cache  # isort: skip
from mlx_lm.utils import load_model  # isort: skip

from chatapp.engine.blas import use_fast_blas
from chatapp.engine.fetching import fetch
from chatapp.models.registry import DEFAULT_MODEL

FORMATS = ("float32", "bfloat16", "4-bit")
PROMPT = 64


def model_in(folder: Path, kind: str) -> nn.Module:
    model, _ = load_model(folder, lazy=True)
    if kind == "bfloat16":
        model.set_dtype(mx.bfloat16)
    elif kind == "4-bit":
        nn.quantize(model, group_size=64, bits=4)
    mx.eval(model.parameters())
    return model


def rates(model: nn.Module) -> tuple[float, float]:
    """Tokens per second: prompt, generation."""
    cache = make_prompt_cache(model)
    start = time.perf_counter()
    mx.eval(model(mx.arange(PROMPT)[None] + 100, cache=cache))
    prompt = PROMPT / (time.perf_counter() - start)
    steps = []
    for token in range(8):
        start = time.perf_counter()
        mx.eval(model(mx.array([[token + 5]]), cache=cache))
        steps.append(time.perf_counter() - start)
    return prompt, 1 / min(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    folder = fetch(DEFAULT_MODEL).folder
    models = {kind: model_in(folder, kind) for kind in FORMATS}
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for kind, model in models.items():
            found.setdefault(kind, []).append(rates(model))
    best = {
        kind: {"prompt": max(p for p, _ in runs), "generation": max(g for _, g in runs)} for kind, runs in found.items()
    }
    blas = use_fast_blas()
    print(f"blas {blas}; tokens per second")
    for kind, rate in best.items():
        print(f"{kind:10} prompt {rate['prompt']:7.1f}   generation {rate['generation']:6.1f}")
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "precision.json").write_text(json.dumps({"blas": blas, "tokens_per_second": best}, indent=1) + "\n")


if __name__ == "__main__":
    main()
