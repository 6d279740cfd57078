"""The mouse on the running app."""

from __future__ import annotations

from textual import events
from textual.widgets import Static

from tests.ui.app.stage import stage


async def test_a_click_on_what_was_just_removed_breaks_nothing(tmp_path):
    """Until the next frame Textual finds the widget there, and takes for granted that it is part of something."""
    async with stage(tmp_path) as s:
        removed = Static("words that can be selected")
        await s.screen.mount(removed)
        await s.until(lambda: removed.region.width)
        x, y = removed.region.x + 2, removed.region.y
        with s.app.batch_update():  # no frame meanwhile
            await removed.remove()
            assert s.app.get_widget_at(x, y)[0] is removed
            for kind in (events.MouseMove, events.MouseDown, events.MouseMove, events.MouseUp):
                await s.app.on_event(kind(None, x, y, 0, 0, 1, False, False, False, x, y))
        await s.press("a")
        assert s.app._exception is None
