"""The adaptive sampler: how a token is drawn depends on how unsure the model is, and in which way.

The idea and the numbers are those of entropix (xjdr 2024). Entropy H and varentropy V are placed between their low
and high thresholds, h and v in [0, 1], and four corners say what to do:

    argmax     h = 0, v = 0     sure: the likeliest token
    ask        h = 1, v < 1/2   unsure between many tokens that are alike: insert the model's "wait" token, once
    hotter     the same place   where there is no such token or it was used: raise the temperature
    explore    h < 1, v = 1     a few strong candidates and a long tail: raise temperature and k
    resample   h = 1, v = 1     lost: hotter still, the first draw is masked and one more is drawn
    blend      anywhere else    temperature, k and p go over continuously from corner to corner

Attention statistics of the last layer (how spread out the heads are, how much they differ, how large the scores are)
move temperature, k and p within each corner as in entropix; they are squashed to [0, 1) by x / (1 + x), since their
scale differs from model to model. Without them (the family does not allow it, or ``attention = false``) each counts
as one half.

The states are names for corners of the (H, V) plane and no more: V is 0 for an exact choice between two, and "high V"
does not mean "two options". Whether any of it helps is measured in docs/sampling.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import mlx.core as mx
import msgspec

from chatapp.engine import metrics
from chatapp.engine.samplers import filters, options, thresholds
from chatapp.engine.samplers.base import AttentionScores, Doubt, ModelFacts, doubt, step_key
from chatapp.engine.samplers.standard import Penalties, standard_config
from chatapp.engine.samplers.thresholds import Levels
from chatapp.errors import UsageError
from chatapp.protocol import Sampling

_ARGMAX, _ASK, _HOTTER, _EXPLORE, _RESAMPLE, _BLEND = range(6)

_LEVELS = ("low_entropy", "high_entropy", "low_varentropy", "high_varentropy")
_OPTIONS = {*_LEVELS, "low_percentile", "high_percentile", "ask", "attention", "penalty_context"}

#: Temperature of each corner over the base temperature, before attention moves it.
_SURE, _UNSURE, _EXPLORING, _LOST = 0.3, 1.3, 1.2, 2.0

_FEWEST, _LEAST_P = 5, 0.5


@dataclass(frozen=True)
class AdaptiveConfig:
    """Options of `Adaptive`.

    Attributes:
        temperature, top_k, top_p: The base that the corners move away from.
        levels: Thresholds of H and V.
        ask: Id of the token to insert; None for none.
        attention: Use attention statistics where they can be had.
        penalties: As for the standard sampler.
    """

    temperature: float = 0.666
    top_k: int = 27
    top_p: float = 0.9
    min_p: float = 0.0
    levels: Levels = field(default_factory=Levels)
    ask: int | None = None
    attention: bool = True
    penalties: Penalties = field(default_factory=Penalties)


@dataclass(frozen=True)
class AdaptiveState:
    """Where a generation stands.

    Attributes:
        seeds: One for each row.
        index: Place of the next token in the reply.
        asked: Whether a row used its "wait" token, bool, shape ``(rows,)``.
        histograms: Of the tokens so far (`thresholds.count`).
    """

    seeds: tuple[int, ...]
    index: int
    asked: mx.array
    histograms: mx.array


class _Place(NamedTuple):
    """Where each row is between its thresholds: h and v in [0, 1], shape ``(rows, 1)``."""

    h: mx.array
    v: mx.array


class Adaptive:
    """The `EntropySampler` named ``adaptive``."""

    states: tuple[str, ...] = ("argmax", "ask", "hotter", "explore", "resample", "blend")

    def configure(self, sampling: Sampling, model: ModelFacts) -> AdaptiveConfig:
        """See `EntropySampler.configure`."""
        options.known(sampling.options, _OPTIONS, "adaptive")
        if sampling.temperature == 0:
            raise UsageError("The sampler adaptive needs a temperature above 0; for greedy decoding take standard.")
        base = AdaptiveConfig()
        common = standard_config(
            msgspec.structs.replace(
                sampling,
                temperature=base.temperature if sampling.temperature is None else sampling.temperature,
                top_k=sampling.top_k or base.top_k,
                top_p=base.top_p if sampling.top_p is None else sampling.top_p,
            ),
            model,
        )
        return AdaptiveConfig(
            temperature=common.temperature,
            top_k=common.top_k,
            top_p=common.top_p,
            min_p=common.min_p,
            levels=_levels(sampling.options),
            ask=_ask(sampling.options.get("ask"), model),
            attention=_switch("attention", sampling.options.get("attention"), base.attention),
            penalties=common.penalties,
        )

    def start(self, cfg: AdaptiveConfig, seeds: tuple[int, ...], index: int = 0) -> AdaptiveState:
        """See `EntropySampler.start`."""
        rows = len(seeds)
        return AdaptiveState(seeds, index, mx.zeros((rows,), mx.bool_), thresholds.empty(rows))

    def lookback(self, cfg: AdaptiveConfig) -> int:
        """See `EntropySampler.lookback`."""
        return cfg.penalties.lookback

    def wants_scores(self, cfg: AdaptiveConfig) -> bool:
        """See `EntropySampler.wants_scores`."""
        return cfg.attention

    def __call__(
        self,
        logits: mx.array,
        scores: AttentionScores | None,
        history: mx.array,
        cfg: AdaptiveConfig,
        state: AdaptiveState,
    ) -> tuple[mx.array, Doubt, AdaptiveState]:
        """See `EntropySampler.__call__`."""
        raw = metrics.spread(logits)
        place = _place(raw, thresholds.current(cfg.levels, state.histograms))
        code = _state(place, state.asked, cfg.ask)
        adjusted = cfg.penalties.apply(logits.astype(mx.float32), history)
        ids, drawn_from = _candidates(adjusted, place, scores, cfg)

        noise = filters.uniforms([step_key(seed, state.index) for seed in state.seeds], 4)
        first = filters.draw(drawn_from, noise[:, :2])
        second = filters.draw(_without(drawn_from, first), noise[:, 2:])
        chosen = mx.where(code == _RESAMPLE, second, mx.where(code == _ARGMAX, 0, first))
        token = mx.take_along_axis(ids, chosen[:, None].astype(mx.uint32), axis=-1)[:, 0]
        sampled = mx.where(code == _RESAMPLE, _second_entropy(drawn_from), metrics.entropy(drawn_from))
        sampled = mx.where(code == _ARGMAX, 0.0, sampled)
        if cfg.ask is not None:
            token = mx.where(code == _ASK, mx.array(cfg.ask, token.dtype), token)
            sampled = mx.where(code == _ASK, 0.0, sampled)
        following = replace(
            state,
            index=state.index + 1,
            asked=state.asked | (code == _ASK),
            histograms=thresholds.count(state.histograms, raw.entropy, raw.varentropy),
        )
        return token, doubt(raw, logits, token, sampled, code), following


def _place(raw: metrics.Spread, levels: mx.array) -> _Place:
    numbers = mx.stack([raw.entropy, raw.varentropy], axis=1)
    low, high = levels[..., 0], levels[..., 1]
    part = mx.clip((numbers - low) / mx.maximum(high - low, 1e-6), 0.0, 1.0)
    return _Place(part[:, :1], part[:, 1:])


def _state(place: _Place, asked: mx.array, ask: int | None) -> mx.array:
    """What each row does, uint32, shape ``(rows,)``."""
    h, v = place.h[:, 0], place.v[:, 0]
    unsure = mx.array(_HOTTER) if ask is None else mx.where(asked, _HOTTER, _ASK)
    code = mx.where((h == 0) & (v == 0), _ARGMAX, _BLEND)
    code = mx.where((h == 1) & (v < 0.5), unsure, code)
    code = mx.where((h < 1) & (v == 1), _EXPLORE, code)
    return mx.where((h == 1) & (v == 1), _RESAMPLE, code).astype(mx.uint32)


def _candidates(
    logits: mx.array, place: _Place, scores: AttentionScores | None, cfg: AdaptiveConfig
) -> tuple[mx.array, mx.array]:
    """Ids that may be drawn, likeliest first, and the logits to draw them with; both ``(rows, n)``."""
    h, v = place
    spread_out, differ, disagree, strong = _squashed(scores)
    temperature = cfg.temperature * (
        (1 - h) * (1 - v) * _SURE
        + h * (1 - v) * (_UNSURE + 0.2 * spread_out)
        + (1 - h) * v * (_EXPLORING + 0.3 * strong)
        + h * v * (_LOST + 0.5 * differ)
    )
    k = cfg.top_k * (1 + 0.5 * (1 - disagree) * (1 - h) * v)
    p = mx.maximum(cfg.top_p - 0.2 * spread_out * h * v, min(_LEAST_P, cfg.top_p)) if cfg.top_p < 1 else 1.0

    ids = metrics.top(logits, max(_FEWEST, -(-3 * cfg.top_k // 2)))
    candidates = mx.take_along_axis(logits, ids, axis=-1)
    rank = mx.arange(ids.shape[-1])
    candidates = mx.where(rank < mx.maximum(k, min(_FEWEST, cfg.top_k)), candidates, -mx.inf)
    weights = mx.softmax(candidates, axis=-1, precise=True)
    mass_above = mx.cumsum(weights, axis=-1, inclusive=False)
    candidates = mx.where(mass_above < p, candidates, -mx.inf)
    if cfg.min_p:
        candidates = filters.min_p(candidates, cfg.min_p)
    return ids, candidates / temperature


def _squashed(scores: AttentionScores | None) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Attention statistics brought to [0, 1), shape ``(rows, 1)``; one half where there are none."""
    if scores is None:
        half = mx.array([[0.5]])
        return half, half, half, half
    spread_out, differ, strong = (
        (value / (1 + value))[:, None] for value in (scores.entropy, scores.varentropy, scores.interaction)
    )
    return spread_out, differ, scores.agreement[:, None], strong


def _without(logits: mx.array, drawn: mx.array) -> mx.array:
    """Candidates without the one that was drawn; as they are where no other is left."""
    masked = mx.where(mx.arange(logits.shape[-1]) == drawn[:, None], -mx.inf, logits)
    return mx.where(masked.max(axis=-1, keepdims=True) == -mx.inf, logits, masked)


def _second_entropy(logits: mx.array) -> mx.array:
    """H of the second draw when the first is masked: P(j) = q_j (sum_i r_i - r_j) with r_i = q_i / (1 - q_i)."""
    q = mx.softmax(logits, axis=-1, precise=True)
    odds = q / mx.maximum(1 - q, 1e-7)
    second = q * (odds.sum(axis=-1, keepdims=True) - odds)
    # A single candidate is drawn again: its entropy is 0, as is that of the candidates it is compared with.
    alone = (q > 0).sum(axis=-1) == 1
    return mx.where(alone, 0.0, metrics.entropy(mx.log(mx.maximum(second, 1e-30))))


def _levels(given: dict[str, bool | int | float | str]) -> Levels:
    fixed: list[float | None] = [
        None if name not in given else options.number(name, given[name], 0.0, 0.0, 100.0) for name in _LEVELS
    ]
    prior = Levels().prior
    low, high, low_v, high_v = (level if level is not None else at for level, at in zip(fixed, prior, strict=True))
    if low >= high or low_v >= high_v:
        raise UsageError(
            f"A low threshold must be below its high one: entropy {low:g} and {high:g}, "
            f"varentropy {low_v:g} and {high_v:g}."
        )
    percentiles = (
        options.number("low_percentile", given.get("low_percentile"), 50.0, 0.0, 100.0) / 100,
        options.number("high_percentile", given.get("high_percentile"), 90.0, 0.0, 100.0) / 100,
    )
    if percentiles[0] >= percentiles[1]:
        raise UsageError("low_percentile must be below high_percentile.")
    return Levels((fixed[0], fixed[1], fixed[2], fixed[3]), prior, percentiles)


def _ask(value: bool | int | float | str | None, model: ModelFacts) -> int | None:
    """The id of the token to insert, given as an id or as text that is one token."""
    if value is None or value == "" or value is False:
        return None
    if isinstance(value, str):
        if model.tokenizer is None:
            raise UsageError("ask needs a token id, because there is no tokenizer.")
        ids: Any = model.tokenizer.encode(value, add_special_tokens=False)
        if len(ids) != 1:
            raise UsageError(f"ask must be a single token of the model, but {value!r} is {len(ids)} tokens.")
        return int(ids[0])
    return options.whole("ask", value, 0, 0, model.vocab_size - 1)


def _switch(name: str, value: bool | int | float | str | None, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, not {value!r}.")
    return value
