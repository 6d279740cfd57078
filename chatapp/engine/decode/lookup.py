"""Prompt lookup: guesses that the text goes on as it did the last time the latest tokens came up.

Needs no second model, and guesses well where a reply repeats its prompt: in summaries, edits, code (Saxena 2023,
"Prompt Lookup Decoding"; Yang et al. 2023, arXiv:2304.04487).
"""

from __future__ import annotations

from collections.abc import Sequence

#: Runs of so many tokens are looked up, the longest first. A single token says too little.
_LONGEST, _SHORTEST = 4, 2


class LookupDrafter:
    """Drafts from an index of the n-grams of the text so far; made for one text that only grows."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def propose(self, ids: Sequence[int], index: int, most: int) -> list[int]:
        """See `chatapp.engine.decode.speculative.Drafter.propose`."""
        self._learn(ids)
        for length in range(_LONGEST, _SHORTEST - 1, -1):
            end = self._ends.get(tuple(ids[-length:]))
            if end is not None:
                return list(ids[end : end + most])
        return []

    def _learn(self, ids: Sequence[int]) -> None:
        """Indexes where each n-gram ended last, those that end with the text itself left out."""
        for end in range(self._indexed + 1, len(ids)):
            for length in range(_SHORTEST, min(_LONGEST, end) + 1):
                self._ends[tuple(ids[end - length : end])] = end
        self._indexed = max(self._indexed, len(ids) - 1)
