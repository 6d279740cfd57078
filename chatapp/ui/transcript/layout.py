"""The rows of one message: blocks laid out when they are needed, estimated before that."""

from __future__ import annotations

from chatapp.ui.transcript.blocks import THINK, Block, Scanner, ThinkTags
from chatapp.ui.transcript.lines import Line
from chatapp.ui.transcript.markdown import lay_out
from chatapp.ui.transcript.tops import Tops


class MessageLayout:
    """Rows of a message at one width.

    Attributes:
        width: Cells in a row.
        folded: The reasoning parts are one row each.
    """

    def __init__(self, source: str, width: int, *, folded: bool = False, tags: ThinkTags = THINK) -> None:
        self.source = ""
        self.width = max(4, width)
        self.folded = folded
        self._scanner = Scanner(tags)
        self._blocks: list[Block] = []
        self._lines: list[list[Line] | None] = []
        self._tops = Tops()
        self._unmeasured = 0  # heights of blocks at and after this index are exact
        self._measured: set[int] = set()  # blocks of exact height whose rows were not kept
        self.grow(source)

    @property
    def height(self) -> int:
        """Rows in all; a guess for blocks that were not laid out yet."""
        return self._tops.total

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self._blocks)

    @property
    def has_thinking(self) -> bool:
        """There is a reasoning part."""
        return any(block.context.think or block.kind == "fold" for block in self._blocks)

    def set_width(self, width: int) -> None:
        """Forgets the rows; the blocks do not depend on the width."""
        self.width = max(4, width)
        self._lines = [None] * len(self._blocks)
        self._tops = Tops()
        for index, block in enumerate(self._blocks):
            self._tops.set(index, self._guess(block))
        self._unmeasured = len(self._blocks)
        self._measured.clear()

    def grow(self, source: str) -> int:
        """Takes the source with text appended; returns the first row that may differ from before."""
        self.source = source
        first = self._scanner.feed(source)
        blocks = self._scanner.blocks
        if self.folded:
            blocks = _folded(blocks)
            first = 0
            while first < min(len(blocks), len(self._blocks)) and blocks[first] == self._blocks[first]:
                first += 1
        if first < len(self._blocks) and first < len(blocks):
            seed = self._lines[first] if blocks[first].start == self._blocks[first].start else None
            seed = seed if blocks[first].kind == self._blocks[first].kind == "prose" else None
        else:
            seed = None
        row = self._tops.top(min(first, len(self._tops)))
        self._measured.difference_update(range(first, len(self._blocks)))
        del self._lines[first:]
        self._tops.cut(first)
        self._blocks[first:] = blocks[first:]
        for index in range(first, len(blocks)):
            self._lines.append(None)
            self._tops.set(index, self._guess(blocks[index]))
        if seed:
            self._lay(first, seed)
        self._unmeasured = len(blocks)
        return row

    def next_guess(self) -> int | None:
        """The last block whose height is still a guess."""
        while self._unmeasured > 0:
            last = self._unmeasured - 1
            if self._lines[last] is None and last not in self._measured:
                return last
            self._unmeasured -= 1
        return None

    def measure(self, block: int) -> int:
        """Makes a block's height exact; returns by how many rows it changed.

        The rows are not kept: those of a long conversation are so many objects that Python's collector would hold up
        keys, and they are made again in no time when they come into view.
        """
        delta = self.settle(block)
        self._lines[block] = None
        self._measured.add(block)
        return delta

    def forget(self) -> None:
        """Drops the rows; the heights stay."""
        for block, lines in enumerate(self._lines):
            if lines is not None:
                self._lines[block] = None
                self._measured.add(block)

    def size(self, block: int) -> int:
        """Source characters of a block."""
        return self._blocks[block].end - self._blocks[block].start

    def block_at(self, row: int) -> int:
        """Index of the block that holds a row."""
        return self._tops.find(row)

    def top(self, block: int) -> int:
        """First row of a block."""
        return self._tops.top(block)

    def is_exact(self, block: int) -> bool:
        """The block is laid out."""
        return self._lines[block] is not None

    def settle(self, block: int) -> int:
        """Lays a block out if it is not yet; returns by how many rows its height changed."""
        if self._lines[block] is not None:
            return 0
        before = self._tops[block]
        return self._lay(block) - before

    def _lay(self, block: int, seed: list[Line] | None = None) -> int:
        lines = lay_out(self.source, self._blocks[block], self.width, seed)
        self._lines[block] = lines
        self._tops.set(block, len(lines))
        return len(lines)

    def line(self, row: int) -> Line:
        """The line at a row (the block's last one where the guess was too high)."""
        block = self._tops.find(row)
        inside = row - self._tops.top(block)
        self.settle(block)
        lines = self._lines[block] or []
        return lines[min(inside, len(lines) - 1)]

    def think_at(self, row: int) -> bool:
        """The row is part of a reasoning part."""
        block = self._blocks[self._tops.find(row)]
        return block.context.think or block.kind == "fold"

    def is_fold(self, row: int) -> bool:
        """The row stands for a folded reasoning part."""
        return self._blocks[self._tops.find(row)].kind == "fold"

    def row_of(self, char: int) -> int:
        """The row that shows a source character; its block is laid out."""
        low, high = 0, len(self._blocks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._blocks[middle].start <= char:
                low = middle
            else:
                high = middle - 1
        if not self._blocks:
            return 0
        self.settle(low)
        lines = self._lines[low] or []
        for inside, line in enumerate(lines):
            if char < line.end:
                return self._tops.top(low) + inside
        return self._tops.top(low) + max(0, len(lines) - 1)

    def _guess(self, block: Block) -> int:
        if block.kind == "fold":
            return 1
        return guess_rows(self.source, block.start, block.end, self.width)


def guess_rows(source: str, start: int, end: int, width: int) -> int:
    """Rows that ``source[start:end]`` may take, at least one."""
    return max(1, source.count("\n", start, end) + (end - start) // width // 2)


def _folded(blocks: list[Block]) -> list[Block]:
    """Joins each run of reasoning blocks to one folded block."""
    result: list[Block] = []
    for block in blocks:
        if not block.context.think:
            result.append(block)
        elif result and result[-1].kind == "fold":
            result[-1] = Block("fold", result[-1].start, block.end, block.context, block.after)
        else:
            result.append(Block("fold", block.start, block.end, block.context, block.after))
    return result
