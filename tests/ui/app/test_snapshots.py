"""The whole screen as a picture, at three sizes. After a wanted change: ``pytest … --snapshot-update``, and look."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from chatapp.settings import Settings
from tests.ui.app.stage import Stage
from tests.ui.fake_engine import FakeEngine, pieces, token

REPLY = """\
A **rotating** cache keeps the first `K` tokens:

1. fill the window
2. overwrite the oldest

```python
cache.trim(n)
```
"""


def opened(folder, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The app on a saved conversation whose words, ids and doubt are always the same."""
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    s = Stage(FakeEngine(), folder, Settings(system="Be exact.", theme="dusk"))
    session = s.store.new("fake-model", "Be exact.")
    session.add_message("user", "How does the cache rotate? 永遠に 👨‍👩‍👧")
    writer = session.begin_reply(model="fake-model")
    writer.append([token(index, piece) for index, piece in enumerate(pieces(REPLY))])
    writer.finish("stop")
    session.rename("Rotating caches")
    session.close()
    s._open_id = session.id
    return s


async def settle(s: Stage, pilot: Pilot) -> None:
    s.pilot = pilot
    await s.until(lambda: s.app.chat_screen and s.app.screen is s.app.chat_screen)
    await s.until(lambda: s.workspace.link.status.phase == "ready" and s.screen.transcript.settled)
    await s.until(lambda: s.screen.transcript.is_vertical_scroll_end)  # Textual scrolls a frame later
    s.screen.prompt.area.cursor_blink = False


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 15)], ids=str)
@pytest.mark.parametrize("where", ["prompt", "tokens", "help"])
def test_screens(snap_compare, tmp_path, monkeypatch, size, where):
    s = opened(tmp_path, monkeypatch)

    async def play(pilot: Pilot) -> None:
        await settle(s, pilot)
        keys = {"prompt": (), "tokens": ("escape", "t", "n"), "help": ("f1",)}[where]
        for key in keys:
            await s.press(key)
        s.screen.tick()
        s.screen._clock._each_second()
        await pilot.pause()

    assert snap_compare(s.app, terminal_size=size, run_before=play)
