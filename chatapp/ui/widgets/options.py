"""A list of options whose page keys may come at any time."""

from __future__ import annotations

from contextlib import suppress

from textual.widgets import OptionList


class Options(OptionList):
    """Textual's list counts pages in lines that the next drawing lays out; before that a page key does nothing."""

    def action_page_up(self) -> None:
        """Moves up by a page."""
        with suppress(KeyError, IndexError):
            super().action_page_up()

    def action_page_down(self) -> None:
        """Moves down by a page."""
        with suppress(KeyError, IndexError):
            super().action_page_down()
