"""H, V and S of given tokens: a file's, or a prompt's as it is read.

Logits come a chunk at a time and are measured a few rows at a time, so memory grows neither with the length of the
text nor with vocabulary times length. The numbers are those of the decode loop: what the model would have said at
each place, and how surprised it is by what stands there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from chatapp.engine import metrics
from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.session import MIN_KEEP
from chatapp.engine.decode.text import Detokenizer, TokenTexts
from chatapp.tokens import Alternative, Token

#: How many earlier tokens each token of a long text is predicted from at most.
WINDOW = 2048

#: Logits measured at once, in numbers: 16 MiB in float32, and a handful of such arrays at a time.
_MEASURED = 1 << 22

#: Logits that one chunk of text may have, in numbers.
_CHUNK = 1 << 24


class Scorer:
    """Takes chunks of logits over a text, in order, and turns them into records.

    It fits `SessionCache.prefill` as ``logits``, so that a prompt can be scored while it is read. The first token it
    sees has no prediction: its entropy, varentropy and surprisal are 0, and it has no alternatives. Given tokens were
    not drawn: their ``sampled_entropy`` is 0.
    """

    def __init__(
        self, tokenizer: Any, ids: Sequence[int], first: int = 0, unscored: int = 0, alternatives: int = 0
    ) -> None:
        """Prepares for a text.

        Args:
            tokenizer: mlx-lm's ``TokenizerWrapper``.
            ids: The text, from the first token that is fed on; it may go on behind the last one that is fed.
            first: The ``index`` of the first token.
            unscored: How many tokens at the beginning get no record: context only.
            alternatives: How many of the likeliest tokens to report for each.
        """
        self._ids = list(ids)
        self._first = first
        self._alternatives = alternatives
        self._texts = TokenTexts(tokenizer)
        self._detokenizer = Detokenizer(tokenizer, ids[:unscored])
        self._done = unscored
        self._fed = 0
        self._ready: list[Token] = []
        if not unscored and self._ids:
            self._record(0.0, 0.0, 0.0, (), ())

    def __call__(self, logits: mx.array) -> None:
        """Measures the predictions of a chunk.

        Args:
            logits: Shape ``(1, n, vocab)``, of the next n tokens that were fed.
        """
        begin = self._fed
        self._fed += logits.shape[1]
        # The logits at place p predict token p + 1.
        places = range(max(begin, self._done - 1), min(self._fed, len(self._ids) - 1))
        rows = max(1, _MEASURED // logits.shape[-1])
        for start in range(places.start, places.stop, rows):
            stop = min(start + rows, places.stop)
            self._measure(logits[0, start - begin : stop - begin], self._ids[start + 1 : stop + 1])

    def take(self) -> list[Token]:
        """Records since the last call."""
        ready, self._ready = self._ready, []
        return ready

    def _measure(self, logits: mx.array, following: list[int]) -> None:
        raw = metrics.spread(logits)
        surprisal = metrics.surprisal(logits, mx.array(following)[:, None], raw.logsumexp)[:, 0]
        ids = metrics.top(logits, self._alternatives) if self._alternatives else mx.zeros((len(following), 0))
        logprobs = metrics.logprob(logits, ids, raw.logsumexp) if self._alternatives else ids
        arrays = (raw.entropy, raw.varentropy, surprisal, ids, logprobs)
        mx.eval(arrays)
        columns: list[Any] = [array.tolist() for array in arrays]
        for row in zip(*columns, strict=True):
            self._record(*row)

    def _record(
        self, entropy: float, varentropy: float, surprisal: float, ids: Sequence[int], logprobs: Sequence[float]
    ) -> None:
        token = self._ids[self._done]
        self._ready.append(
            Token(
                index=self._first + self._done,
                id=token,
                text=self._detokenizer.add(token),
                entropy=entropy,
                varentropy=varentropy,
                surprisal=surprisal,
                sampled_entropy=0.0,
                top=tuple(Alternative(i, self._texts[i], p) for i, p in zip(ids, logprobs, strict=True)),
            )
        )
        self._done += 1


@dataclass
class Totals:
    """What a scored text comes to; its first token has no prediction and is left out of all means.

    Attributes:
        tokens: How many records were added.
    """

    tokens: int = 0
    _entropy: float = 0.0
    _varentropy: float = 0.0
    _surprisal: float = 0.0

    def add(self, records: Iterable[Token]) -> None:
        """Adds records, in order."""
        for token in records:
            self.tokens += 1
            self._entropy += token.entropy
            self._varentropy += token.varentropy
            self._surprisal += token.surprisal

    @property
    def mean_entropy(self) -> float:
        """In nats."""
        return self._entropy / self._predicted

    @property
    def mean_varentropy(self) -> float:
        """In nats²."""
        return self._varentropy / self._predicted

    @property
    def perplexity(self) -> float:
        """The exponential of the mean surprisal."""
        return math.exp(self._surprisal / self._predicted)

    @property
    def _predicted(self) -> int:
        return max(1, self.tokens - 1)


def score(
    model: nn.Module,
    tokenizer: Any,
    ids: Sequence[int],
    *,
    context: int,
    window: int = WINDOW,
    alternatives: int = 0,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[list[Token]]:
    """Scores a text of any length, a chunk at a time.

    Each token is predicted from up to ``window`` - 1 tokens: the first `MIN_KEEP` of its stretch and those right
    before it, as in a chat whose cache is rotating with that capacity. A text of up to ``window`` tokens is therefore
    scored exactly as by one plain forward pass. Where the text is longer than the positions the model was trained on,
    it starts again from position 0, with half a window in front as context.

    Args:
        model: An mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        ids: The text.
        context: How many positions the model was trained on.
        window: How many tokens the cache holds.
        alternatives: How many of the likeliest tokens to report for each.
        cancelled: Asked between chunks.

    Yields:
        Records in order; all of them together are one for each id.
    """
    window = min(window, context)
    start = done = 0
    while done < len(ids):
        start = max(0, done - window // 2)
        stretch = list(ids[start : start + context])
        scorer = Scorer(tokenizer, stretch, start, done - start, alternatives)
        for _ in _read(model, stretch, window, scorer, cancelled):
            yield scorer.take()
        if cancelled():
            return
        done = start + len(stretch)


def _read(
    model: nn.Module, ids: list[int], window: int, scorer: Scorer, cancelled: Callable[[], bool]
) -> Iterator[None]:
    layers = kv.make(model, window, min(MIN_KEEP, window // 2))
    step = 32  # until the size of the vocabulary is known
    at = 0
    while at < len(ids) and not cancelled():
        logits = model(mx.array([ids[at : at + step]]), cache=layers)
        scorer(logits)
        mx.eval(kv.arrays(layers))
        at += step
        step = max(1, min(512, _CHUNK // logits.shape[-1]))
        del logits
        mx.clear_cache()
        yield
