"""Metrics of text that was given rather than sampled: a file's, and a prompt's while it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from chatapp.engine import scoring
from chatapp.engine.loading import LoadedModel
from chatapp.engine.reply import Reply
from chatapp.engine.scoring import Scorer, Totals
from chatapp.engine.template import Rendered, Template
from chatapp.errors import UsageError
from chatapp.protocol import Score, Scored, ScoreEnded
from chatapp.tokens import Token


def score_text(request: Score, loaded: LoadedModel, template: Template, reply: Reply) -> None:
    """Answers `Score`.

    Raises:
        UsageError: There is no token whose prediction could be scored.
    """
    ids = template.encode_text(request.text)
    if not ids:
        raise UsageError("There is nothing to score: the text is empty.")
    if len(ids) == 1:
        raise UsageError(
            "There is nothing to score: the text is a single token, and a text's first token is not predicted."
        )
    totals = Totals()
    for records in scoring.score(
        loaded.model,
        loaded.tokenizer,
        ids,
        context=loaded.context,
        alternatives=request.alternatives,
        cancelled=reply.cancelled,
    ):
        totals.add(records)
        reply.send(Scored(request.request, tuple(records)))
    reply.send(
        ScoreEnded(
            request.request,
            tokens=totals.tokens,
            perplexity=totals.perplexity,
            mean_entropy=totals.mean_entropy,
            mean_varentropy=totals.mean_varentropy,
            finish="stop" if totals.tokens == len(ids) else "cancelled",
        )
    )


class PromptScores:
    """Scores the part of a prompt that is read, and sends the records of each turn.

    Of a prompt whose beginning is in the cache already, the first token that is read has no record: what the model
    expected there was not kept.
    """

    def __init__(self, loaded: LoadedModel, rendered: Rendered, reused: int, alternatives: int, reply: Reply) -> None:
        self._spans = rendered.spans
        self._reply = reply
        self.scorer = Scorer(
            loaded.tokenizer, rendered.ids[reused:], first=reused, unscored=min(reused, 1), alternatives=alternatives
        )

    def send(self) -> None:
        """Sends what was scored since the last call."""
        for turn, tokens in _by_turn(self.scorer.take(), self._spans):
            self._reply.send(Scored(self._reply.request, tokens, turn))


def _by_turn(records: Sequence[Token], spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Records of each turn, numbered from the turn's beginning; those of the template's own tokens are left out."""
    for turn, (first, end) in enumerate(spans):
        tokens = tuple(
            msgspec.structs.replace(token, index=token.index - first) for token in records if first <= token.index < end
        )
        if tokens:
            yield turn, tokens
