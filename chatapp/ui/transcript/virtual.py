"""Another virtual height without laying out the whole screen. The one place that relies on how Textual does that.

Assigning `Widget.virtual_size` asks for a layout of the screen, because a container's size could depend on it. That
took more than half of each frame while text streamed. A transcript has the size that it is given, and a gutter that
is always there, so that only the scrollbar has to hear of the new height.
"""

from __future__ import annotations

from typing import cast

from textual.geometry import Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.widget import Widget


def resize_virtually(view: ScrollView, size: Size) -> None:
    """Gives a view of a fixed size with ``scrollbar-gutter: stable`` another virtual size."""
    before, height = view.virtual_size.height, view.container_size.height
    if (before > height) != (size.height > height):  # the scrollbar comes or goes
        view.virtual_size = size
        return
    view.set_reactive(cast("Reactive[Size]", Widget.virtual_size), size)
    if view.show_vertical_scrollbar:
        view.vertical_scrollbar.window_virtual_size = size.height
    view.scroll_y = min(view.scroll_y, view.max_scroll_y)
