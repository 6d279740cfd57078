"""Ctrl+P: every action by name, in Textual's command palette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from textual import work
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider

from chatapp.ui.keymap import Action

#: Textual's search, without the worker that it makes of itself.
_gather: Callable[[CommandPalette, str], Awaitable[None]] = CommandPalette._gather_commands.__wrapped__  # type: ignore[attr-defined]


class Palette(CommandPalette):
    """Textual's palette, but keys that come too early or twice neither end the program nor take the chat away."""

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Leaves once, as `chatapp.ui.screens.dialog.Dialog` does."""
        return super().dismiss(result) if self.is_active else AwaitComplete.nothing()

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        if self.query(CommandList):  # else the program is about to end, and has taken it away
            await _gather(self, search_value)

    def _action_command_list(self, action: str) -> None:
        if self.query_one(CommandList).size:
            super()._action_command_list(action)


class ActionProvider(Provider):
    """The actions of the keymap that can be named; movement has keys only."""

    def _actions(self) -> list[Action]:
        from chatapp.ui.screens.chat import ChatScreen

        assert isinstance(self.screen, ChatScreen)
        return [action for action in self.screen.keymap.actions.values() if action.command]

    async def discover(self) -> Hits:
        for action in self._actions():
            yield DiscoveryHit(self._words(action), self._runner(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._actions():
            words = self._words(action)
            score = max(map(matcher.match, (words, action.label, f"/{action.command}")))
            if score > 0:
                yield Hit(score, matcher.highlight(words), self._runner(action))

    def _words(self, action: Action) -> str:
        from chatapp.ui.screens.chat import ChatScreen

        assert isinstance(self.screen, ChatScreen)
        keys = self.screen.keymap.keys(action.id)
        return f"{action.help}  {keys}" if keys else action.help

    def _runner(self, action: Action) -> partial[object]:
        from chatapp.ui.screens.chat import ChatScreen

        assert isinstance(self.screen, ChatScreen)
        return partial(self.screen.run, action.id)
