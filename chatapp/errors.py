"""Errors that a person sees: one plain sentence that says what to do next."""

from __future__ import annotations


class ChatappError(Exception):
    """Something the person can act on. ``str(error)`` is the sentence.

    Attributes:
        kind: As in `chatapp.protocol.Failed`.
        exit_code: What a command ends with: 1 for failure, 2 for usage, 130 for interrupted.
    """

    exit_code = 1

    def __init__(self, message: str, kind: str = "internal") -> None:
        super().__init__(message)
        self.kind = kind


class UsageError(ChatappError):
    """The call itself is wrong."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message, "usage")


class Interrupted(ChatappError):  # noqa: N818 - it is what happened, not an error of the program
    """The person stopped it."""

    exit_code = 130

    def __init__(self, message: str = "Interrupted.") -> None:
        super().__init__(message, "cancelled")
