"""A smaller model of the same vocabulary drafts for a larger one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import mlx.core as mx

from chatapp.engine.cache.ladder import common
from chatapp.engine.cache.saved import Mark
from chatapp.engine.cache.session import SessionCache
from chatapp.engine.decode import step as steps
from chatapp.engine.decode.gain import LONGEST_DRAFT, Costs, Odds, best_length
from chatapp.engine.samplers.base import EntropySampler

Config = TypeVar("Config")
State = TypeVar("State")

#: Expected of a draft model before anything was seen of it.
_CHANCE = 0.7

#: Where guesses do not pay, one token is guessed now and then to see whether they would: at least every so many.
_LONGEST_PAUSE = 64


class ModelDrafter(Generic[Config, State]):
    """Drafts with a smaller model.

    It draws with the sampler and the random keys of the model that checks: where the two models' distributions are
    close, the same random numbers mostly lead to the same token. How much it guesses follows from how often it was
    right. Where that does not pay it pauses, longer after each wrong guess; one that never
    could pay does not guess.

    Args:
        model: An mlx-lm model.
        cache: Its own cache; kept from reply to reply, it need not read the conversation again.
        sampler, config, seed, same: Those of the generator that checks.
        costs: What guessing takes.
    """

    def __init__(
        self,
        model: Any,
        cache: SessionCache,
        sampler: EntropySampler[Config, State],
        config: Config,
        seed: int,
        same: Callable[[mx.array], mx.array] = lambda ids: ids,
        costs: Costs | None = None,
    ) -> None:
        self._model = model
        self._cache = cache
        self._sampler = sampler
        self._config = config
        self._seed = seed
        self._same = same
        self._costs = costs or Costs()
        self._place: tuple[Mark, int] | None = None
        self._odds = Odds(_CHANCE)
        self._pause = 1
        #: The length of the text from which on it is to be tried again, while guesses do not pay.
        self._again = 0
        self._hopeless = best_length(lambda place: 1.0, self._costs, LONGEST_DRAFT) == 0

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """See `chatapp.engine.decode.speculative.Drafter.propose`."""
        if self._hopeless or len(ids) < self._again:
            return []
        length = self._length(most)
        if not length:
            self._again = len(ids) + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            length = 1
        self._rewind(ids)
        rest = ids[len(self._cache.tokens) :]
        for _ in self._cache.prefill(rest[:-1]):
            pass
        self._place = self._cache.mark(length)
        return self._draw(ids, index, length)

    def resting(self, ids: Sequence[int], most: int) -> bool:
        """See `chatapp.engine.decode.speculative.Drafter.resting`."""
        return self._hopeless or len(ids) + 1 < self._again

    def learn(self, drafted: int, accepted: int) -> None:
        """See `chatapp.engine.decode.speculative.Drafter.learn`."""
        for place in range(min(accepted + 1, drafted)):
            self._odds.note(place < accepted)
        if self._length(drafted):
            self._again, self._pause = 0, 1
        elif accepted:
            self._pause = max(1, self._pause // 4)  # so it comes back soon where more than a third is right

    def _length(self, most: int) -> int:
        return best_length(lambda place: self._odds.chance, self._costs, most)

    def _rewind(self, ids: Sequence[int]) -> None:
        """Takes wrong guesses out of the cache, or brings it to another text."""
        cache = self._cache
        held = common(cache.tokens, ids[:-1])
        if held == len(cache.tokens):
            return
        if self._place is not None and held >= self._place[1]:
            cache.rollback(self._place, held - self._place[1])
        else:
            cache.prepare(ids, cache.keep)

    def _draw(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        lookback = self._sampler.lookback(self._config)
        history = mx.array([ids[-lookback:] if lookback else []], mx.uint32)
        state = self._sampler.start(self._config, (self._seed,), index)
        token = mx.array([ids[-1]], mx.uint32)
        drawn: list[mx.array] = []
        for _ in range(most):
            logits = self._model(token[:, None], cache=self._cache.layers)[:, -1, :]
            token, _, state = self._sampler(logits, None, history, self._config, state)
            history = steps.extend(history, token, lookback)
            drawn.append(token)
        guessed: list[int] = self._same(mx.concatenate(drawn)).tolist()  # pyright: ignore[reportAssignmentType]
        self._cache.read([ids[-1], *guessed[:-1]])
        return guessed
