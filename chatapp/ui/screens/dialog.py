"""What all screens that stand over the chat for a moment have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

from chatapp.ui.screens.sizes import LOW

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A dialog; on low terminals the style class ``-low`` makes it spare with rows."""

    VERTICAL_BREAKPOINTS = LOW

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Leaves with a result. A second Enter or Esc that came before the first was served leaves nothing else."""
        if not self.is_active:
            return AwaitComplete.nothing()
        return super().dismiss(result)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No key acts before the widgets are there: one under way when the dialog opened may come too early."""
        return self.is_mounted and super().check_action(action, parameters)
