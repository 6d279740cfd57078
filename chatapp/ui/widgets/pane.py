"""The transcript with its keys: those of messages around it, those of tokens on it while the token cursor is there."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from chatapp.ui.keymap import bindings
from chatapp.ui.transcript import Transcript


class KeyedTranscript(Transcript, inherit_bindings=False):
    """A transcript whose own keys are those of the token cursor; the screen says when they hold."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("tokens")]


class TranscriptPane(Vertical):
    """Holds the transcript; its keys are looked at after those of the tokens."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("transcript")]

    def __init__(self) -> None:
        super().__init__()
        self.transcript = KeyedTranscript(id="transcript")

    def compose(self) -> ComposeResult:
        yield self.transcript
