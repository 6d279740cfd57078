"""Replies to the same message side by side, with the first token that differs marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.segment import Segment
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from chatapp.tokens import Token
from chatapp.ui.heat import Heat, Scales, Unit
from chatapp.ui.transcript.app_palette import palette_of
from chatapp.ui.transcript.document import Document, Row
from chatapp.ui.transcript.model import MessageView
from chatapp.ui.transcript.palette import Palette
from chatapp.ui.transcript.render import GUTTER, MARGIN, Scene, render

#: Narrowest column in cells; where fewer columns fit than there are replies, those around the chosen one are shown.
NARROWEST = 26


class Siblings(ScrollView, can_focus=True):
    """Columns of replies. Binds no keys itself: `move` and `choose` are for the app's bindings."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Siblings {
        background: $background;
        color: $foreground;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """

    @dataclass
    class Chosen(Message):
        """The person chose this reply."""

        siblings: Siblings
        message_id: str

        @property
        def control(self) -> Siblings:
            return self.siblings

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._documents: list[Document] = []
        self._chosen = 0
        self._difference: int | None = None
        self._palette: Palette | None = None
        self._heat = Heat.OFF
        self._scales = Scales()
        self._unit: Unit = "nats"
        self._ramp = ""

    @property
    def chosen(self) -> str | None:
        """Id of the reply under the cursor."""
        return self._documents[self._chosen].entries[0].id if self._documents else None

    def set_replies(self, views: Sequence[MessageView], chosen: int = 0) -> None:
        """Shows these replies."""
        self._documents = []
        for view in views:
            document = Document(40)
            document.set_messages([view])
            self._documents.append(document)
        self._chosen = max(0, min(chosen, len(views) - 1))
        self._arrange()

    def append_tokens(self, message_id: str, tokens: Sequence[Token]) -> None:
        """Appends tokens to a reply that streams."""
        for document in self._documents:
            if document.get(message_id) is not None:
                document.append(message_id, tokens)
                self._arrange()

    def replace(self, message_id: str, view: MessageView) -> None:
        """Shows something else in a reply's place."""
        for document in self._documents:
            if document.get(message_id) is not None:
                document.replace(message_id, view)
                self._arrange()

    def set_scale(self, heat: Heat, scales: Scales, unit: Unit, ramp: str = "") -> None:
        """Lays the heat over the replies as in the transcript."""
        self._heat, self._scales, self._unit, self._ramp = heat, scales, unit, ramp
        self._palette = None
        self.refresh()

    def move(self, by: int) -> None:
        """Moves the cursor to another reply."""
        if self._documents:
            self._chosen = (self._chosen + by) % len(self._documents)
            self._arrange()

    def choose(self) -> None:
        """Posts `Chosen` for the reply under the cursor."""
        if self.chosen is not None:
            self.post_message(self.Chosen(self, self.chosen))

    def on_click(self, event: events.Click) -> None:
        for left, width, index in self._columns():
            if left <= event.x < left + width:
                self._chosen = index
                self._arrange()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.notify_style_update())

    def on_resize(self) -> None:
        self._arrange()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        self.refresh()

    def _columns(self) -> list[tuple[int, int, int]]:
        """``(left edge, width, index of the reply)`` of the columns in view."""
        total = self.scrollable_content_region.width
        count = len(self._documents)
        fit = max(1, min(count, total // NARROWEST)) if count else 0
        if not fit:
            return []
        first = max(0, min(self._chosen - fit // 2, count - fit))
        edges = [column * total // fit for column in range(fit + 1)]
        return [(edges[i], edges[i + 1] - edges[i], first + i) for i in range(fit)]

    def _arrange(self) -> None:
        height = 0
        self._difference = first_difference([document.entries[0].tokens for document in self._documents])
        for _, width, index in self._columns():
            document = self._documents[index]
            document.set_width(max(4, width - GUTTER - MARGIN))
            document.settle(0, document.height + 1)
            height = max(height, document.height)
        self.virtual_size = Size(self.scrollable_content_region.width, height)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        palette = self._palette = self._palette or palette_of(self.app, self._ramp)
        strips: list[Strip] = []
        for _, width, index in self._columns():
            strips.append(self._column(palette, index, width, self.scroll_offset.y + y))
        if not strips:
            return Strip([Segment(" " * self.size.width, palette.base)])
        return Strip.join(strips)

    def _column(self, palette: Palette, index: int, width: int, y: int) -> Strip:
        document = self._documents[index]
        entry = document.entries[0]
        cursor, difference = None, self._difference
        if difference is not None and difference < len(entry.tokens):
            start, end = entry.map.span(difference)
            cursor = (start, end) if end > start else (max(0, end - 1), end)
        # The difference is marked in all columns; the bar is for the chosen one.
        scene = Scene(palette, self._heat, self._scales, self._unit, 0, cursor, active=index == self._chosen)
        row: Row | None = document.row(y)
        return render(document, row, width, scene, None)


def first_difference(streams: Sequence[Sequence[Token]]) -> int | None:
    """Number of the first token whose id is not the same in all streams (up to the shortest one's end)."""
    if len(streams) < 2:
        return None
    shortest = min(len(stream) for stream in streams)
    for index in range(shortest):
        if len({stream[index].id for stream in streams}) > 1:
            return index
    return shortest if any(len(stream) != shortest for stream in streams) else None
