"""The screen's clock: thirty times a second, what has happened since the last tick is taken to the widgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from chatapp.tokens import Token
from chatapp.ui.changes import Change, Drawn, Grew, Paused, PromptBack, Rebuilt, Said
from chatapp.ui.link import EngineStatus
from chatapp.ui.transcript import ThinkTags
from chatapp.ui.widgets.status import parts

if TYPE_CHECKING:
    from chatapp.ui.app import ChatApp
    from chatapp.ui.screens.chat import ChatScreen

#: Ticks a second.
RATE: Final = 30

#: Ticks between changes of the status line's figures while a reply is written: they can be read, and most frames
#: draw the transcript only.
_FIGURES = 5

#: Ticks between attempts to write what the disk did not take.
_SAVING = 10 * RATE


class Clock:
    """Carries what a `Chat` tells, and what else changes by itself, to a chat screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._ticks = 0
        self._engine: EngineStatus | None = None

    def tick(self) -> None:
        """Takes what has happened since the last tick to the screen."""
        self._ticks += 1
        self.show_messages()
        changes = self._screen.workspace.chat.changes
        while changes:
            self._tell(changes.popleft())
        self._look_around()
        if self._ticks % RATE == 0:
            self._each_second()

    def show_messages(self) -> None:
        """Takes what has happened to messages to the transcript; what else the chat tells waits for the next tick."""
        changes = self._screen.workspace.chat.changes
        rebuild = False
        grown: dict[str, list[Token]] = {}
        others: list[Change] = []
        while changes:
            change = changes.popleft()
            match change:
                case Rebuilt():
                    rebuild = True
                case Grew(message=message, tokens=tokens):
                    grown.setdefault(message, []).extend(tokens)
                case _:
                    others.append(change)
        changes.extend(others)
        if rebuild:
            self._screen.rebuild()  # the views hold all tokens there are
        else:
            for message, tokens in grown.items():
                self._screen.transcript.append_tokens(message, tokens)

    def _tell(self, change: Change) -> None:
        screen = self._screen
        match change:
            case Said(text=text, severity=severity):
                screen.say(text, severity)
            case PromptBack(text=text):
                self._give_back(text)
            case Drawn(messages=messages):
                screen.groups.message.choose_among(messages)
            case Paused(message=message, pending=pending):
                screen.groups.token.ask_pending(message, pending)
            case _:
                pass

    def _give_back(self, text: str) -> None:
        screen = self._screen
        area = screen.prompt.area
        if area.text.strip():
            screen.history.add(text)
            screen.say("Stopped before it was read; Ctrl+Up brings the message back.")
            return
        area.show_text(text)
        screen.focus_prompt()
        screen.say("Stopped before it was read; here is your message again.")

    def _look_around(self) -> None:
        """What is not told by the chat: the engine's state, and where the keyboard is."""
        screen = self._screen
        workspace, link = screen.workspace, screen.workspace.link
        link.check()
        for said in link.take_told():
            screen.say(said.text, said.severity)
        if self._ticks % _FIGURES == 0 or not workspace.chat.busy:
            bits = screen.transcript.unit == "bits"
            screen.status.show(parts(workspace.chat, link.status, workspace, bits=bits))
        if link.status is not self._engine:
            self._engine_changed(link.status)
        screen.banner.show(self._lasting())
        screen.hints.show_scope(screen.scope)

    def _engine_changed(self, status: EngineStatus) -> None:
        self._engine = status
        self._screen.welcome.follow(status)
        if status.loaded is not None and status.loaded.think_open:
            tags = ThinkTags(status.loaded.think_open, status.loaded.think_close)
            self._screen.transcript.set_think_tags(tags)

    def _each_second(self) -> None:
        """Other conversations, trouble with the disk, the draft, a theme that was edited."""
        screen = self._screen
        session = screen.workspace.chat.session
        for said in screen.workspace.tend():
            screen.say(said.text, said.severity)
        screen.say_notices()
        if session.read_only and session.poll():
            screen.rebuild()
        for problem in self._looks_problems():
            screen.say(problem, "warning")
        if self._ticks % _SAVING == 0:
            screen.workspace.unsaved()  # tries to save again
        screen.transcript.refresh_scales()
        screen.show_memory()
        if not screen.draft_kept:
            screen.keep_draft()

    def _looks_problems(self) -> list[str]:
        looks = cast("ChatApp", self._screen.app).looks
        looks.poll()
        problems, looks.problems = looks.problems, []
        return problems

    def _lasting(self) -> str:
        """The most important thing that stays wrong; empty if nothing is."""
        session, engine = self._screen.workspace.chat.session, self._screen.workspace.link.status
        if session.trouble:
            return f"Not saved, /save tries again. {session.trouble}"
        if engine.phase == "lost":
            return f"F5 starts the engine again; your conversation is safe. {engine.message}"
        if engine.phase == "failed":
            return f"F5 tries again, F4 chooses another model. {engine.message}"
        if session.read_only:
            return f"{session.read_only} It is shown as it grows; b goes on in a copy."
        for chat in self._screen.workspace.untaken:
            return f"“{chat.session.conversation.title}” is not saved. {chat.session.trouble}"
        return ""
