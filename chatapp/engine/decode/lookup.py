"""Prompt lookup: guesses that the text goes on as it did the last time the latest tokens came up.

Needs no second model, and guesses well where a reply repeats its prompt: in summaries, edits, code (Saxena 2023,
"Prompt Lookup Decoding"; Yang et al. 2023, arXiv:2304.04487). Looking up is next to free, so a guess is made at every
token and compared with what came, whether or not it was checked by the model: it is checked where guesses after
matches as long have been right often enough to pay.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatapp.engine.decode.gain import Costs, Odds, best_length

#: Runs of so many tokens are looked up, the longest first. A single token says too little.
_LONGEST, _SHORTEST = 4, 2

#: A match is counted back no further: longer ones are hardly more often right.
_COUNTED = 31

#: Chances at first, for matches of 2 and 3 tokens, of 4 to 7, 8 to 15, and longer. The first is too small to pay: a
#: text that copies nothing is decoded as without lookup.
_CHANCES = (0.2, 0.6, 0.8, 0.9)


class LookupDrafter:
    """Drafts from an index of the n-grams of the text so far; made for one text that only grows.

    Args:
        costs: What guessing takes.
    """

    def __init__(self, costs: Costs | None = None) -> None:
        self._costs = costs or Costs()
        self._odds = [Odds(chance) for chance in _CHANCES]
        self._ends: dict[tuple[int, ...], int] = {}
        self._read = 0
        #: Where the text is taken to go on, and how many tokens before there equal the text's last ones (0: nowhere).
        self._source = self._match = 0

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """See `chatapp.engine.decode.speculative.Drafter.propose`."""
        self._follow(ids)
        if self._match < _SHORTEST:
            return []
        guess: list[int] = []
        for place in range(self._source, self._source + self._length(self._match, most)):
            guess.append(ids[place] if place < len(ids) else guess[place - len(ids)])
        return guess

    def resting(self, ids: Sequence[int], most: int) -> bool:
        """See `chatapp.engine.decode.speculative.Drafter.resting`."""
        self._follow(ids)
        return self._length(max(self._match + 1, _SHORTEST), most) == 0

    def learn(self, drafted: int, accepted: int) -> None:
        """Nothing: the text itself says what was right."""

    def _length(self, match: int, most: int) -> int:
        return best_length(lambda place: self._of(match + place).chance, self._costs, most)

    def _of(self, match: int) -> Odds:
        """The odds of a guess after so many equal tokens."""
        return self._odds[min(match, _COUNTED).bit_length() - 2]

    def _follow(self, ids: Sequence[int]) -> None:
        """Takes in what the text has grown by; of the prompt only the index is made."""
        if not self._read:
            for end in range(_SHORTEST, len(ids)):
                self._index(ids, end)
            self._extend(ids, len(ids))
        while self._read < len(ids):
            place = self._read
            if self._match >= _SHORTEST:
                right = ids[self._source] == ids[place]
                self._of(self._match).note(right)
                self._source, self._match = (self._source + 1, self._match + 1) if right else (0, 0)
            self._extend(ids, place + 1)

    def _extend(self, ids: Sequence[int], end: int) -> None:
        """Looks where the text up to ``end`` goes on: where it was followed so far, or where more tokens are equal."""
        for length in range(min(_LONGEST, end), _SHORTEST - 1, -1):
            found = self._ends.get(tuple(ids[end - length : end]))
            if found is not None:
                equal = _equal(ids, found, end)
                if equal > self._match:
                    self._source, self._match = found, equal
                break
        self._index(ids, end)
        self._read = end

    def _index(self, ids: Sequence[int], end: int) -> None:
        for length in range(_SHORTEST, min(_LONGEST, end) + 1):
            self._ends[tuple(ids[end - length : end])] = end


def _equal(ids: Sequence[int], one: int, other: int) -> int:
    """How many tokens before two places are the same, as far as is counted."""
    count = 0
    while count < min(one, _COUNTED) and ids[one - count - 1] == ids[other - count - 1]:
        count += 1
    return count
