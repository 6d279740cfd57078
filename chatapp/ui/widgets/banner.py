"""A calm line above the transcript for what lasts: the engine is gone, saving fails, the file is someone else's."""

from __future__ import annotations

from textual.widgets import Static

from chatapp.text import visible


class Banner(Static):
    """Hidden while there is nothing to say."""

    def __init__(self) -> None:
        super().__init__(id="banner", markup=False)
        self.display = False
        self._sentence = ""

    def show(self, sentence: str) -> None:
        """Says a sentence, or with an empty one hides."""
        if sentence == self._sentence:
            return
        self._sentence = sentence
        self.display = bool(sentence)
        self.update(visible(sentence))
