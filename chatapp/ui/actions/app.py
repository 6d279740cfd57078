"""Actions that are the same wherever one is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from chatapp.ui.actions.base import Group
from chatapp.ui.actions.chat import save_copy
from chatapp.ui.changes import Refused
from chatapp.ui.widgets.side import InspectorPanel

if TYPE_CHECKING:
    from chatapp.ui.screens.chat import ChatScreen
    from chatapp.ui.widgets.edit_box import Editing


class AppActions(Group):
    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._warned: Editing | None = None  # that leaving loses this edit

    def help(self, argument: str) -> None:
        from chatapp.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(self.screen.keymap, self.screen.scope))

    async def inspector(self, argument: str) -> None:
        panels = self.screen.query(InspectorPanel)
        if panels and panels.first().display:
            await panels.remove()
        else:
            await self.show_inspector(pinned=True)

    async def show_inspector(self, *, pinned: bool = False) -> None:
        """Opens the token inspector if it is not open."""
        panels = self.screen.query(InspectorPanel)
        if not panels:
            await self.screen.query_one("#middle").mount(InspectorPanel(pinned))
        elif pinned:
            panels.first().pinned = True
        self.screen.inspect()

    async def conversations(self, argument: str) -> None:
        from chatapp.ui.widgets.chat_list import ChatList

        lists = self.screen.query(ChatList)
        if lists and lists.first().has_focus_within:
            await lists.remove()
            self.screen.focus_prompt()
            return
        if not lists:
            await self.screen.query_one("#middle").mount(ChatList(self.workspace.store), before=0)
        shown = self.screen.query_one(ChatList)
        shown.show_current(self.chat.id)
        shown.focus_options()

    def model(self, argument: str) -> None:
        if argument:
            self._load(argument)
            return
        from chatapp.ui.screens.models import ModelsScreen

        status = self.workspace.link.status
        in_use = status.model if status.phase == "ready" else ""
        self.screen.ask(ModelsScreen(self.workspace.downloads, in_use), self._load)

    def _load(self, name: str | None) -> None:
        if not name:
            return
        if self.chat.busy or self.workspace.elsewhere:
            raise Refused("A reply is being written with the loaded model; Esc stops it.")
        self.workspace.link.open(name)
        self.say(f"{name} is being loaded; replies carry the name of the model that wrote them.")

    def restart(self, argument: str) -> None:
        if self.workspace.link.status.phase == "off":
            raise Refused("No model was chosen yet; F4 chooses one.")
        self.workspace.link.restart()
        self.say("The engine starts again; the conversation is as it was.")

    def palette(self, argument: str) -> None:
        from chatapp.ui.palette import ActionProvider, Palette

        self.app.push_screen(Palette(providers=[ActionProvider], placeholder="What to do?"))

    def theme(self, argument: str) -> None:
        app = self.app
        names = app.looks.names
        if argument and argument not in names:
            raise Refused(f"There is no theme {argument!r}; there are {', '.join(names)}.")
        if argument:
            app.looks.choose(argument)
            return
        from chatapp.ui.screens.pick import PickScreen

        def preview(name: str) -> None:
            app.theme = name

        def chosen(name: str | None) -> None:
            if name is not None:
                app.looks.choose(name)

        self.screen.ask(PickScreen("Theme", [(name, name) for name in names], app.theme, preview), chosen)

    def new(self, argument: str) -> None:
        self.workspace.new()
        self.screen.show_chat()
        self.screen.focus_prompt()

    def screenshot(self, argument: str) -> None:
        path = Path(argument or f"chatapp-{time.strftime('%Y%m%d-%H%M%S')}.svg").expanduser().absolute()
        try:
            path.write_text(self.app.export_screenshot(title="chatapp"), encoding="utf-8")
        except OSError as error:
            raise Refused(f"{path} cannot be written: {error.strerror}.") from error
        self.say(f"Written to {path}.")

    def quit(self, argument: str) -> None:
        editing = self.screen.edit_box.editing
        if editing is not self._warned:
            self._warned = editing
            if editing is not None:
                raise Refused("Your edit is not taken over yet: Enter does that, Ctrl+Q again leaves without it.")
        self.screen.keep_draft()
        if self.workspace.unsaved():
            self._ask_unsaved()
        else:
            self.app.exit()

    def _ask_unsaved(self) -> None:
        """Lines wait in memory, and the disk does not take them: the person decides."""
        from chatapp.ui.screens.pick import PickScreen

        lines = sum(chat.session.unsaved for chat in self.workspace.unsaved())
        values = [
            ("again", "Try to save again, then leave"),
            ("elsewhere", "Write them to another folder, then leave"),
            ("stay", "Stay here"),
            ("leave", "Leave all the same"),
        ]
        what = "1 change is" if lines == 1 else f"{lines} changes are"
        self.screen.ask(PickScreen(f"{what} not on the disk", values, "again"), self._unsaved_chosen)

    def _unsaved_chosen(self, choice: str | None) -> None:
        if choice == "again":
            self.quit("")
        elif choice == "leave":
            self.app.exit()
        elif choice == "elsewhere":
            from chatapp.ui.screens.ask import AskScreen

            self.screen.ask(AskScreen("Folder for the conversations", str(Path.home())), self._leave_with_copies)

    def _leave_with_copies(self, folder: str | None) -> None:
        if not folder:
            return
        paths = [save_copy(chat.session, folder) for chat in self.workspace.unsaved()]
        self.app.farewell += [f"Written to {path}; `chatapp import` takes it in." for path in paths]
        self.app.exit()
