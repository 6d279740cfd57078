"""What is painted first: the calm frame of the chat, while the rest of the program is still being imported."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Static


class FirstScreen(Screen[None]):
    """Stands for a moment; what is typed meanwhile is kept for the prompt.

    Attributes:
        typed: Keys and pastes that arrived.
    """

    DEFAULT_CSS = """
    FirstScreen { background: $background; align: center middle; }
    FirstScreen Static { width: auto; color: $primary; text-style: bold; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.typed: list[events.Key | events.Paste] = []

    def compose(self) -> ComposeResult:
        yield Static("chatapp", markup=False)

    def on_key(self, event: events.Key) -> None:
        self.typed.append(event)

    def on_paste(self, event: events.Paste) -> None:
        self.typed.append(event)
