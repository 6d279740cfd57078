"""The Textual app: paints first, then starts the engine, and closes everything at the end."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import BindingType

from chatapp.ui.keymap import Keymap
from chatapp.ui.looks import Looks
from chatapp.ui.screens.chat import ChatScreen
from chatapp.ui.workspace import Workspace


class ChatApp(App[object]):
    """See the module's docstring. What a person can do is on `chatapp.ui.screens.chat.ChatScreen`."""

    CSS_PATH = "app.tcss"
    TITLE = "chatapp"
    ENABLE_COMMAND_PALETTE = False  # Ctrl+P opens it with our own actions
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, workspace: Workspace, model: str) -> None:
        """Makes the app.

        Args:
            workspace: What is open; the app closes it.
            model: What the engine is to load once the screen is painted.
        """
        super().__init__()
        self.workspace = workspace
        self._model = model
        self._keymap_of_person = Keymap(workspace.settings.keys)
        self.looks = Looks(self, workspace.settings.theme)

    def get_default_screen(self) -> ChatScreen:
        return ChatScreen(self.workspace, self._keymap_of_person)

    def on_mount(self) -> None:
        self.set_keymap(self._keymap_of_person.textual())
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """What need not be there for the first paint."""
        self.workspace.link.open(self._model)
        self.looks.load_all()

    async def on_unmount(self) -> None:
        await self.workspace.close()
