"""One step of decoding: a token is drawn and measured in one graph, and read by the host in one go."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import mlx.core as mx

from chatapp.engine import metrics
from chatapp.engine.decode.text import TokenTexts
from chatapp.engine.samplers.base import AttentionScores, Doubt, EntropySampler
from chatapp.tokens import Alternative, Attention, Token

Config = TypeVar("Config")
State = TypeVar("State")


class Step(NamedTuple):
    """Arrays of a step that may not have been evaluated yet.

    Attributes:
        token: Drawn ids, shape ``(batch,)``, uint32.
        doubt: Their numbers.
        top_ids: The likeliest tokens, likeliest first, shape ``(batch, alternatives)``.
        top_logprobs: Theirs under the raw distribution, in nats.
    """

    token: mx.array
    doubt: Doubt
    top_ids: mx.array
    top_logprobs: mx.array

    def arrays(self) -> list[mx.array]:
        """All of them, for `mx.async_eval`: whoever waits for one has waited for all."""
        return [self.token, *self.doubt, self.top_ids, self.top_logprobs]


class Reading(NamedTuple):
    """One row of a step as plain numbers (see `Doubt`)."""

    id: int
    entropy: float
    varentropy: float
    surprisal: float
    sampled_entropy: float
    state: int
    top: list[tuple[int, float]]


def sample(
    logits: mx.array,
    scores: AttentionScores | None,
    history: mx.array,
    sampler: EntropySampler[Config, State],
    cfg: Config,
    state: State,
    alternatives: int,
) -> tuple[Step, State]:
    """Draws the next token of each row and measures it; nothing is evaluated.

    Args:
        logits: Raw logits, shape ``(batch, vocab)``.
        scores: Attention statistics, or None.
        history: The latest ids of each row, shape ``(batch, n)``.
        sampler: Draws the tokens.
        cfg: The sampler's configuration.
        state: The sampler's state before this step.
        alternatives: How many of the likeliest tokens to report.
    """
    token, doubt, state = sampler(logits, scores, history, cfg, state)
    if alternatives:
        ids = metrics.top(logits, alternatives)
        logprobs = metrics.logprob(logits, ids, doubt.logsumexp)
    else:
        ids, logprobs = mx.zeros((logits.shape[0], 0), mx.uint32), mx.zeros((logits.shape[0], 0))
    return Step(token.astype(mx.uint32), doubt, ids, logprobs), state


def read(step: Step) -> list[Reading]:
    """Waits for a step and gives its rows; the only place where decoding meets the host."""
    mx.eval(step.arrays())
    columns: list[Any] = [array.tolist() for array in (step.token, *step.doubt[:5])]
    top_ids: Any = step.top_ids.tolist()
    top_logprobs: Any = step.top_logprobs.tolist()
    return [
        Reading(*row, top=list(zip(ids, logprobs, strict=True)))
        for *row, ids, logprobs in zip(*columns, top_ids, top_logprobs, strict=True)
    ]


def record(
    reading: Reading,
    index: int,
    text: str,
    states: tuple[str, ...],
    texts: TokenTexts,
    attention: Attention | None = None,
) -> Token:
    """The record of a token, as it is sent, shown and saved."""
    return Token(
        index=index,
        id=reading.id,
        text=text,
        entropy=reading.entropy,
        varentropy=reading.varentropy,
        surprisal=reading.surprisal,
        sampled_entropy=reading.sampled_entropy,
        state=states[reading.state],
        top=tuple(Alternative(token, texts[token], logprob) for token, logprob in reading.top),
        attention=attention,
    )


def extend(history: mx.array, token: mx.array, length: int) -> mx.array:
    """History of each row with a drawn token behind it, at most ``length`` long."""
    if length == 0:
        return history
    return mx.concatenate([history, token[:, None].astype(history.dtype)], axis=1)[:, -length:]
