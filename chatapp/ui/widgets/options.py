"""A list of options whose page keys may come at any time, and which leaves room for what stands around it."""

from __future__ import annotations

from contextlib import suppress

from textual.geometry import Size
from textual.widgets import OptionList

from chatapp.ui.screens.sizes import TALL

#: Rows that the rest of a dialog takes at most, on low and on tall screens.
_REST_LOW, _REST_TALL = 7, 14
_FEWEST = 3


class Options(OptionList):
    """See the module's docstring."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows of a list whose height is its content's. Textual leaves a ``max-height`` out there."""
        rest = _REST_TALL if viewport.height >= TALL else _REST_LOW
        most = min(viewport.height // 2, viewport.height - rest)
        return min(super().get_content_height(container, viewport, width), max(_FEWEST, most))

    def action_page_up(self) -> None:
        """Moves up by a page; nothing before the lines that Textual counts by are laid out."""
        with suppress(KeyError, IndexError):
            super().action_page_up()

    def action_page_down(self) -> None:
        """Moves down by a page; see `action_page_up`."""
        with suppress(KeyError, IndexError):
            super().action_page_down()
