"""What the transcript tells the app; handlers are named ``on_transcript_…``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from chatapp.ui.transcript.widget import Transcript


@dataclass
class TranscriptEvent(Message):
    """Base of the transcript's messages."""

    transcript: Transcript

    @property
    def control(self) -> Transcript:
        """The transcript that sent it (for ``@on`` with a selector)."""
        return self.transcript


@dataclass
class MessageFocused(TranscriptEvent, namespace="transcript"):
    """The message cursor moved; None: there is no message."""

    message_id: str | None


@dataclass
class TokenFocused(TranscriptEvent, namespace="transcript"):
    """The token cursor moved; ``index`` is None when the token cursor was left."""

    message_id: str
    index: int | None


@dataclass
class PickRequested(TranscriptEvent, namespace="transcript"):
    """The person wants to go on from another token. ``rank`` counts alternatives from 1; 0 asks to show them."""

    message_id: str
    index: int
    rank: int


@dataclass
class ScalesChanged(TranscriptEvent, namespace="transcript"):
    """Heat, unit or scale changed (for the legend)."""
