"""All messages of the transcript as rows: which row shows what, without drawing anything.

A message takes a header row, its body, and a blank row. Where the model's memory ends, a rule takes one row more.
Bodies are laid out only where they are looked at (`Document.settle`) and, bit by bit, in idle time
(`Document.measure`); elsewhere their height is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from chatapp.tokens import Token
from chatapp.ui.transcript.blocks import THINK, ThinkTags
from chatapp.ui.transcript.entry import Entry, Shape
from chatapp.ui.transcript.lines import Line
from chatapp.ui.transcript.model import Memory, MessageView
from chatapp.ui.transcript.tops import Tops

#: Characters of the messages whose rows and records are kept after they were shown: some dozens of screens.
REMEMBERED = 100_000

RowKind = Literal["header", "body", "rule", "blank"]


class Row(NamedTuple):
    """What a row shows.

    Attributes:
        entry: Index of the message.
        inside: For a body row, its number in the message's body.
    """

    kind: RowKind
    entry: int
    inside: int = 0


class Document:
    """The messages shown, at one width."""

    def __init__(self, width: int, tags: ThinkTags = THINK) -> None:
        self._shape = Shape(width, tags)
        self.entries: list[Entry] = []
        self.memory = Memory()
        self._index: dict[str, int] = {}
        self._heights = Tops()
        self._unmeasured: list[int] = []
        self._seen: dict[str, Entry] = {}  # the one shown longest ago first

    @property
    def width(self) -> int:
        """Cells in a row."""
        return self._shape.width

    @property
    def tags(self) -> ThinkTags:
        """The strings around a reasoning part."""
        return self._shape.tags

    # -- content -------------------------------------------------------------------------------------------------

    def set_messages(self, messages: Sequence[MessageView]) -> None:
        """Shows these messages; what was laid out of a message that is unchanged is kept."""
        old = {entry.id: entry for entry in self.entries}
        self.entries = [self._entry(view, old.get(view.id)) for view in messages]
        self._index = {entry.id: index for index, entry in enumerate(self.entries)}
        self._seen = {id: entry for id, entry in self._seen.items() if self.get(id) is entry}
        self._changed_all()

    def _entry(self, view: MessageView, old: Entry | None) -> Entry:
        if old is not None and old.content == view.content and old.has_tokens(view.tokens):
            old.view, old.content = view, view.content
            old.version += 1
            return old
        folded = old.folded if old is not None else not view.streaming
        return Entry(view, view.content, self._shape, folded, version=old.version + 1 if old is not None else 0)

    def index_of(self, message_id: str) -> int:
        """Index of a message.

        Raises:
            KeyError: It is not shown.
        """
        return self._index[message_id]

    def get(self, message_id: str) -> Entry | None:
        """The message with this id, if it is shown."""
        index = self._index.get(message_id)
        return None if index is None else self.entries[index]

    def append(self, message_id: str, tokens: Sequence[Token]) -> int:
        """Appends tokens to a message's content; returns the first row that may look different."""
        index = self._index[message_id]
        entry = self.entries[index]
        first = len(entry.map.tokens)
        entry.content += "".join(token.text for token in tokens)
        entry.map.append(tokens)
        entry.count(tokens, first)
        entry.version += 1
        row = entry.layout.grow(entry.content)
        self._changed(index)
        return self.body_top(index) + row

    def replace(self, message_id: str, view: MessageView) -> None:
        """Shows something else in a message's place (its id may change too)."""
        index = self._index.pop(message_id)
        self.entries[index] = self._entry(view, self.entries[index])
        self._index[view.id] = index
        self._changed(index)

    def set_width(self, width: int) -> None:
        """Lays everything out anew (when it is next looked at) at another width."""
        if width == self.width:
            return
        self._shape.width = width
        for entry in self.entries:
            entry.fit()
        self._changed_all()

    def fold(self, message_id: str, folded: bool) -> None:
        """Folds or unfolds the reasoning parts of a message."""
        index = self._index[message_id]
        entry = self.entries[index]
        if entry.folded != folded:
            entry.folded = folded
            entry.lay_out_anew()
            self._changed(index)

    def has_thinking(self, message_id: str) -> bool:
        """There is a reasoning part in a message."""
        index = self._index[message_id]
        found = self.entries[index].layout.has_thinking
        self._changed(index)
        return found

    def set_tags(self, tags: ThinkTags) -> None:
        """Looks for reasoning parts between other strings."""
        self._shape.tags = tags
        for entry in self.entries:
            entry.lay_out_anew()
        self._changed_all()

    def set_memory(self, memory: Memory) -> None:
        """Says what the model still sees."""
        if memory == self.memory:
            return
        self.memory = memory
        for entry in self.entries:
            entry.version += 1
        self._changed_all()

    def evicted_before(self, index: int) -> int:
        """How many first characters of a message the model sees no more."""
        if self.memory.live_from is None:
            return 0
        message_id, char = self.memory.live_from
        border = self._index.get(message_id)
        if border is None or index > border or self.entries[index].id in self.memory.kept:
            return 0
        return char if index == border else len(self.entries[index].content)

    # -- rows ----------------------------------------------------------------------------------------------------

    @property
    def height(self) -> int:
        """Rows in all."""
        return self._heights.total

    def row(self, y: int) -> Row | None:
        """What is shown at a row; None beyond the end."""
        if not 0 <= y < self._heights.total:
            return None
        index = self._heights.find(y)
        inside = y - self._heights.top(index)
        entry = self.entries[index]
        if entry.rule_row is not None:
            if inside == entry.rule_row:
                return Row("rule", index)
            if inside > entry.rule_row:
                inside -= 1
        if inside == 0:
            return Row("header", index)
        if inside > entry.height:
            return Row("blank", index)
        return Row("body", index, inside - 1)

    def top(self, index: int) -> int:
        """First row of a message (its header's, or that of the rule above it)."""
        return self._heights.top(index)

    def bottom(self, index: int) -> int:
        """Row after the last one of a message."""
        return self._heights.top(index) + self._heights[index]

    def body_top(self, index: int) -> int:
        """First body row of a message."""
        return self.row_of(index, 0) if self.entries[index].rule_row is not None else self.top(index) + 1

    def row_of(self, index: int, char: int) -> int:
        """The row that shows a character of a message."""
        entry = self.entries[index]
        inside = entry.layout.row_of(char) + 1
        self._changed(index)
        if entry.rule_row is not None and entry.rule_row <= inside:
            inside += 1
        return self.top(index) + inside

    def line(self, row: Row) -> Line:
        """The line of a body row."""
        return self.entries[row.entry].layout.line(row.inside)

    # -- laying out ----------------------------------------------------------------------------------------------

    def settle(self, top: int, bottom: int) -> None:
        """Lays out what rows ``[top, bottom)`` show. Rows above ``top`` keep their places."""
        y = top
        while y < min(bottom, self._heights.total):
            row = self.row(y)
            if row is None:
                return
            if row.kind == "body":
                if self.entries[row.entry].begin():
                    self._changed(row.entry)
                    continue
                layout = self.entries[row.entry].layout
                block = layout.block_at(row.inside)
                if not layout.is_exact(block):
                    layout.settle(block)
                    self._changed(row.entry)
                    continue  # the row may now lie beyond the message
                y += layout.top(block + 1) - row.inside
            else:
                y += 1

    def seen(self, top: int, bottom: int) -> None:
        """Rows ``[top, bottom)`` are shown; of what was shown long ago, rows and records are forgotten."""
        first, last = self.row(top), self.row(min(bottom, self.height) - 1)
        if first is None or last is None:
            return
        for entry in self.entries[first.entry : last.entry + 1]:
            self._seen.pop(entry.id, None)
            self._seen[entry.id] = entry
        shown = last.entry + 1 - first.entry
        characters = sum(len(entry.content) for entry in self._seen.values())
        while len(self._seen) > shown and characters > REMEMBERED:
            oldest = self._seen.pop(next(iter(self._seen)))
            characters -= len(oldest.content)
            oldest.forget()

    def settle_end(self, rows: int) -> None:
        """Lays out what the last ``rows`` rows show."""
        done = 0
        for index in range(len(self.entries) - 1, -1, -1):
            layout = self.entries[index].layout
            done += 2
            for block in range(layout.blocks - 1, -1, -1):
                if done >= rows:
                    break
                layout.settle(block)
                done += layout.top(block + 1) - layout.top(block)
            self._changed(index)
            if done >= rows:
                return

    @property
    def is_measured(self) -> bool:
        """No height is a guess."""
        return not self._unmeasured

    def measure(self, row: int, characters: int) -> tuple[bool, int]:
        """Lays out some blocks that were only guessed, the last message first.

        Args:
            row: The row whose content must stay in view.
            characters: About how much source to lay out.

        Returns:
            Whether all is laid out now, and by how many rows what is at ``row`` has moved.
        """
        moved = 0
        while self._unmeasured and characters > 0:
            index = self._unmeasured[-1]
            entry = self.entries[index]
            body, height = self.top(index) + 1, entry.height
            made = entry.begin()
            block = entry.layout.next_guess()
            above = body + (entry.layout.top(block) if block is not None and not made else 0) < row
            if block is None:
                self._unmeasured.pop()
                characters -= 64
            else:
                entry.layout.measure(block)
                characters -= entry.layout.size(block)
            moved += entry.height - height if above else 0
            row += entry.height - height if above else 0
            self._changed(index)
        return not self._unmeasured, moved

    def _changed_all(self) -> None:
        self._heights = Tops()
        for index in range(len(self.entries)):
            self._place(index)
        self._unmeasured = list(range(len(self.entries)))

    def _changed(self, index: int) -> None:
        self._place(index)

    def _place(self, index: int) -> None:
        entry = self.entries[index]
        entry.rule_row = self._rule_row(index)
        self._heights.set(index, entry.height + 2 + (entry.rule_row is not None))

    def _rule_row(self, index: int) -> int | None:
        if self.memory.live_from is None or self.entries[index].id != self.memory.live_from[0]:
            return None
        char = self.memory.live_from[1]
        if char > 0:
            return self.entries[index].layout.row_of(char) + 1
        forgotten = any(entry.id not in self.memory.kept for entry in self.entries[:index])
        return 0 if forgotten else None


def spread(entries: Sequence[Entry]) -> list[Entry]:
    """The messages in an order of which any beginning is spread evenly over all of them."""
    golden = (5**0.5 - 1) / 2
    order = sorted(range(len(entries)), key=lambda index: index * golden % 1)
    return [entries[index] for index in order]
