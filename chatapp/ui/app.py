"""The Textual app: paints first, then imports the chat, then starts the engine, and closes everything at the end.

Whatever is imported at the top of this module delays the first paint; the chat screen and all it needs comes after it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.errors import NoWidget
from textual.filter import LineFilter

from chatapp.settings import Settings
from chatapp.ui.key_order import KeyOrder, Typed
from chatapp.ui.looks import Looks
from chatapp.ui.screens.first import FirstScreen
from chatapp.ui.terminal import LeaveNow, Printable, TerminalDriver

if TYPE_CHECKING:
    from chatapp.ui.screens.chat import ChatScreen
    from chatapp.ui.workspace import Workspace


class ChatApp(App[object]):
    """See the module's docstring. What a person can do is on `chatapp.ui.screens.chat.ChatScreen`.

    Attributes:
        chat_screen: The chat, once it is there.
        farewell: Sentences to print after the end.
    """

    TITLE = "chatapp"
    ENABLE_COMMAND_PALETTE = False  # Ctrl+P opens it with our own actions

    def __init__(self, settings: Settings, open_workspace: Callable[[], Workspace], model: str) -> None:
        """Makes the app.

        Args:
            settings: Of the person.
            open_workspace: Opens what is shown; called after the first paint. The app closes it.
            model: What the engine is to load.
        """
        super().__init__()
        self._settings = settings
        self._open_workspace = open_workspace
        self._model = model
        self.chat_screen: ChatScreen | None = None
        self.farewell: list[str] = []
        self.looks = Looks(self, settings.theme)
        self._printable = Printable()
        self._key_order = KeyOrder(self, super().on_event)

    def get_driver_class(self) -> type[Driver]:
        """Textual's driver for Linux and macOS is replaced by ours."""
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """For what our style sheet asks for beyond Textual's variables, should no theme of ours be readable."""
        return {"line": "#505868", "faint": "#909090", "fainter": "#707070"}

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line passes on its way to the terminal."""
        return [*super().get_line_filters(), self._printable]

    def get_default_screen(self) -> FirstScreen:
        return FirstScreen()

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes pass one by one; see `KeyOrder`. What finds nothing any more that it is for is dropped."""
        if isinstance(event, events.InputEvent | events.Paste) and not self.screen_stack:
            return  # the app ends
        if isinstance(event, events.MouseDown | events.MouseMove) and self._is_over_what_was(event):
            return
        if isinstance(event, Typed) and not event.is_forwarded:
            await self._key_order.take(event)
        else:
            await super().on_event(event)

    def _is_over_what_was(self, event: events.MouseEvent) -> bool:
        """Whether the mouse is over a widget that is removed already, and still on the screen until the next frame."""
        try:
            widget, _ = self.get_widget_at(event.x, event.y)
        except NoWidget:
            return False
        return not widget.is_attached

    def on_mount(self) -> None:
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """What need not be there for the first paint."""
        from chatapp.ui.keymap import Keymap
        from chatapp.ui.screens.chat import ChatScreen

        workspace = self._open_workspace()
        workspace.link.open(self._model)
        keymap = Keymap(self._settings.keys)
        self.set_keymap(keymap.textual())
        self.chat_screen = ChatScreen(workspace, keymap)
        first = self.screen
        await self.push_screen(self.chat_screen)
        if isinstance(first, FirstScreen):
            for event in first.typed:
                self.post_message(event)
        self.looks.load_all()
        self.call_after_refresh(_keep_for_good)

    async def action_quit(self) -> None:
        """Textual's own key for leaving is ours, too: it must not pass over what is not saved."""
        if self.chat_screen is None:
            self.exit()
        else:
            await self.chat_screen.run("app.quit")

    def action_help_quit(self) -> None:
        """Ctrl+C where nothing is selected: stops what goes on, else says how to leave."""
        screen = self.chat_screen
        if screen is None:
            self.exit()
        elif not screen.groups.app.halt():
            screen.say(f"{screen.keymap.keys('app.quit')} leaves; everything is saved.")

    def copy_to_clipboard(self, text: str) -> None:
        """Copies by the terminal, and by the system's own program where there is one."""
        from chatapp.ui import clipboard

        super().copy_to_clipboard(text.encode("utf-8", "replace").decode())  # lone surrogates would end the program
        self.run_worker(clipboard.copy(text))

    def on_leave_now(self, message: LeaveNow) -> None:
        """Ends the program unasked; what is written and not sent is kept."""
        if self.chat_screen is not None and not self.chat_screen.draft_kept:
            self.chat_screen.keep_draft()
        self.exit(return_code=128 + message.number)

    async def on_unmount(self) -> None:
        gc.unfreeze()
        if self.chat_screen is not None:
            self.farewell += [*await self.chat_screen.workspace.close(), *self.chat_screen.drafts.lost()]


def _keep_for_good() -> None:
    """Takes all there is now out of Python's full collections: while they ran, keys waited."""
    gc.collect()
    gc.freeze()
