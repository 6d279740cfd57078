"""A message of the transcript and what was derived from it, as far as somebody has looked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chatapp.tokens import Token
from chatapp.ui.transcript.blocks import THINK, ThinkTags
from chatapp.ui.transcript.layout import MessageLayout, guess_rows
from chatapp.ui.transcript.model import MessageView, Rereadable, TokenMap


@dataclass(slots=True)
class Shape:
    """What the layouts of all messages depend on.

    Attributes:
        width: Cells in a row.
        tags: The strings around a reasoning part.
    """

    width: int
    tags: ThinkTags = THINK


@dataclass(slots=True)
class Entry:
    """A message and what was derived from it.

    Attributes:
        shape: Shared by all messages.
        version: Changes whenever something shown changes.
        entropy_sum, entropy_peak, entropy_peak_at: Over ``tokens``, in nats, once these were looked at.
    """

    view: MessageView
    content: str
    shape: Shape
    folded: bool
    version: int = 0
    entropy_sum: float = 0.0
    entropy_peak: float = 0.0
    entropy_peak_at: int = 0
    rule_row: int | None = None
    _layout: MessageLayout | None = None
    _map: TokenMap | None = None

    @property
    def id(self) -> str:
        return self.view.id

    @property
    def layout(self) -> MessageLayout:
        """Made when it is first asked for, which may change the ``height``."""
        self.begin()
        assert self._layout is not None
        return self._layout

    @property
    def height(self) -> int:
        """Rows of the body; a guess as far as it was not laid out."""
        if self._layout is None:
            return guess_rows(self.content, 0, len(self.content), self.shape.width)
        return self._layout.height

    def begin(self) -> bool:
        """Makes the layout; False where there is one."""
        if self._layout is not None:
            return False
        self._layout = MessageLayout(self.content, self.shape.width, folded=self.folded, tags=self.shape.tags)
        return True

    def fit(self) -> None:
        """The width has changed."""
        if self._layout is not None:
            self._layout.set_width(self.shape.width)
        self.version += 1

    def lay_out_anew(self) -> None:
        """The blocks have changed."""
        self._layout = None
        self.version += 1

    @property
    def map(self) -> TokenMap:
        """Made when it is first asked for: of most messages of a long conversation it never is."""
        if self._map is None:
            self._map = TokenMap(self.view.content, self.view.tokens)
            self.entropy_sum = self.entropy_peak = 0.0
            self.entropy_peak_at = 0
            self.count(self._map.tokens, 0)
        return self._map

    def forget(self) -> None:
        """Gives back the memory of rows and records, which are made and read again when somebody looks."""
        if self.view.streaming or self.content is not self.view.content:
            return  # the tokens that were appended are here only
        self._map = None
        if self._layout is not None:
            self._layout.forget()
        if isinstance(self.view.tokens, Rereadable):
            self.view.tokens.forget()

    @property
    def tokens(self) -> Sequence[Token]:
        return self.map.tokens

    def has_tokens(self, tokens: Sequence[Token]) -> bool:
        """Whether these are the message's tokens; no records are read to compare with some that nobody looked at."""
        return tokens is self.view.tokens if self._map is None else _same(self.tokens, tokens)

    @property
    def mean_entropy(self) -> float | None:
        """Mean entropy of the tokens in nats, None without tokens."""
        return self.entropy_sum / len(self.map.tokens) if self.map.tokens else None

    def count(self, tokens: Iterable[Token], first: int) -> None:
        """Adds tokens to the sums; ``first`` is the index of the first of them."""
        for index, token in enumerate(tokens, first):
            self.entropy_sum += token.entropy
            if token.entropy > self.entropy_peak or index == 0:
                self.entropy_peak, self.entropy_peak_at = token.entropy, index


def _same(one: Sequence[Token], other: Sequence[Token]) -> bool:
    """The records are the same (compared by identity first: token records are shared, not copied)."""
    return len(one) == len(other) and all(a is b or a == b for a, b in zip(one, other, strict=True))
