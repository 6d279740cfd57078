"""What every group of actions has at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from chatapp.ui import external
from chatapp.ui.changes import Refused, Severity
from chatapp.ui.chat import Chat
from chatapp.ui.transcript import Transcript
from chatapp.ui.workspace import Workspace

if TYPE_CHECKING:
    from chatapp.ui.app import ChatApp
    from chatapp.ui.screens.chat import ChatScreen


class Group:
    """A group of actions on the chat screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self.screen = screen

    @property
    def app(self) -> ChatApp:
        return cast("ChatApp", self.screen.app)

    @property
    def workspace(self) -> Workspace:
        return self.screen.workspace

    @property
    def chat(self) -> Chat:
        return self.screen.workspace.chat

    @property
    def transcript(self) -> Transcript:
        return self.screen.transcript

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tells the person something for a few seconds."""
        self.screen.say(text, severity)

    def halt(self) -> bool:
        """Stops the reply, or the download that it or the person waits for; False where there is neither."""
        return self.chat.stop() or self.workspace.link.stop()

    def target(self) -> str:
        """The message an action is about: the one under the cursor, else the last one.

        Raises:
            Refused: There is no message.
        """
        cursor = self.transcript.message_cursor
        if cursor is not None:
            return cursor
        entries = self.transcript.document.entries
        if not entries:
            raise Refused("There is no message yet.")
        return entries[-1].id

    def edit_outside(self, text: str, then: Callable[[str], None]) -> None:
        """Hands a text to the person's own editor, and takes what it has become; what goes wrong is said."""

        async def edited() -> None:
            then(await external.edit(self.app, text))

        self.screen.work(edited)

    def number(self, argument: str, default: int, low: int, high: int) -> int:
        """Reads a whole number that a command takes.

        Raises:
            Refused: It is none, or out of bounds.
        """
        if not argument:
            return default
        if not argument.isdigit() or not low <= int(argument) <= high:
            raise Refused(f"A number from {low} to {high} is wanted here, not {argument!r}.")
        return int(argument)
