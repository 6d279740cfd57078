"""Plain sampling: the usual options, all optional, applied in one documented order.

Logit bias, then penalties; at temperature 0 the likeliest token is taken. Else top-k, top-p within those, min-p, XTC -
all of them on the distribution at temperature 1, as in mlx-lm and llama.cpp - and at last the temperature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mlx.core as mx

from chatapp.engine import metrics
from chatapp.engine.samplers import filters, options
from chatapp.engine.samplers.base import AttentionScores, Doubt, ModelFacts, doubt, step_key
from chatapp.errors import UsageError
from chatapp.protocol import Sampling

#: How many of the latest tokens the penalties look at, unless ``penalty_context`` says otherwise.
PENALTY_CONTEXT = 64


@dataclass(frozen=True)
class Penalties:
    """What changes the logits before anything is drawn.

    Attributes:
        repetition: 1 is off.
        presence, frequency: 0 is off.
        context: How many of the latest ids count, the prompt's included.
        bias: Added to the logits of ids.
    """

    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    context: int = PENALTY_CONTEXT
    bias: dict[int, float] | None = None

    @property
    def lookback(self) -> int:
        """How many ids of history are needed."""
        return self.context if (self.repetition, self.presence, self.frequency) != (1.0, 0.0, 0.0) else 0

    @property
    def active(self) -> bool:
        """Whether any logit may change."""
        return bool(self.lookback or self.bias)

    def apply(self, logits: mx.array, history: mx.array) -> mx.array:
        """Logits after bias and penalties; ``(batch, vocab)``."""
        if self.bias:
            logits = filters.add_bias(logits, self.bias)
        if self.lookback:
            recent = history[:, -self.context :]
            logits = filters.penalize(logits, recent, self.repetition, self.presence, self.frequency)
        return logits


@dataclass(frozen=True)
class StandardConfig:
    """Options of `Standard`. ``top_k`` 0, ``top_p`` 1, ``min_p`` 0 and ``xtc_probability`` 0 are off."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    penalties: Penalties = Penalties()
    protected: tuple[int, ...] = ()

    @property
    def filtered(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return bool(self.top_k or self.top_p < 1 or self.min_p or self.xtc_probability)


@dataclass(frozen=True)
class StandardState:
    """Where a generation stands: one seed for each row, and the place of the next token in the reply."""

    seeds: tuple[int, ...]
    index: int


class Standard:
    """The `EntropySampler` named ``standard``."""

    states: tuple[str, ...] = ("",)

    def configure(self, sampling: Sampling, model: ModelFacts) -> StandardConfig:
        """See `EntropySampler.configure`."""
        options.known(sampling.options, {"penalty_context"}, "standard")
        return standard_config(sampling, model)

    def start(self, cfg: StandardConfig, seeds: tuple[int, ...], index: int = 0) -> StandardState:
        """See `EntropySampler.start`."""
        return StandardState(seeds, index)

    def lookback(self, cfg: StandardConfig) -> int:
        """See `EntropySampler.lookback`."""
        return cfg.penalties.lookback

    def wants_scores(self, cfg: StandardConfig) -> bool:
        """See `EntropySampler.wants_scores`."""
        return False

    def __call__(
        self,
        logits: mx.array,
        scores: AttentionScores | None,
        history: mx.array,
        cfg: StandardConfig,
        state: StandardState,
    ) -> tuple[mx.array, Doubt, StandardState]:
        """See `EntropySampler.__call__`."""
        raw = metrics.spread(logits)
        adjusted = cfg.penalties.apply(logits.astype(mx.float32), history)
        following = replace(state, index=state.index + 1)
        if cfg.temperature == 0:
            token = mx.argmax(adjusted, axis=-1)
            return token, doubt(raw, logits, token), following
        ids, drawn_from = candidates(adjusted, cfg, state)
        place = filters.draw(drawn_from, filters.uniforms(keys(state), 2))
        token = place if ids is None else mx.take_along_axis(ids, place[:, None], axis=-1)[:, 0]
        untouched = cfg.temperature == 1 and not cfg.filtered and not cfg.penalties.active
        sampled_entropy = raw.entropy if untouched else metrics.entropy(drawn_from)
        return token, doubt(raw, logits, token, sampled_entropy), following


def candidates(logits: mx.array, cfg: StandardConfig, state: StandardState) -> tuple[mx.array | None, mx.array]:
    """What may be drawn: token ids (None for the whole vocabulary, in order) and the logits to draw with.

    With top-k only a few candidates are looked at from there on, so that the other filters cost next to nothing.
    """
    ids = None
    if 0 < cfg.top_k < logits.shape[-1]:
        # In their order, so that a last bit of difference in the logits does not change which token a number draws.
        ids = metrics.top(logits, cfg.top_k)
        logits = mx.take_along_axis(logits, ids, axis=-1)
    if cfg.top_p < 1:
        logits = filters.top_p(logits, cfg.top_p)
    if cfg.min_p:
        logits = filters.min_p(logits, cfg.min_p)
    if cfg.xtc_probability:
        chance = filters.uniforms(keys(state, use=1), 1)
        protected = _protected(ids, logits.shape[-1], cfg.protected)
        logits = filters.xtc(logits, chance, cfg.xtc_probability, cfg.xtc_threshold, protected)
    return ids, logits / cfg.temperature


def keys(state: StandardState, use: int = 0) -> list[mx.array]:
    """The random key of each row at this step."""
    return [step_key(seed, state.index, use) for seed in state.seeds]


def standard_config(sampling: Sampling, model: ModelFacts) -> StandardConfig:
    """Checks the options that all shipped samplers share.

    Raises:
        UsageError: One is out of range.
    """
    bias = sampling.logit_bias or None
    for token in bias or ():
        if not 0 <= token < model.vocab_size:
            raise UsageError(f"logit_bias names token {token}, but the model has tokens 0 to {model.vocab_size - 1}.")
    penalties = Penalties(
        repetition=options.number("repetition_penalty", sampling.repetition_penalty, 1.0, 0.01, 100),
        presence=options.number("presence_penalty", sampling.presence_penalty, 0.0, -100, 100),
        frequency=options.number("frequency_penalty", sampling.frequency_penalty, 0.0, -100, 100),
        context=options.whole("penalty_context", sampling.options.get("penalty_context"), PENALTY_CONTEXT, 1, 65_536),
        bias={token: options.number("logit_bias", value, 0.0) for token, value in bias.items()} if bias else None,
    )
    return StandardConfig(
        temperature=options.number("temperature", sampling.temperature, 1.0, 0, 100),
        top_k=options.whole("top_k", sampling.top_k, 0),
        top_p=options.number("top_p", sampling.top_p, 1.0, 0, 1) or 1.0,
        min_p=options.number("min_p", sampling.min_p, 0.0, 0, 1),
        xtc_probability=options.number("xtc_probability", sampling.xtc_probability, 0.0, 0, 1),
        xtc_threshold=options.number("xtc_threshold", sampling.xtc_threshold, 0.1, 0, 0.5),
        penalties=penalties,
        protected=model.protected,
    )


def _protected(ids: mx.array | None, width: int, protected: tuple[int, ...]) -> mx.array:
    """Which candidates XTC must leave alone, bool, ``(batch, width)`` or ``(1, width)``."""
    if not protected:
        return mx.zeros((1, width), mx.bool_)
    listed = mx.array(protected, mx.uint32)
    places = mx.arange(width, dtype=mx.uint32)[None] if ids is None else ids
    return (places[..., None] == listed).any(axis=-1)
