"""The transcript widget: the view with a message cursor, a token cursor and the mouse."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.selection import Selection

from chatapp.tokens import Token
from chatapp.ui.transcript import walk
from chatapp.ui.transcript.entry import Entry
from chatapp.ui.transcript.events import MessageFocused, PickRequested, ScalesChanged, TokenFocused
from chatapp.ui.transcript.model import MessageView
from chatapp.ui.transcript.select import message_at, selected_source, source_position, word_at
from chatapp.ui.transcript.view import TranscriptView


class Transcript(TranscriptView):
    """Messages of a conversation in one Line-API widget. The API is listed in `chatapp.ui.transcript`."""

    MessageFocused = MessageFocused
    TokenFocused = TokenFocused
    PickRequested = PickRequested
    ScalesChanged = ScalesChanged

    _message: str | None = None
    _token: int | None = None

    # -- content -------------------------------------------------------------------------------------------------

    def set_messages(self, messages: Sequence[MessageView], *, at_end: bool = True) -> None:
        super().set_messages(messages, at_end=at_end)
        if self._message is not None and self.document.get(self._message) is None:
            self._message = self._token = None
        self._check_token()

    def replace(self, message_id: str, view: MessageView) -> None:
        super().replace(message_id, view)
        if self._message == message_id and self.document.get(view.id) is not None:
            self._message = view.id
        self._check_token()

    # -- message cursor ------------------------------------------------------------------------------------------

    @property
    def message_cursor(self) -> str | None:
        """Id of the message under the cursor."""
        return self._message

    @property
    def focused_entry(self) -> Entry | None:
        """The message under the cursor."""
        return None if self._message is None else self.document.get(self._message)

    def focus_message(self, message_id: str | None, *, scroll: bool = True) -> None:
        """Moves the message cursor and shows the message's start."""
        if message_id is not None and self.document.get(message_id) is None:
            return
        if message_id != self._message:
            self._leave_tokens_quietly()
            self._message = message_id
            self.refresh()
            self.post_message(self.MessageFocused(self, message_id))
        if scroll and message_id is not None:
            index = self.document.index_of(message_id)
            self._show(lambda: (self.document.top(index), self.document.bottom(index)))

    def move_message(self, by: int) -> None:
        """Moves the message cursor; the first move puts it on the last message that is in view."""
        entries = self.document.entries
        if not entries:
            return
        if self._message is None:
            row = self.document.row(min(self.scroll_offset.y + self.size.height, self.document.height) - 1)
            self.focus_message(entries[row.entry if row else len(entries) - 1].id)
            return
        index = self.document.index_of(self._message)
        self.focus_message(entries[max(0, min(len(entries) - 1, index + by))].id)

    def first_message(self) -> None:
        """Moves the message cursor to the first message."""
        if self.document.entries:
            self.focus_message(self.document.entries[0].id)

    def last_message(self) -> None:
        """Moves the message cursor to the last message and follows the stream again."""
        if self.document.entries:
            self.focus_message(self.document.entries[-1].id, scroll=False)
            self.follow()

    # -- token cursor --------------------------------------------------------------------------------------------

    @property
    def token_cursor(self) -> int | None:
        """Index of the token under the cursor in the focused message; None outside of the tokens."""
        return self._token

    @property
    def focused_token(self) -> Token | None:
        """The token under the cursor."""
        entry = self.focused_entry
        return None if entry is None or self._token is None else entry.tokens[self._token]

    def enter_tokens(self) -> bool:
        """Puts the token cursor on the focused message (the last one with tokens if there is none)."""
        entry = self.focused_entry
        if entry is None or not entry.tokens:
            entry = next((entry for entry in reversed(self.document.entries) if entry.tokens), None)
        if entry is None:
            return False
        self.focus_token(entry.id, 0 if self._token is None else self._token)
        return True

    def leave_tokens(self) -> None:
        """Takes the token cursor away; the message cursor stays."""
        if self._token is not None and self._message is not None:
            self._leave_tokens_quietly()
            self.post_message(self.TokenFocused(self, self._message, None))

    def focus_token(self, message_id: str, index: int) -> None:
        """Puts the token cursor on a token and shows it; folded reasoning around it is unfolded."""
        entry = self.document.get(message_id)
        if entry is None or not entry.tokens:
            return
        self.focus_message(message_id, scroll=False)
        self._token = max(0, min(index, len(entry.tokens) - 1))
        start, _ = entry.map.span(self._token)
        if entry.layout.is_fold(entry.layout.row_of(start)):
            self.toggle_fold(message_id)
        self._show(self._cursor_rows)
        self.refresh()
        self.post_message(self.TokenFocused(self, message_id, self._token))

    def move_token(self, by: int) -> None:
        """Steps the token cursor."""
        self._walk(lambda tokens, at: walk.step(tokens, at, by))

    def move_word(self, by: int) -> None:
        """Steps the token cursor to the next (1) or previous (-1) beginning of a word."""
        self._walk(lambda tokens, at: walk.word(tokens, at, by))

    def next_uncertain(self, by: int) -> bool:
        """Steps to the next (1) or previous (-1) token that the heat colours; False if there is none."""
        return self._walk(lambda tokens, at: walk.uncertain(tokens, at, by, self.scales, self.heat))

    def pick(self, rank: int = 0) -> None:
        """Asks (by `PickRequested`) to go on from alternative ``rank`` of the token under the cursor."""
        if self._token is not None and self._message is not None:
            self.post_message(self.PickRequested(self, self._message, self._token, rank))

    def _walk(self, move: walk.Move) -> bool:
        entry = self.focused_entry
        if entry is None or self._token is None:
            return self.enter_tokens()
        to = move(entry.tokens, self._token)
        if to is None:
            return False
        self.focus_token(entry.id, to)
        return True

    def _leave_tokens_quietly(self) -> None:
        if self._token is not None:
            self._token = None
            self.refresh()

    def _check_token(self) -> None:
        entry = self.focused_entry
        if self._token is not None and (entry is None or self._token >= len(entry.tokens)):
            self._token = None

    # -- folding -------------------------------------------------------------------------------------------------

    def toggle_fold(self, message_id: str | None = None) -> bool:
        """Folds or unfolds the reasoning of a message (the focused one); False if it has none."""
        entry = self.focused_entry if message_id is None else self.document.get(message_id)
        if entry is None or not self.document.has_thinking(entry.id):
            return False
        anchor = None if self._stick else self._anchor()
        self.document.fold(entry.id, not entry.folded)
        self._rearranged(anchor)
        return True

    # -- mouse ---------------------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor on the token (or else the message) under the mouse; twice selects the word, thrice all."""
        y = self.scroll_offset.y + event.y
        strip = self.render_line(event.y)
        index = len(strip.crop(0, max(0, event.x)).text)
        if event.chain > 1:
            event.prevent_default()  # Textual would select the whole conversation
            selection = word_at(self.document, y, index) if event.chain == 2 else message_at(self.document, y)
            self.screen.selections = {self: selection} if selection is not None else {}
            return
        if self.text_selection is not None:
            return
        found = source_position(self.document, y, index)
        if found is None:
            return
        entry = self.document.entries[found[0]]
        row = self.document.row(y)
        if row is not None and row.kind == "body" and entry.layout.is_fold(row.inside):
            self.toggle_fold(entry.id)
            return
        token = entry.map.token_at(found[1]) if row is not None and row.kind == "body" else None
        if token is None:
            self.leave_tokens()
            self.focus_message(entry.id, scroll=False)
        else:
            self.focus_token(entry.id, token)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selected_source(self.document, selection), "\n"

    # -- for the view --------------------------------------------------------------------------------------------

    def _focused_index(self) -> int | None:
        return None if self._message is None else self._index(self._message)

    def _cursor_span(self) -> tuple[int, int] | None:
        entry = self.focused_entry
        if entry is None or self._token is None:
            return None
        start, end = entry.map.span(self._token)
        return (start, end) if end > start else (max(0, end - 1), end)

    def _scales_changed(self) -> None:
        self.post_message(self.ScalesChanged(self))
