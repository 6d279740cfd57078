"""What chatapp can do with a family: each check runs chatapp's own code on a tiny model and compares with a cold run.

A check answers with what the table shows: a short word, or `No` with the reason. Expected values come from one forward
pass over all tokens with explicit masks (`tests.cache.oracle`) and from float64 formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from chatapp.engine.attention import Probe
from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.rotating import RotatingLayer
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decode.generator import Limits, TokenGenerator
from chatapp.engine.decode.speculative import SpeculativeGenerator
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.standard import Standard
from chatapp.protocol import Sampling
from chatapp.tokens import Token
from tests.cache import oracle
from tests.families import cold
from tests.families.configs import VOCAB
from tests.families.letters import Letters

#: C and K where the cache rotates, C where it does not, and the tokens read.
CAPACITY, KEEP, ROOMY, READ = 24, 4, 256, 48
#: How far log-probabilities and numbers in nats may be from the cold run's. float32 sums in another order are off by
#: up to 1e-4 on these models; a forgotten or doubled token by 0.01 and more.
TOLERANCE = 5e-4

IDS = [int(token) for token in np.random.default_rng(2).integers(1, VOCAB, READ)]
GREEDY = Sampling(temperature=0.0)
WARM = Sampling(temperature=0.8)


class No(Exception):
    """It does not work, and why."""


def chats(model: Any) -> str:
    """A greedy reply takes, at each place, a token that is likeliest in a cold run."""
    tokens, generator = _reply(model, GREEDY, ROOMY)
    best = _cold(model, [*IDS, *(token.id for token in tokens)], ROOMY)[READ - 1 : -1]
    chosen = best[np.arange(len(tokens)), [token.id for token in tokens]]
    _close(chosen, best.max(-1), "the reply is not a cold run's")
    if generator.outcome.finish != "length":
        raise No(f"the reply ends with {generator.outcome.finish}")
    return "yes"


def metrics(model: Any) -> str:
    """Entropy, varentropy and surprisal of a reply are the float64 formulas on a cold run's distribution."""
    tokens, _ = _reply(model, WARM, ROOMY)
    ids = [token.id for token in tokens]
    logp = _cold(model, [*IDS, *ids], ROOMY)[READ - 1 : -1]
    p = np.exp(logp)
    entropy = -(p * logp).sum(-1)
    varentropy = (p * (logp + entropy[:, None]) ** 2).sum(-1)
    expected = np.stack([entropy, varentropy, -logp[np.arange(len(ids)), ids]], -1)
    got = np.array([[token.entropy, token.varentropy, token.surprisal] for token in tokens])
    _close(got, expected, "the numbers are not a cold run's")
    return "yes"


def attention(model: Any) -> str:
    """Each token's attention is read: heads' entropies within their bounds, positions among those that it may see."""
    probe = Probe(model)
    if probe.reason:
        raise No("no attention layers, or not computed by mlx-lm's common function")
    generator = TokenGenerator(
        **_parts(model, GREEDY, CAPACITY), seed=1, limits=Limits(max_tokens=3), probe=probe, attention=True
    )
    for token in generator.generate(IDS):
        if token.attention is None or not token.attention.layers:
            raise No("its attention function is not called while decoding")
        at = READ + token.index - 1
        seen = set(np.flatnonzero(oracle.visible(at + 1, CAPACITY, KEEP)[at]))
        bound = np.log(CAPACITY + 1)
        if not all(0 <= entropy <= bound for entropy in token.attention.layers):
            raise No("entropies are out of bounds")
        weights = [place.weight for place in token.attention.top]
        if sum(weights) > 1 + 1e-5 or not seen.issuperset(place.position for place in token.attention.top):
            raise No("weights on positions that it does not see")
    return "yes"


def rotates(model: Any) -> str:
    """Beyond C, tokens read in chunks and one by one see exactly the tokens that they should."""
    limits = CacheLimits(CAPACITY, KEEP)
    cache = SessionCache(model, limits)
    cache.prepare(IDS)
    rows: list[mx.array] = []
    for _ in cache.prefill(IDS[: READ // 2 + 7], step=7, logits=lambda out: rows.append(out[0])):
        pass
    for token in IDS[READ // 2 + 7 :]:
        rows.append(model(mx.array([[token]]), cache=cache.layers)[0])
    got = oracle.logprobs(mx.concatenate(rows))
    _close(got, _cold(model, IDS, CAPACITY), "what it sees depends on how the tokens came")
    bounded = sum(any(isinstance(part, RotatingLayer) for part in kv.flat([layer])) for layer in cache.layers)
    if bounded == 0:
        return "needs not"
    seen_apart = np.abs(_cold(model, IDS, CAPACITY) - _cold(model, IDS, ROOMY)).max()
    assert seen_apart > 10 * TOLERANCE, "the tiny model does not look far enough back for this check to tell anything"
    return "yes" if bounded == len(cache.layers) else f"yes ({bounded} of {len(cache.layers)} layers)"


def rewinds(model: Any) -> str:
    """After an edit in the middle the cache goes back and the rest is read as in a cold run; rotated or not."""
    return "{} / {}".format(*(_rewind(model, capacity) for capacity in (ROOMY, CAPACITY)))


def _rewind(model: Any, capacity: int) -> str:
    cache = SessionCache(model, CacheLimits(capacity, KEEP, way=8))
    cache.prepare(IDS)
    for _ in cache.prefill(IDS, step=7):
        pass
    edited = [*IDS[:30], *IDS[:12]]
    plan = cache.prepare(edited)
    rows: list[mx.array] = []
    for _ in cache.prefill(edited[plan.reused :], step=5, logits=lambda out: rows.append(out[0])):
        pass
    got = oracle.logprobs(mx.concatenate(rows))
    _close(got, _cold(model, edited, capacity)[plan.reused :], "after going back the answer is not a cold run's")
    if plan.reused == 0:
        raise No("everything is read again")
    return plan.method


def batches(model: Any) -> str:
    """Candidates, rotated, are the replies of their seeds alone, greedy and drawn."""
    for sampling, seeds in ((GREEDY, (1, 2)), (WARM, (1, 2, 3))):
        together = CandidateGenerator(**_parts(model, sampling, CAPACITY), seeds=seeds, limits=Limits(max_tokens=8))
        replies: list[list[Token]] = [[] for _ in seeds]
        for row, token in together.generate(IDS):
            replies[row].append(token)
        for seed, reply in zip(seeds, replies, strict=True):
            alone, _ = _reply(model, sampling, CAPACITY, seed, 8)
            _same(reply, alone, "a reply in a batch differs from the same one alone")
    return "yes"


def speculates(model: Any) -> str:
    """Right and wrong guesses, rotated, change nothing, greedy and drawn."""
    for sampling in (GREEDY, WARM):
        expected, _ = _reply(model, sampling, CAPACITY, 1, 14)
        generator = SpeculativeGenerator(
            **_parts(model, sampling, CAPACITY),
            seed=1,
            limits=Limits(max_tokens=14),
            drafter=_Prophet([token.id for token in expected]),
        )
        _same(list(generator.generate(IDS)), expected, "a checked guess differs from the plain reply")
        if not 0 < generator.accepted < generator.drafted:
            raise No("guesses are not checked")
    return "yes"


@dataclass
class _Prophet:
    """Guesses the reply that will come, every fifth token wrong."""

    reply: list[int]

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        places = range(index, min(index + most, len(self.reply)))
        return [(self.reply[place] + (place % 5 == 4)) % VOCAB for place in places]


#: Column of the table to its check.
CHECKS: dict[str, Callable[[Any], str]] = {
    "chats": chats,
    "metrics": metrics,
    "attention": attention,
    "rotates": rotates,
    "rewinds": rewinds,
    "candidates": batches,
    "speculates": speculates,
}


def _parts(model: Any, sampling: Sampling, capacity: int) -> dict[str, Any]:
    cache = SessionCache(model, CacheLimits(capacity, KEEP))
    cache.prepare(IDS)
    for _ in cache.prefill(IDS[:-1], step=16):
        pass
    config = Standard().configure(sampling, ModelFacts(VOCAB))
    return {"model": model, "cache": cache, "tokenizer": Letters(), "sampler": Standard(), "config": config}


def _reply(
    model: Any, sampling: Sampling, capacity: int, seed: int = 1, length: int = 10
) -> tuple[list[Token], TokenGenerator]:
    generator = TokenGenerator(**_parts(model, sampling, capacity), seed=seed, limits=Limits(max_tokens=length))
    return list(generator.generate(IDS)), generator


def _cold(model: Any, ids: list[int], capacity: int) -> np.ndarray:
    return cold.logprobs(model, ids, capacity, KEEP)


def _same(got: list[Token], expected: list[Token], reason: str) -> None:
    if [token.id for token in got] != [token.id for token in expected]:
        raise No(reason)
    numbers = [[[token.entropy, token.surprisal] for token in tokens] for tokens in (got, expected)]
    _close(np.array(numbers[0]), np.array(numbers[1]), reason)


def _close(got: np.ndarray, expected: np.ndarray, reason: str) -> None:
    if got.shape != expected.shape or not np.abs(got - expected).max() < TOLERANCE:
        raise No(reason)
