"""The wait for the first token of a second turn, and rates beside mlx-lm as pip installs it; all in one run.

    python -m bench.first_token [--model smollm2-135m] [--rounds 3]

    second turn    from the request to its first token, the first turn being in the cache
    cold           the same conversation, read from its beginning
    chatapp        prompt and generation rates of the engine, as it reports them
    mlx-lm stock   the same of mlx-lm's stream_generate (which mlx_lm.chat is made of) in a process of its own, with the
                   matrix library that its wheel brings, on the model in 4 bits as its users take it

Rounds take turns; a ratio is the median over rounds of the ratio within one.
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
from chatapp.engine.fetching import fetch
from chatapp.protocol import Ended, Generate, Load, Sampling, Started, Tokens, Turn

RESULTS = Path(__file__).parent / "results"
GREEDY = Sampling(temperature=0.0, max_tokens=24)
QUESTION = (
    "A lighthouse keeper finds an old map in a bottle on the beach below the tower. It shows an island that is on no "
    "chart, with a cross beside a spring and a line of words in a hand that nobody can read. She takes it to the "
    "harbour, where the oldest of the fishermen turns it over twice, laughs, and puts it into his pocket. "
) * 2 + "What does she do next? Answer in one sentence."

#: Run apart from chatapp, so that nothing of it is loaded: no other matrix library, no other cache.
STOCK = """
import json, sys
from mlx_lm import load, stream_generate
model, tokenizer = load(sys.argv[1])
prompt = tokenizer.apply_chat_template([{"role": "user", "content": sys.argv[2]}], add_generation_prompt=True)
for answer in stream_generate(model, tokenizer, prompt, max_tokens=int(sys.argv[3])):
    pass
print(json.dumps({"prompt": answer.prompt_tps, "generation": answer.generation_tps}))
"""

QUANTIZE = "import sys; from mlx_lm import convert; convert(sys.argv[1], sys.argv[2], quantize=True, q_bits=4)"


async def measure(engine: Engine, conversation: str, turns: tuple[Turn, ...]) -> tuple[float, Started, Ended, Turn]:
    """Seconds to the first token, what was reported, and the reply as a turn."""
    began = time.perf_counter()
    first = 0.0
    ids: list[int] = []
    started = ended = None
    async for event in engine.request(Generate(engine.next_request(), conversation, turns, GREEDY)):
        if isinstance(event, Started):
            started = event
        elif isinstance(event, Tokens):
            first = first or time.perf_counter() - began
            ids += [token.id for token in event.tokens]
        elif isinstance(event, Ended):
            ended = event
    assert started is not None
    assert ended is not None
    return first, started, ended, Turn("assistant", ended.text, tuple(ids))


async def first_tokens(model: str, rounds: int) -> dict[str, object]:
    """Times of the second turn and of the cold read, and the engine's rates."""
    engine = await Engine.start()
    await engine.ask(Load(engine.next_request(), model))
    question = Turn("user", QUESTION)
    await measure(engine, "", (Turn("user", "Hi"),))  # the first run of all compiles and allocates
    rows = []
    for number in range(rounds):
        _, _, first, reply = await measure(engine, f"c{number}", (question,))
        turns = (question, reply, Turn("user", "And after that?"))
        warm, started, _, _ = await measure(engine, f"c{number}", turns)
        cold, all_read, _, _ = await measure(engine, "", turns)
        rows.append({
            "second turn": warm, "read": started.prefilled, "cold": cold, "cold read": all_read.prefilled,
            "prompt tps": first.prompt_tps, "generation tps": first.generation_tps,
        })  # fmt: skip
    await engine.close()
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]} | {
        "second turn / cold": statistics.median(row["second turn"] / row["cold"] for row in rows)
    }


def stock_rates(folder: Path) -> dict[str, float]:
    """Rates of mlx-lm by itself on the model in 4 bits."""
    with tempfile.TemporaryDirectory() as scratch:
        quantized = str(Path(scratch) / "4bit")
        subprocess.run([sys.executable, "-c", QUANTIZE, str(folder), quantized], check=True, capture_output=True)
        arguments = [quantized, QUESTION[-400:], "16"]
        done = subprocess.run([sys.executable, "-c", STOCK, *arguments], check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    result = asyncio.run(first_tokens(arguments.model, arguments.rounds))
    stock = stock_rates(fetch(arguments.model).folder)
    result |= {"stock prompt tps": stock["prompt"], "stock generation tps": stock["generation"]}
    result |= {
        "prompt rate / stock": result["prompt tps"] / stock["prompt"],
        "generation rate / stock": result["generation tps"] / stock["generation"],
    }
    for name, value in result.items():
        print(f"{name:>24}  {value:10.3f}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "first_token.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
