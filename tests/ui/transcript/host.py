"""A tiny app around the transcript, and messages to show in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual.app import App, ComposeResult

from chatapp.tokens import Alternative, Token
from chatapp.ui.heat import Heat
from chatapp.ui.transcript import MessageView, Transcript


def token(index: int, text: str, entropy: float = 0.1, **values) -> Token:
    return Token(
        index=index,
        id=values.get("id", 100 + index),
        text=text,
        entropy=entropy,
        varentropy=values.get("varentropy", entropy / 2),
        surprisal=values.get("surprisal", entropy),
        sampled_entropy=entropy,
        top=(Alternative(1, " yes", math.log(0.5)), Alternative(2, " no", math.log(0.25))),
    )


def tokens(*pieces: str, hot: Sequence[int] = ()) -> list[Token]:
    """A record for each piece; those at the indices in ``hot`` are uncertain."""
    return [token(index, piece, 3.0 if index in hot else 0.1) for index, piece in enumerate(pieces)]


def reply(message_id: str, *pieces: str, hot: Sequence[int] = (), **values) -> MessageView:
    return MessageView(message_id, "assistant", "".join(pieces), tokens(*pieces, hot=hot), "tiny", **values)


def user(message_id: str, content: str) -> MessageView:
    return MessageView(message_id, "user", content)


class Host(App[None]):
    CSS = "Transcript { height: 1fr; }"

    def __init__(self, *messages: MessageView, heat: Heat = Heat.OFF) -> None:
        super().__init__()
        self.messages = messages
        self.heat = heat
        self.events: list[object] = []

    def compose(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        self.transcript.heat = self.heat
        self.transcript.set_messages(self.messages)
        self.transcript.focus()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def on_transcript_message_focused(self, event: Transcript.MessageFocused) -> None:
        self.events.append(("message", event.message_id))

    def on_transcript_token_focused(self, event: Transcript.TokenFocused) -> None:
        self.events.append(("token", event.message_id, event.index))

    def on_transcript_pick_requested(self, event: Transcript.PickRequested) -> None:
        self.events.append(("pick", event.message_id, event.index, event.rank))


def screen_text(app: App[None]) -> list[str]:
    """What stands on the screen, row by row."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]
