"""One step of decoding: a token is drawn and measured in one graph, and read by the host in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import mlx.core as mx

from chatapp.engine import metrics
from chatapp.engine.attention import AttentionReading, Probe, Summary
from chatapp.engine.decode.text import TokenTexts
from chatapp.engine.samplers.base import AttentionScores, Doubt, EntropySampler
from chatapp.tokens import Alternative, Attended, Attention, Token

Config = TypeVar("Config")
State = TypeVar("State")


class Step(NamedTuple):
    """Arrays of a step that may not have been evaluated yet.

    Attributes:
        token: Drawn ids, shape ``(batch,)``, uint32.
        doubt: Their numbers.
        top_ids: The likeliest tokens, in any order, shape ``(batch, alternatives)``.
        top_logits: Their raw logits.
        attention: Where the query that led to it looked; None where that was not asked for.
    """

    token: mx.array
    doubt: Doubt
    top_ids: mx.array
    top_logits: mx.array
    attention: Summary | None = None

    def arrays(self) -> list[mx.array]:
        """All of them."""
        return [self.token, *self.doubt, self.top_ids, self.top_logits, *(self.attention or ())]


class Look(NamedTuple):
    """What one model call says of each row's next token.

    Attributes:
        logits: Shape ``(batch, vocab)``.
        scores: Attention statistics for the sampler; None where it wants none.
        attention: Those for the records; None where they were not asked for.
    """

    logits: mx.array
    scores: AttentionScores | None = None
    attention: Summary | None = None

    def rows(self, places: Sequence[int]) -> Look:
        """A row for each of ``places``."""
        index = mx.array(list(places))
        return Look(
            self.logits[index],
            AttentionScores(*(values[index] for values in self.scores)) if self.scores else None,
            Summary(*(values[index] for values in self.attention)) if self.attention else None,
        )


class Reading(NamedTuple):
    """One row of a step as plain numbers (see `Doubt`); ``top`` has ids and logprobs, likeliest first."""

    id: int
    entropy: float
    varentropy: float
    surprisal: float
    sampled_entropy: float
    state: int
    top: list[tuple[int, float]]
    attention: AttentionReading | None = None


def look(
    model: Any,
    ids: mx.array,
    layers: Sequence[Any],
    probe: Probe | None = None,
    scores: bool = False,
    summary: bool = False,
) -> Look:
    """Has the model read ids; nothing is evaluated.

    Args:
        model: An mlx-lm model.
        ids: Shape ``(batch, n)``.
        layers: Its cache.
        probe: Watches its attention.
        scores: The sampler wants attention statistics.
        summary: The records are to have them.
    """
    if probe is None:
        return Look(model(ids, cache=layers)[:, -1, :])
    with probe.watching():
        logits = model(ids, cache=layers)[:, -1, :]
    seen = Look(logits, probe.scores() if scores else None, probe.summary() if summary else None)
    probe.forget()
    return seen


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
        top_ids, top_logits = metrics.likeliest(logits, alternatives)
    else:
        top_ids, top_logits = mx.zeros((logits.shape[0], 0), mx.uint32), mx.zeros((logits.shape[0], 0))
    return Step(token.astype(mx.uint32), doubt, top_ids, top_logits), state


def launch(step: Step, before: Step | None = None) -> None:
    """Starts a step without waiting for it, and the numbers of the step before it.

    A step's own numbers start only with the next step, or when they are read. On a CPU, MLX lets the host run at most
    about 100 operations ahead of the device: numbers behind the vocabulary's matrix product would make the host wait
    for that, where it could prepare the next step meanwhile (measured: 4 of 60 ms).

    Args:
        step: Its token is started, and its attention statistics, which hold views of the cache's buffers: waiting
            longer with them would make the cache's next update copy those.
        before: The step that this one was fed by.
    """
    if before:
        mx.async_eval(before.arrays())  # apart: what is started together can be read only when all of it is done
    mx.async_eval([step.token, *(step.attention or ())])


def agree(launched: Sequence[Step], same: Callable[[mx.array], mx.array], pausing: bool) -> list[Step]:
    """Makes the drawn ids of some steps those of rank 0, in one go; nothing is evaluated.

    Args:
        launched: The steps.
        same: Gives rank 0's values of an integer array.
        pausing: A token's entropy decides whether the reply goes on, so it has to be rank 0's as well.
    """
    columns = [step.token for step in launched]
    if pausing:
        columns += [step.doubt.entropy.view(mx.uint32) for step in launched]
    if len(columns) == 1:
        return [launched[0]._replace(token=same(columns[0]))]
    shared = mx.split(same(mx.concatenate(columns)), len(columns))
    agreed = [step._replace(token=token) for step, token in zip(launched, shared, strict=False)]
    if not pausing:
        return agreed
    return [
        step._replace(doubt=step.doubt._replace(entropy=entropy.view(mx.float32)))
        for step, entropy in zip(agreed, shared[len(agreed) :], strict=True)
    ]


def read(step: Step, probe: Probe | None = None) -> list[Reading]:
    """Waits for a step and gives its rows; the only place where decoding meets the host.

    Args:
        step: A launched one.
        probe: Where attention is reported, what watched it.
    """
    mx.eval(step.arrays())
    arrays = (step.token, *step.doubt, step.top_ids, step.top_logits)
    columns: list[Any] = [array.tolist() for array in arrays]
    seen = _read_attention(step.attention) if step.attention else []
    if probe and probe.join:
        seen = probe.join(seen, len(step.token))
    attention = seen or [None] * len(step.token)
    return [
        Reading(*row, top=_logprobs(ids, logits, logsumexp), attention=looked)
        for *row, logsumexp, ids, logits, looked in zip(*columns, attention, strict=True)
    ]


def record(
    reading: Reading,
    index: int,
    text: str,
    states: tuple[str, ...],
    texts: TokenTexts,
    sequence: Sequence[int] = (),
) -> Token:
    """The record of a token, as it is sent, shown and saved.

    Args:
        reading: Its numbers.
        index: Its place in the reply.
        text: What it adds to the reply's text.
        states: The sampler's.
        texts: For alternatives and attended tokens.
        sequence: The ids that attended positions refer to.
    """
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
        attention=_attention(reading.attention, texts, sequence) if reading.attention else None,
    )


def extend(history: mx.array, token: mx.array, length: int) -> mx.array:
    """History of each row with a drawn token behind it, at most ``length`` long."""
    if length == 0:
        return history
    return mx.concatenate([history, token[:, None].astype(history.dtype)], axis=1)[:, -length:]


def _logprobs(ids: list[int], logits: list[float], logsumexp: float) -> list[tuple[int, float]]:
    """Ids with their logprobs in nats, likeliest first, equal ones by id."""
    likeliest = sorted(zip(logits, ids, strict=True), key=lambda pair: (-pair[0], pair[1]))
    return [(token, min(logit - logsumexp, 0.0)) for logit, token in likeliest]


def _read_attention(summary: Summary) -> list[AttentionReading]:
    columns: list[Any] = [array.tolist() for array in summary]
    return [
        AttentionReading(*row, top=list(zip(positions, weights, strict=True)))
        for *row, positions, weights in zip(*columns, strict=True)
    ]


def _attention(reading: AttentionReading, texts: TokenTexts, sequence: Sequence[int]) -> Attention:
    return Attention(
        entropy=reading.entropy,
        varentropy=reading.varentropy,
        agreement=reading.agreement,
        interaction=reading.interaction,
        layers=tuple(reading.layers),
        top=tuple(Attended(place, texts[sequence[place]], weight) for place, weight in reading.top),
    )
