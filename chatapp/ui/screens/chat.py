"""The main screen: puts the widgets together, runs actions, and carries what a `Chat` tells to the widgets."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Static

from chatapp.errors import ChatappError
from chatapp.text import visible
from chatapp.ui.actions.groups import Groups
from chatapp.ui.changes import Change, Drawn, Grew, Paused, PromptBack, Rebuilt, Refused, Said, Severity
from chatapp.ui.heat import RAMPS, Heat
from chatapp.ui.keymap import Keymap, Scope, bindings
from chatapp.ui.link import EngineStatus
from chatapp.ui.prompt.drafts import Drafts
from chatapp.ui.prompt.history import History
from chatapp.ui.prompt.prompt import Prompt, PromptArea
from chatapp.ui.screens.sizes import LOW, WIDTHS
from chatapp.ui.transcript import ThinkTags, Transcript
from chatapp.ui.views import Views, memory
from chatapp.ui.widgets.banner import Banner
from chatapp.ui.widgets.context_bar import ContextBar, Window
from chatapp.ui.widgets.edit_box import EditBox, Editing
from chatapp.ui.widgets.hints import Hints
from chatapp.ui.widgets.legend import Legend
from chatapp.ui.widgets.pane import TranscriptPane
from chatapp.ui.widgets.side import InspectorPanel
from chatapp.ui.widgets.sparkline import DoubtSparkline
from chatapp.ui.widgets.status import StatusLine, cached_tokens, parts
from chatapp.ui.widgets.welcome import Welcome
from chatapp.ui.workspace import Workspace

if TYPE_CHECKING:
    from chatapp.ui.app import ChatApp

#: Clock of the screen, in ticks a second.
RATE = 30

#: Ticks between changes of the status line's figures while a reply is written: they can be read, and most frames
#: draw the transcript only.
_FIGURES = 5

#: Ticks between attempts to write what the disk did not take.
_SAVING = 10 * RATE

#: Groups of actions that would pull the rug from under an open editor, and what of them is harmless.
_CHANGING = ("message", "token", "chat", "list", "branch")
_HARMLESS = {
    *("message.heat", "message.units", "message.scale"),
    *("chat.stop", "chat.retry_save", "chat.save_elsewhere"),
}


class ChatScreen(Screen[None]):
    """See the module's docstring. What actions do is in `chatapp.ui.actions`."""

    CSS_PATH = "../app.tcss"
    AUTO_FOCUS = "#prompt-area"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("anywhere")]
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = LOW

    def __init__(self, workspace: Workspace, keymap: Keymap) -> None:
        super().__init__()
        self.workspace = workspace
        self.keymap = keymap
        self.groups = Groups(self)
        self.history = History()
        self._drafts = Drafts()
        self.views = Views(workspace.chat)
        self.pane = TranscriptPane()
        self.transcript = self.pane.transcript
        self.edit_box = EditBox()
        self.prompt = Prompt(keymap, "Write a message  (/ for commands)")
        self._title = Static(id="title", markup=False)
        self._banner = Banner()
        self._welcome = Welcome(keymap)
        self._legend = Legend(id="legend")
        self._window = ContextBar(id="window")
        self._status = StatusLine()
        self._hints = Hints(keymap)
        self._draft_kept = True
        self._ticks = 0
        self._from_prompt = False
        self._engine: EngineStatus | None = None

    # -- what is on it

    def compose(self) -> ComposeResult:
        yield self._title
        with Horizontal(id="middle"), Vertical(id="main"):
            yield self._banner
            yield self._welcome
            yield self.pane
        with Horizontal(id="gauges"):
            yield self._legend
            yield self._window
        yield self.edit_box
        yield self.prompt
        yield self._status
        yield self._hints

    @property
    def scope(self) -> Scope:
        """Which keys hold where the person is."""
        focused = self.focused
        if focused is None:
            return "anywhere"
        if focused.id == "transcript":
            return "tokens" if self.transcript.token_cursor is not None else "transcript"
        if focused.id == "edit-area":
            return "edit"
        return "prompt" if focused.id == "prompt-area" else "list" if focused.id == "chats-options" else "anywhere"

    def on_mount(self) -> None:
        self.transcript.heat = Heat(self.workspace.chat.option("heat", self.workspace.settings.heat.show))
        self.transcript.unit = "bits" if self.workspace.settings.heat.bits else "nats"
        self._use_ramp(self.workspace.settings.heat.ramp)
        self._shown_chat()
        self.focus_prompt()
        self.set_interval(1 / RATE, self.tick)
        for problem in self.keymap.problems:
            self.say(problem, "warning")

    def _use_ramp(self, name: str) -> None:
        if name and name not in RAMPS:
            self.say(f"config.toml: there is no heat.ramp {name!r}; there are {', '.join(RAMPS)}.", "warning")
            return
        self.transcript.ramp = name
        self._legend.set_ramp(name)

    # -- actions

    async def action_do(self, id: str) -> None:
        """Runs an action from a key."""
        await self.run(id)

    async def run(self, id: str, argument: str = "") -> None:
        """Runs an action; what it refuses is said."""
        method, own = self.groups.method(id)
        try:
            self._must_not_disturb(id)
            result = method(argument or own)
            if inspect.isawaitable(result):
                await result
        except ChatappError as error:
            self.say(str(error), "warning")

    def _must_not_disturb(self, id: str) -> None:
        if self.edit_box.editing is not None and id.partition(".")[0] in _CHANGING and id not in _HARMLESS:
            raise Refused("Finish the edit first: Enter takes it over, Esc leaves it.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of tokens hold while the token cursor is in a reply."""
        if action == "do" and str(parameters[0]).startswith("token."):
            return self.transcript.token_cursor is not None
        return True

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tells the person something for a few seconds."""
        self.notify(visible(text), severity=severity, markup=False, timeout=4 if severity == "information" else 8)

    # -- the clock

    def tick(self) -> None:
        """Takes what has happened since the last tick to the screen."""
        self._ticks += 1
        chat = self.workspace.chat
        rebuild = False
        grown: dict[str, list[Grew]] = {}
        later: list[Change] = []
        while chat.changes:
            change = chat.changes.popleft()
            match change:
                case Rebuilt():
                    rebuild = True
                case Grew(message=message):
                    grown.setdefault(message, []).append(change)
                case _:
                    later.append(change)
        if rebuild:
            self.rebuild()  # the views hold all tokens there are
        else:
            for message, parts_ in grown.items():
                self.transcript.append_tokens(message, [token for part in parts_ for token in part.tokens])
        for change in later:
            self._tell(change)
        self._look_around()

    def _tell(self, change: Change) -> None:
        match change:
            case Said(text=text, severity=severity):
                self.say(text, severity)
            case PromptBack(text=text):
                self._give_back(text)
            case Drawn(messages=messages):
                self.groups.message.choose_among(messages)
            case Paused(message=message, pending=pending):
                self.groups.token.ask_pending(message, pending)
            case _:
                pass

    def _give_back(self, text: str) -> None:
        area = self.prompt.area
        if area.text.strip():
            self.history.add(text)
            self.say("Stopped before it was read; Ctrl+Up brings the message back.")
            return
        area.show_text(text)
        self.focus_prompt()
        self.say("Stopped before it was read; here is your message again.")

    def _look_around(self) -> None:
        """What is not told by the chat: the engine's state, other conversations, trouble with the disk."""
        workspace = self.workspace
        chat, link = workspace.chat, workspace.link
        link.check()
        if self._ticks % _FIGURES == 0 or not chat.busy:
            self._status.show(parts(chat, link.status, workspace, bits=self.transcript.unit == "bits"))
        if link.status is not self._engine:
            self._engine_changed(link.status)
        self._banner.show(self._lasting())
        self._hints.show_scope(self.scope)
        if self._ticks % RATE == 0:
            self._each_second()

    def _engine_changed(self, status: EngineStatus) -> None:
        self._engine = status
        self._welcome.follow(status)
        if status.loaded is not None and status.loaded.think_open:
            self.transcript.set_think_tags(ThinkTags(status.loaded.think_open, status.loaded.think_close))

    def _each_second(self) -> None:
        chat = self.workspace.chat
        for said in self.workspace.tend():
            self.say(said.text, said.severity)
        self._say_notices()
        if chat.session.read_only and chat.session.poll():
            self.rebuild()
        for problem in self._looks_problems():
            self.say(problem, "warning")
        if self._ticks % _SAVING == 0:
            self.workspace.unsaved()  # tries to save again
        self.transcript.refresh_scales()
        self._show_memory()
        if not self._draft_kept:
            self.keep_draft()

    def _looks_problems(self) -> list[str]:
        looks = cast("ChatApp", self.app).looks
        looks.poll()
        problems, looks.problems = looks.problems, []
        return problems

    def _lasting(self) -> str:
        """The most important thing that stays wrong; empty if nothing is."""
        session, engine = self.workspace.chat.session, self.workspace.link.status
        if session.trouble:
            return f"Not saved, /save tries again. {session.trouble}"
        if engine.phase == "lost":
            return f"F5 starts the engine again; your conversation is safe. {engine.message}"
        if engine.phase == "failed":
            return f"F4 chooses another model. {engine.message}"
        return f"{session.read_only} It is shown as it grows; b goes on in a copy." if session.read_only else ""

    # -- the transcript

    def rebuild(self) -> None:
        """Shows the conversation as it is now."""
        views = self.views.shown()
        transcript = self.transcript
        focused = transcript.focused_entry
        place = transcript.document.index_of(focused.id) if focused is not None else -1
        transcript.set_messages(views, at_end=transcript.following)
        if views and place >= 0 and transcript.message_cursor is None:
            # Another version stands in the focused message's place.
            transcript.focus_message(views[min(place, len(views) - 1)].id, scroll=False)
        self._welcome.display = not views
        self.pane.display = bool(views)
        chat = self.workspace.chat
        branch = f"  ⎇ {chat.branch_name}" if chat.branch_name else ""
        self._title.update(visible((chat.session.conversation.title or "New chat") + branch))
        self._show_memory()

    def _show_memory(self) -> None:
        chat, loaded = self.workspace.chat, self.workspace.link.status.loaded
        if loaded is None:
            return
        started = chat.started
        capacity, cached = loaded.max_kv_size, cached_tokens(chat)
        keep = started.keep if started is not None else 0
        self._window.set_window(Window(capacity, min(cached, capacity), keep, max(0, cached - capacity)))
        if started is not None and cached > capacity:
            self.transcript.set_memory(memory(self.views.shown(), started, cached, capacity))

    def show_branch(self) -> None:
        """Shows another branch of the conversation, from its end."""
        self.transcript.leave_tokens()
        self.transcript.follow()
        self.tick()
        self.rebuild()

    def show_chat(self) -> None:
        """Shows the workspace's conversation in place of the one shown."""
        self.views = Views(self.workspace.chat)
        self.transcript.leave_tokens()
        self._shown_chat()
        busy = self.workspace.elsewhere
        if busy:
            title = busy[0].session.conversation.title or "untitled"
            self.say(f"The reply in “{title}” goes on in the background and is saved.")

    def _shown_chat(self) -> None:
        self.transcript.follow()
        self.rebuild()
        self.prompt.area.show_text(self._drafts.load(self._draft_name))
        self._draft_kept = True
        self._say_notices()

    def _say_notices(self) -> None:
        notices = self.workspace.chat.session.notices
        for notice in notices:
            self.say(notice, "warning")
        notices.clear()

    @property
    def _draft_name(self) -> str:
        """Conversations that are not begun yet share one draft."""
        chat = self.workspace.chat
        return chat.id if chat.session.conversation.messages else ""

    @on(Prompt.Changed)
    def _draft_changed(self) -> None:
        self._draft_kept = False

    def keep_draft(self) -> None:
        """Writes down what is in the prompt."""
        self._draft_kept = True
        trouble = self._drafts.save(self._draft_name, self.prompt.area.full_text)
        if trouble:
            self.say(trouble, "warning")

    @on(Transcript.ScalesChanged)
    def _rescaled(self) -> None:
        self._legend.follow(self.transcript)
        self.inspect()

    @on(Transcript.TokenFocused)
    def inspect(self) -> None:
        """Shows the token under the cursor in the inspector, if that is open."""
        for panel in self.query(InspectorPanel):
            panel.follow(self.transcript)

    @on(DoubtSparkline.Walked)
    def _walk(self, event: DoubtSparkline.Walked) -> None:
        self.transcript.focus_token(event.message_id, event.index)

    # -- focus, editor

    def focus_prompt(self) -> None:
        """Puts the keyboard on the prompt, or on the editor in its place."""
        (self.edit_box.area if self.edit_box.editing is not None else self.prompt.area).focus()

    def focus_transcript(self) -> None:
        """Puts the keyboard on the transcript, its cursor on a message."""
        transcript = self.transcript
        if not transcript.document.entries:
            return
        if transcript.message_cursor is None:
            transcript.focus_message(transcript.document.entries[-1].id, scroll=False)
        transcript.focus()

    def show_editor(self, editing: Editing, text: str) -> None:
        """Puts the message editor in the prompt's place."""
        self._from_prompt = self.scope == "prompt"
        self.prompt.display = False
        self.edit_box.open(editing, text)

    def hide_editor(self) -> None:
        """Puts the prompt back, and the keyboard where it was."""
        self.edit_box.close()
        self.prompt.display = True
        if self._from_prompt:
            self.focus_prompt()
        else:
            self.focus_transcript()

    @on(EditBox.Changed)
    def _forecast(self) -> None:
        self.run_worker(self._show_forecast, exclusive=True, group="forecast")

    async def _show_forecast(self) -> None:
        await asyncio.sleep(0.25)
        editing = self.edit_box.editing
        if editing is None:
            return
        text = self.edit_box.area.full_text
        forecast = await self.workspace.chat.forecast(editing.id, text, editing.keep)
        if self.edit_box.editing is editing:
            self.edit_box.show_forecast(forecast)

    @on(PromptArea.UpInEmpty)
    def _edit_last(self) -> None:
        mine = [message for message in self.workspace.chat.path() if message.role == "user"]
        if mine:
            self.call_later(self._edit, mine[-1].id)

    async def _edit(self, id: str) -> None:
        self.transcript.focus_message(id)
        await self.run("message.edit")

    def on_key(self, event: events.Key) -> None:
        """What is typed while nothing has the keyboard (just after the start, for example) is for the prompt."""
        if self.focused is None and event.is_printable and event.character is not None:
            event.stop()
            self.focus_prompt()
            self.prompt.area.type_text(event.character)

    @on(Prompt.Ready)
    async def _completed(self) -> None:
        await self.run("prompt.send")
