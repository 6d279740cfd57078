"""What a sampler is: a pure function from logits to a token, with its configuration and state passed in.

Nothing is remembered between calls but in the state that is handed back, and all randomness comes from
`step_key`, so a generation can be drawn again from its seed, configuration and token ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeVar

import mlx.core as mx

from chatapp.engine import metrics
from chatapp.protocol import Sampling

Config = TypeVar("Config")
State = TypeVar("State")


class AttentionScores(NamedTuple):
    """Attention of the last query over valid keys, as `chatapp.engine.attention` measures it; shapes ``(batch,)``.

    Samplers see the last attention layer, whatever is reported for the screen: what is drawn must not depend on what
    is shown.

    Attributes:
        entropy: Mean over heads of the attention's entropy, in nats.
        varentropy: Variance over heads of those entropies, in nats².
        agreement: Mean distance of the heads from their mean, in [0, 1]; grows with disagreement.
        interaction: Mean absolute pre-softmax score.
    """

    entropy: mx.array
    varentropy: mx.array
    agreement: mx.array
    interaction: mx.array


class Doubt(NamedTuple):
    """The numbers of the tokens that a sampler drew, each of shape ``(batch,)``.

    Attributes:
        entropy: H of the raw distribution, in nats.
        varentropy: V of the raw distribution, in nats².
        surprisal: S of the drawn token under the raw distribution, in nats.
        sampled_entropy: H of the distribution that the token was drawn from, in nats; 0 for a greedy choice.
        state: What the sampler did: an index into its ``states``, uint32.
        logsumexp: Of the raw logits.
    """

    entropy: mx.array
    varentropy: mx.array
    surprisal: mx.array
    sampled_entropy: mx.array
    state: mx.array
    logsumexp: mx.array


@dataclass(frozen=True)
class ModelFacts:
    """What a sampler may need to know of a model when it is configured.

    Attributes:
        vocab_size: Length of the logits.
        tokenizer: mlx-lm's ``TokenizerWrapper`` or anything with ``encode``; None where there is none.
        protected: Ids that must never be made unlikely on purpose: end of turn and newline (used by XTC).
    """

    vocab_size: int
    tokenizer: Any = None
    protected: tuple[int, ...] = ()


class EntropySampler(Protocol[Config, State]):
    """Draws the next token of every row of a batch.

    Attributes:
        states: Names of what it can do; `Doubt.state` is an index into them. The empty name means plain sampling.
    """

    states: tuple[str, ...]

    def configure(self, sampling: Sampling, model: ModelFacts) -> Config:
        """Checks the options of a request.

        Raises:
            UsageError: An option is unknown or out of range; the sentence names it.
        """
        ...

    def start(self, cfg: Config, seeds: tuple[int, ...], index: int = 0) -> State:
        """State before the token at place ``index`` of a reply, one seed for each row of the batch."""
        ...

    def lookback(self, cfg: Config) -> int:
        """How many of the latest token ids it wants to see as ``history``."""
        ...

    def wants_scores(self, cfg: Config) -> bool:
        """Whether it uses attention scores where the model's family allows to measure them."""
        ...

    def __call__(
        self, logits: mx.array, scores: AttentionScores | None, history: mx.array, cfg: Config, state: State
    ) -> tuple[mx.array, Doubt, State]:
        """Draws one token for each row.

        Args:
            logits: The model's raw logits, shape ``(batch, vocab)``, any float type; not to be changed in place.
            scores: Attention statistics of the same step; None where they are not measured.
            history: The latest token ids, prompt included, oldest first, shape ``(batch, n)``, int32 or uint32.
            cfg: What `configure` returned.
            state: What `start` or the previous call returned.

        Returns:
            Token ids of shape ``(batch,)`` and type uint32, their numbers, and the state for the next call. All of
            it stays in the graph: a sampler does not evaluate arrays.
        """
        ...


def doubt(
    raw: metrics.Spread,
    logits: mx.array,
    token: mx.array,
    sampled_entropy: mx.array | None = None,
    state: mx.array | None = None,
) -> Doubt:
    """Puts together the numbers of drawn tokens.

    Args:
        raw: `metrics.spread` of the raw logits.
        logits: The raw logits, shape ``(batch, vocab)``.
        token: The drawn ids, shape ``(batch,)``.
        sampled_entropy: Of the distribution drawn from; None for a greedy choice.
        state: Index of what was done; None for the first of the sampler's states.
    """
    surprisal = metrics.surprisal(logits, token[:, None], raw.logsumexp)[:, 0]
    return Doubt(
        raw.entropy,
        raw.varentropy,
        surprisal,
        _zeros(token.size, mx.float32) if sampled_entropy is None else sampled_entropy,
        _zeros(token.size, mx.uint32) if state is None else state.astype(mx.uint32),
        raw.logsumexp,
    )


@cache
def _zeros(batch: int, dtype: mx.Dtype) -> mx.array:
    """Shape ``(batch,)``; made once, since every operation of a step counts."""
    return mx.zeros((batch,), dtype)


def step_key(seed: int, index: int, use: int = 0) -> mx.array:
    """The random key of one step.

    It depends on nothing but the seed and the place in the reply, so that a reply can be continued from its middle
    with the same draws. The mixing function is SplitMix64 (Steele, Lea & Flood 2014).

    Args:
        seed: Of the generation, 0 to 2**64 - 1.
        index: Place of the token in the reply, from 0.
        use: Tells several draws of one step apart.
    """
    mixed = (_mix(seed) + (index + 1) * 0x9E3779B97F4A7C15 + use * 0xD1B54A32D192ED03) & _MASK
    return mx.random.key(_mix(mixed))


_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
