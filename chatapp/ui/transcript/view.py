"""The view: content, scrolling, following, looks and painting. `widget` adds the cursors and the mouse.

What is shown is made by `document` (rows) and `painter` (strips).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from chatapp.tokens import Token
from chatapp.ui.heat import Heat, Scales, Unit
from chatapp.ui.transcript.app_palette import palette_of
from chatapp.ui.transcript.blocks import THINK, ThinkTags
from chatapp.ui.transcript.document import Document, spread
from chatapp.ui.transcript.model import Memory, MessageView
from chatapp.ui.transcript.painter import Frame, Painter, by_cluster
from chatapp.ui.transcript.palette import Palette
from chatapp.ui.transcript.render import GUTTER, MARGIN, Scene
from chatapp.ui.transcript.virtual import resize_virtually

#: Source characters laid out in one slice of idle time: a few milliseconds, far below what a key may wait.
_SLICE = 4096
#: How often a place is looked for anew because what lies above it turned out to be of another height.
_TRIES = 8
#: Tokens that percentile scales are taken over, or twice as many.
_SAMPLE = 4096
_MORE = " ▼ more below "


class TranscriptView(ScrollView, can_focus=True):
    """Messages of a conversation in one Line-API widget, without cursors."""

    ALLOW_SELECT = True
    ALLOW_MAXIMIZE = False
    DEFAULT_CSS = """
    TranscriptView {
        background: $background;
        color: $foreground;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """

    heat: reactive[Heat] = reactive(Heat.OFF)
    unit: reactive[Unit] = reactive("nats")
    percentile: reactive[bool] = reactive(False)
    ramp: reactive[str] = reactive("")

    def __init__(
        self,
        *,
        think_tags: ThinkTags = THINK,
        name: str | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(name=name, id=id, classes=classes)
        self.document = Document(80, think_tags)
        self.scales = Scales()
        self._palette: Palette | None = None
        self._painter = Painter()
        self._frame: Frame | None = None
        self._measuring: Timer | None = None
        self._stick = True
        self._wanted: Callable[[], tuple[int, int]] | None = None

    # -- for the cursors -----------------------------------------------------------------------------------------

    def _focused_index(self) -> int | None:
        """Index of the message under the cursor."""
        return None

    def _cursor_span(self) -> tuple[int, int] | None:
        """Characters of that message under the token cursor."""
        return None

    def _scales_changed(self) -> None:
        """Heat, unit or scale changed."""

    # -- content -------------------------------------------------------------------------------------------------

    def set_messages(self, messages: Sequence[MessageView], *, at_end: bool = True) -> None:
        """Shows these messages, oldest first. Cheap for messages that are unchanged.

        Args:
            messages: What to show.
            at_end: Go to the end; else the reading position stays.
        """
        anchor = None if at_end else self._anchor()
        self.document.set_messages(messages)
        if self.percentile:
            self._rescale()
        self._stick = at_end or self._stick
        self._rearranged(anchor)

    def append_tokens(self, message_id: str, tokens: Sequence[Token]) -> None:
        """Appends tokens to a message that streams. Unknown ids are ignored (the message went away meanwhile)."""
        index = self._index(message_id)
        if index is None or not tokens:
            return
        height = self.document.height
        first = self.document.append(message_id, tokens)
        if self._stick:
            self.document.settle_end(self.size.height)
        if self.document.height != height:
            self._sync_height()
        self.refresh_lines(self.document.top(index), 1)
        self.refresh_lines(first, max(1, self.document.height - first))

    def replace(self, message_id: str, view: MessageView) -> None:
        """Shows something else in a message's place: its end, an edit, another alternative (whose id may differ)."""
        index = self._index(message_id)
        if index is None:
            return
        anchor = None if self._stick else self._anchor()
        self.document.replace(message_id, view)
        if self.percentile:
            self._rescale()
        self._rearranged(anchor)

    def set_memory(self, memory: Memory) -> None:
        """Says what the model still sees: what was evicted is dimmed, and a line drawn where memory ends."""
        if memory == self.document.memory:
            return
        anchor = None if self._stick else self._anchor()
        self.document.set_memory(memory)
        self._rearranged(anchor)

    def set_think_tags(self, tags: ThinkTags) -> None:
        """The strings around a reasoning part, of the loaded model; the usual ones if it has none of its own."""
        tags = tags if tags.close else THINK  # replies of other models may be in the conversation
        if tags != self.document.tags:
            anchor = None if self._stick else self._anchor()
            self.document.set_tags(tags)
            self._rearranged(anchor)

    def _index(self, message_id: str) -> int | None:
        return self.document.index_of(message_id) if self.document.get(message_id) else None

    # -- scrolling --------------------------------------------------------------------------------------------

    @property
    def following(self) -> bool:
        """New text scrolls into view by itself: the view is at the bottom."""
        return self._stick

    def follow(self) -> None:
        """Goes to the end and stays there while text arrives."""
        self._stick = True
        self._rearranged(None)

    def source_of(self, message_id: str) -> str:
        """The source text of a message as it stands."""
        entry = self.document.get(message_id)
        return entry.content if entry else ""

    def _show(self, locate: Callable[[], tuple[int, int]]) -> None:
        """Scrolls as little as needed so that some rows are in view (their first ones, where they are many).

        Args:
            locate: Says where the rows are, ``[top, bottom)``. It is asked again after rows around them, which were
                guessed, were laid out.
        """
        self._wanted = locate if not self.size else None
        height = max(1, self.size.height)
        y = self.scroll_offset.y
        for _ in range(_TRIES):
            top, bottom = locate()
            if top < y or bottom - top >= height:
                y = top
            elif bottom > y + height:
                y = bottom - height
            self.document.settle(y, y + height)
            if locate() == (top, bottom):
                break
        self._sync_height()
        self._scroll_now(y)

    def _scroll_now(self, y: int) -> None:
        self.scroll_to(y=y, animate=False, force=True)
        self._stick = self.is_vertical_scroll_end

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) < round(old_value):
            self._stick = False
        if round(new_value) >= self.max_scroll_y:
            self._stick = True

    def _anchor(self) -> tuple[str, int, int] | None:
        """The reading position: message, source offset of the first row in view, rows into its header."""
        y = self.scroll_offset.y
        row = self.document.row(y)
        if row is None:
            return None
        entry = self.document.entries[row.entry]
        if row.kind == "body":
            return entry.id, self.document.line(row).start, 0
        return entry.id, -1 if row.kind != "blank" else len(entry.content), 0

    def _rearranged(self, anchor: tuple[str, int, int] | None) -> None:
        """Rows moved: keeps the reading position, or the end in view."""
        if self.is_mounted and self.text_selection is not None:
            self.screen.clear_selection()
        height = max(1, self.size.height)
        if self._stick or anchor is None or (index := self._index(anchor[0])) is None:
            self.document.settle_end(height)
            self._sync_height()
        else:
            row = self.document.top(index) if anchor[1] < 0 else self.document.row_of(index, anchor[1])
            self.document.settle(row, row + height)
            self._sync_height()
            self._scroll_now(row)
        self._restyle()
        if self._measuring is not None:
            self._measuring.resume()

    def _sync_height(self) -> None:
        size = Size(self.scrollable_content_region.width, self.document.height)
        if size != self.virtual_size:
            resize_virtually(self, size)
        if self._stick:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    @property
    def settled(self) -> bool:
        """Everything is laid out: no height is a guess any more."""
        return self.document.is_measured

    def measure_some(self) -> None:
        """Lays out, in idle time, some of what was only guessed; the view does not move."""
        if self.document.width != self._text_width():
            return
        done, moved = self.document.measure(self.scroll_offset.y, _SLICE)
        stick = self._stick
        self._sync_height()
        if moved and not stick:
            self._scroll_now(self.scroll_offset.y + moved)
        if done and self._measuring is not None:
            self._measuring.pause()

    # -- looks ---------------------------------------------------------------------------------------------------

    def watch_heat(self) -> None:
        self._restyle()
        self._scales_changed()

    def watch_unit(self) -> None:
        self._restyle()
        self._scales_changed()

    def watch_ramp(self) -> None:
        self._palette = None
        self._restyle()

    def watch_percentile(self) -> None:
        self._rescale()

    def cycle_heat(self) -> None:
        """The next of off, entropy, varentropy, both, surprisal."""
        self.heat = self.heat.next

    def _rescale(self) -> None:
        scales = Scales.of_tokens(self._sample()) if self.percentile else Scales()
        if scales == self.scales:
            return
        self.scales = scales
        self._restyle()
        self._scales_changed()

    def _sample(self) -> list[Token]:
        """Tokens of messages spread over the conversation: as good for percentiles as all, which need not be read."""
        found: list[Token] = []
        for entry in spread(self.document.entries):
            found += entry.tokens
            if len(found) >= _SAMPLE:
                break
        return found[:: max(1, len(found) // _SAMPLE)]

    def refresh_scales(self) -> None:
        """Takes the percentiles anew (call it now and then while tokens arrive)."""
        if self.percentile:
            self._rescale()

    @property
    def palette(self) -> Palette:
        """Styles of the theme in force."""
        if self._palette is None:
            self._palette = palette_of(self.app, self.ramp)
        return self._palette

    def _restyle(self) -> None:
        self._painter.forget()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        self._painter.forget()

    # -- events --------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.notify_style_update())
        self._measuring = self.set_interval(1 / 20, self.measure_some)

    def on_resize(self) -> None:
        width = self._text_width()
        if width != self.document.width:
            anchor = None if self._stick else self._anchor()
            self.document.set_width(width)
            self._rearranged(anchor)
        elif self._stick:
            self._rearranged(None)
        if self._cursor_span() is not None:
            self._show(self._cursor_rows)
        if self._wanted is not None and self.size:  # asked for before there was any room
            self._show(self._wanted)

    def _cursor_rows(self) -> tuple[int, int]:
        """Rows of the token under the cursor."""
        index, span = self._focused_index(), self._cursor_span()
        row = self.document.row_of(index, span[0]) if index is not None and span is not None else 0
        return row, row + 1

    def _text_width(self) -> int:
        return max(4, self.scrollable_content_region.width - GUTTER - MARGIN)

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    # -- painting ------------------------------------------------------------------------------------------------

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        height = self.document.height
        y = self.scroll_offset.y
        self.document.settle(y, y + self.size.height)
        self.document.seen(y, y + self.size.height)
        if self.document.height != height:
            self.call_later(self._sync_height)
        self._frame = self._new_frame()
        try:
            return super().render_lines(crop)
        finally:
            self._frame = None

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        if self._frame is None:  # not painting: the screen asks what is under the mouse
            return by_cluster(self._painter.strip(self.document, at, self._new_frame())).apply_offsets(0, at)
        strip = self._painter.strip(self.document, at, self._frame)
        if y == self.size.height - 1 and not self._stick and self.scroll_offset.y < self.max_scroll_y:
            room = self._frame.width - len(_MORE)
            if room > 0:
                mark = Segment(_MORE, self.palette.accent("primary", bold=True))
                return Strip.join([strip.crop(0, room), Strip([mark], len(_MORE))])
        return strip

    def _new_frame(self) -> Frame:
        focused = self._focused_index()
        scene = Scene(
            palette=self.palette,
            heat=self.heat,
            scales=self.scales,
            unit=self.unit,
            focused=-1 if focused is None else focused,
            cursor=self._cursor_span(),
            active=self.has_focus,
        )
        return Frame(scene, self.text_selection, self.scrollable_content_region.width)
