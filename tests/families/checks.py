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
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.records import Limits
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
#: How long a plain reply is, and one of several in a batch.
LENGTH, BATCHED = 14, 8
#: How far log-probabilities and numbers in nats may be from the cold run's. float32 sums in another order are off by
#: up to 1e-4 on these models; a forgotten or doubled token by 0.01 and more.
TOLERANCE = 5e-4

IDS = [int(token) for token in np.random.default_rng(2).integers(1, VOCAB, READ)]
GREEDY = Sampling(temperature=0.0)
WARM = Sampling(temperature=0.8)


class No(Exception):
    """It does not work, and why."""


class Subject:
    """A model that is checked; several checks compare with the same plain replies, which are decoded once.

    Attributes:
        model: An mlx-lm model.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._replies: dict[tuple[str, int, int], tuple[list[Token], TokenGenerator[Any, Any]]] = {}

    def reply(self, sampling: Sampling, capacity: int, seed: int = 1) -> tuple[list[Token], TokenGenerator[Any, Any]]:
        """A reply of `LENGTH` tokens by the plain loop. Greedy ones are the same for every seed."""
        key = (repr(sampling), capacity, seed if sampling.temperature else 0)
        if key not in self._replies:
            generator = TokenGenerator(**_parts(self.model, sampling, capacity), seed=seed, limits=_limits(LENGTH))
            self._replies[key] = (list(generator.generate(IDS)), generator)
        return self._replies[key]


def chats(subject: Subject) -> str:
    """A greedy reply takes, at each place, a token that is likeliest in a cold run."""
    tokens, generator = subject.reply(GREEDY, ROOMY)
    best = _cold(subject.model, [*IDS, *(token.id for token in tokens)], ROOMY)[READ - 1 : -1]
    chosen = best[np.arange(len(tokens)), [token.id for token in tokens]]
    _close(chosen, best.max(-1), "the reply is not a cold run's")
    if generator.outcome.finish != "length":
        raise No(f"the reply ends with {generator.outcome.finish}")
    return "yes"


def metrics(subject: Subject) -> str:
    """Entropy, varentropy and surprisal of a reply are the float64 formulas on a cold run's distribution."""
    tokens, _ = subject.reply(WARM, ROOMY)
    ids = [token.id for token in tokens]
    logp = _cold(subject.model, [*IDS, *ids], ROOMY)[READ - 1 : -1]
    p = np.exp(logp)
    entropy = -(p * logp).sum(-1)
    varentropy = (p * (logp + entropy[:, None]) ** 2).sum(-1)
    expected = np.stack([entropy, varentropy, -logp[np.arange(len(ids)), ids]], -1)
    got = np.array([[token.entropy, token.varentropy, token.surprisal] for token in tokens])
    _close(got, expected, "the numbers are not a cold run's")
    return "yes"


def attention(subject: Subject) -> str:
    """Each token's attention is read: heads' entropies within their bounds, positions among those that it may see."""
    probe = Probe(subject.model)
    if probe.reason:
        raise No("no attention layers, or not computed by mlx-lm's common function")
    generator = TokenGenerator(
        **_parts(subject.model, GREEDY, CAPACITY), seed=1, limits=Limits(max_tokens=3), probe=probe, attention=True
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


def rotates(subject: Subject) -> str:
    """Beyond C, tokens read in chunks and one by one see exactly the tokens that they should."""
    model = subject.model
    cache = SessionCache(model, CacheLimits(CAPACITY, KEEP))
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


def rewinds(subject: Subject) -> str:
    """After an edit in the middle the cache goes back and the rest is read as in a cold run; rotated or not."""
    return "{} / {}".format(*(_rewind(subject.model, capacity) for capacity in (ROOMY, CAPACITY)))


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


def batches(subject: Subject) -> str:
    """Candidates, rotated, are the replies of their seeds alone, greedy and drawn."""
    for sampling in (GREEDY, WARM):
        seeds = (1, 2)
        parts = _parts(subject.model, sampling, CAPACITY)
        together = CandidateGenerator(**parts, seeds=seeds, limits=_limits(BATCHED))
        replies: list[list[Token]] = [[] for _ in seeds]
        for row, token in together.generate(IDS):
            replies[row].append(token)
        for seed, reply in zip(seeds, replies, strict=True):
            alone, _ = subject.reply(sampling, CAPACITY, seed)
            _same(reply, alone[:BATCHED], "a reply in a batch differs from the same one alone")
    return "yes"


def speculates(subject: Subject) -> str:
    """Right and wrong guesses, rotated, change nothing, greedy and drawn."""
    for sampling in (GREEDY, WARM):
        expected, _ = subject.reply(sampling, CAPACITY)
        generator = SpeculativeGenerator(
            **_parts(subject.model, sampling, CAPACITY),
            seed=1,
            limits=_limits(LENGTH),
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

    def resting(self, ids: Sequence[int], most: int) -> bool:
        return False

    def learn(self, drafted: int, accepted: int) -> None:
        pass


#: Column of the table to its check.
CHECKS: dict[str, Callable[[Subject], str]] = {
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


def _limits(length: int) -> Limits:
    return Limits(max_tokens=length, alternatives=0)


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
