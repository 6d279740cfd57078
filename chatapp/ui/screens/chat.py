"""The main screen: puts the widgets together and runs actions; `Clock` carries what a `Chat` tells to the widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import Static

from chatapp.errors import ChatappError
from chatapp.text import visible
from chatapp.ui.actions.groups import Groups
from chatapp.ui.changes import Refused, Severity
from chatapp.ui.frames import PacedScreen
from chatapp.ui.heat import RAMPS, Heat
from chatapp.ui.keymap import Keymap, Scope, bindings
from chatapp.ui.prompt.area import WritingArea
from chatapp.ui.prompt.drafts import Drafts
from chatapp.ui.prompt.history import History
from chatapp.ui.prompt.prompt import Prompt, PromptArea
from chatapp.ui.screens.clock import RATE, Clock
from chatapp.ui.screens.sizes import LOW, WIDTHS
from chatapp.ui.transcript import Transcript
from chatapp.ui.values import Values
from chatapp.ui.views import Views, memory
from chatapp.ui.widgets.banner import Banner
from chatapp.ui.widgets.context_bar import ContextBar, Window
from chatapp.ui.widgets.edit_box import EditBox, Editing
from chatapp.ui.widgets.hints import Hints
from chatapp.ui.widgets.legend import Legend
from chatapp.ui.widgets.pane import TranscriptPane
from chatapp.ui.widgets.side import InspectorPanel
from chatapp.ui.widgets.sparkline import DoubtSparkline
from chatapp.ui.widgets.status import StatusLine, cached_tokens
from chatapp.ui.widgets.welcome import Welcome
from chatapp.ui.workspace import Workspace

Answer = TypeVar("Answer")

#: Groups of actions that would pull the rug from under an open editor, and what of them is harmless.
_CHANGING = ("prompt", "message", "token", "chat", "list", "branch")
_HARMLESS = {
    *("message.heat", "message.units", "message.scale"),
    *("chat.stop", "chat.retry_save", "chat.save_elsewhere"),
}


class ChatScreen(PacedScreen[None]):
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
        self.drafts = Drafts()
        self._shown = workspace.chat
        self.views = Views(self._shown)
        self.pane = TranscriptPane()
        self.transcript = self.pane.transcript
        self.edit_box = EditBox()
        self.prompt = Prompt(keymap, "Write a message  (/ for commands)")
        self.prompt.arguments = Values(self)
        self._title = Static(id="title", markup=False)
        self.banner = Banner()
        self.welcome = Welcome(keymap)
        self._legend = Legend(id="legend")
        self._window = ContextBar(id="window")
        self.status = StatusLine()
        self.hints = Hints(keymap)
        self.draft_kept = True
        self._draft_kept_as = ""
        self._last_said = ""
        self._from_prompt = False
        self._clock = Clock(self)

    # -- what is on it

    def compose(self) -> ComposeResult:
        yield self._title
        with Horizontal(id="middle"), Vertical(id="main"):
            yield self.banner
            yield self.welcome
            yield self.pane
        with Horizontal(id="gauges"):
            yield self._legend
            yield self._window
        yield self.edit_box
        yield self.prompt
        yield self.status
        yield self.hints

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
        self.set_interval(1 / RATE, self._clock.tick)
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
        """Runs an action on the conversation as it is now; what it refuses is said."""
        self._clock.show_messages()
        method, own = self.groups.method(id)

        def allowed() -> Awaitable[None] | None:
            self._must_not_disturb(id)
            return method(argument or own)

        await self._attempt(allowed)

    def ask(self, dialog: Screen[Answer], then: Callable[[Answer | None], Awaitable[None] | None]) -> None:
        """Shows a dialog and does something with its answer; what that refuses is said, as `run` does."""

        async def answered(answer: Answer | None) -> None:
            await self._attempt(lambda: then(answer))

        self.app.push_screen(dialog, answered)

    def work(self, do: Callable[[], Awaitable[None]]) -> None:
        """Does something that takes its time, while all else goes on; what it refuses is said, as `run` does."""
        self.run_worker(self._attempt(do))

    async def _attempt(self, do: Callable[[], Awaitable[None] | None]) -> None:
        try:
            result = do()
            if result is not None:
                await result
        except ChatappError as error:
            self.say(str(error), "warning")

    def _must_not_disturb(self, id: str) -> None:
        changes = id == "app.new" or (id.partition(".")[0] in _CHANGING and id not in _HARMLESS)
        if self.edit_box.editing is not None and changes:
            raise Refused("Finish the edit first: Enter takes it over, Esc leaves it.")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of tokens hold while the token cursor is in a reply."""
        if action == "do" and str(parameters[0]).startswith("token."):
            return self.transcript.token_cursor is not None
        return True

    def say(self, text: str, severity: Severity = "information") -> None:
        """Tells the person something for a few seconds; what is said again does not pile up."""
        if text == self._last_said:
            self.app.clear_notifications()
        self._last_said = text
        self.notify(visible(text), severity=severity, markup=False, timeout=4 if severity == "information" else 8)

    def tick(self) -> None:
        """Shows at once what has just been done, without waiting for the clock."""
        self._clock.tick()

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
        self.welcome.display = not views
        self.pane.display = bool(views)
        chat = self.workspace.chat
        branch = f"  ⎇ {chat.branch_name}" if chat.branch_name else ""
        self._title.update(visible((chat.session.conversation.title or "New chat") + branch))
        self.show_memory()

    def show_memory(self) -> None:
        """Shows how full the window is, and what the model has forgotten."""
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
        """Shows the workspace's conversation in place of the one shown, whose draft is kept."""
        self.keep_draft()
        self._shown = self.workspace.chat
        self.views = Views(self._shown)
        self.transcript.leave_tokens()
        self._shown_chat()
        busy = self.workspace.elsewhere
        if busy:
            title = busy[0].session.conversation.title or "untitled"
            self.say(f"The reply in “{title}” goes on in the background and is saved.")

    def _shown_chat(self) -> None:
        self.transcript.follow()
        self.rebuild()
        self._draft_kept_as = self._draft_name
        self.prompt.area.show_text(self.drafts.load(self._draft_kept_as))
        self.draft_kept = True
        self.say_notices()

    def say_notices(self) -> None:
        """Says what the conversation's file has to tell, once."""
        notices = self.workspace.chat.session.notices
        for notice in notices:
            self.say(notice, "warning")
        notices.clear()

    @property
    def _draft_name(self) -> str:
        """Conversations that are not begun yet share one draft."""
        return self._shown.id if self._shown.session.conversation.messages else ""

    @on(Prompt.Changed)
    def _draft_changed(self) -> None:
        self.draft_kept = False

    def keep_draft(self) -> None:
        """Writes down what is in the prompt, and in an open editor."""
        self.draft_kept = True
        if self._draft_kept_as != self._draft_name:  # the conversation has begun
            self.drafts.save(self._draft_kept_as, "")
            self._draft_kept_as = self._draft_name
        self._keep(self._draft_kept_as, self.prompt.area.full_text)
        if self.edit_box.editing is not None:
            self._keep(self.edit_draft(self.edit_box.editing.id), self.edit_box.area.full_text)

    def _keep(self, name: str, text: str) -> None:
        if trouble := self.drafts.save(name, text):
            self.say(trouble, "warning")

    def edit_draft(self, id: str) -> str:
        """The name of the draft of an edit of a message that is not confirmed."""
        return f"{self._shown.id}-{id}"

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
        self._writing.focus()

    @property
    def _writing(self) -> WritingArea:
        return self.edit_box.area if self.edit_box.editing is not None else self.prompt.area

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
        """Puts the prompt back, and the keyboard where it was; the edit is done or given up."""
        if self.edit_box.editing is not None:
            self._keep(self.edit_draft(self.edit_box.editing.id), "")
        self.edit_box.close()
        self.prompt.display = True
        if self._from_prompt:
            self.focus_prompt()
        else:
            self.focus_transcript()

    @on(EditBox.Changed)
    def _edit_changed(self) -> None:
        self.draft_kept = False
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

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted where nothing takes it (on a message, for example) is for the prompt."""
        event.stop()
        self.focus_prompt()
        self._writing.take_paste(event.text)

    @on(Prompt.Ready)
    async def _completed(self) -> None:
        await self.run("prompt.send")
