"""What a `Chat` tells the screen, and why it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chatapp.errors import ChatappError
from chatapp.tokens import Token

Severity = Literal["information", "warning", "error"]


class Refused(ChatappError):  # noqa: N818 - it is an answer, not an error of the program
    """What was asked cannot be done now; the sentence says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "usage")


@dataclass(frozen=True)
class Rebuilt:
    """Other messages are shown than before."""


@dataclass(frozen=True)
class Grew:
    """Tokens arrived for a reply that is shown."""

    message: str
    tokens: tuple[Token, ...]


@dataclass(frozen=True)
class Said:
    """Something the person should know."""

    text: str
    severity: Severity = "information"


@dataclass(frozen=True)
class PromptBack:
    """The prompt was stopped before it was read; its text goes back to the editor."""

    text: str


@dataclass(frozen=True)
class Drawn:
    """Several replies were made at once; one of these messages is to be chosen."""

    messages: tuple[str, ...]


@dataclass(frozen=True)
class Paused:
    """A reply stopped before a token that is more uncertain than the person allows."""

    message: str
    pending: Token


Change = Rebuilt | Grew | Said | PromptBack | Drawn | Paused
