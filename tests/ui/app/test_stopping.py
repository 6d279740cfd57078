"""A download that a chat waits for can be stopped from the prompt, and is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from chatapp.protocol import AnyEvent, Cancel, Failed, Load, Progress
from tests.ui.app.stage import stage
from tests.ui.fake_engine import FakeEngine


class Downloading(FakeEngine):
    """The first load downloads until it is cancelled."""

    async def _load(self, request: Load) -> AsyncGenerator[AnyEvent, None]:
        while len(self.asked(Load)) == 1 and not self.asked(Cancel):
            yield Progress(request.request, "download", 1, 9, "bytes", "model.safetensors")
            await asyncio.sleep(0.01)
        if len(self.asked(Load)) == 1:
            yield Failed(request.request, "cancelled", "Interrupted.")
            return
        async for event in super()._load(request):
            yield event


@pytest.mark.parametrize("action", ["prompt.escape", "message.escape", "chat.stop"])
async def test_every_stop_stops_the_download_and_f5_takes_it_up(tmp_path: Path, action: str) -> None:
    engine = Downloading()
    async with stage(tmp_path, engine, ready=False) as on:
        link = on.workspace.link
        await on.until(lambda: link.status.progress is not None)
        await on.until(lambda: "Esc stops it" in str(on.screen.status.render()))
        await on.screen.run(action)
        await on.until(lambda: link.status.phase == "failed")
        await on.until(lambda: "Esc stops it" not in str(on.screen.status.render()))
        assert "was stopped; what is there is used when it starts again" in link.status.message
        await on.until(lambda: "F5 tries again, F4 chooses another" in str(on.screen.banner.render()))
        [cancel] = engine.asked(Cancel)
        assert cancel.target == engine.asked(Load)[0].request
        await on.press("escape")
        assert len(engine.asked(Cancel)) == 1, "nothing is left to stop"
        await on.press("f5")
        await on.until(lambda: sum(len(made.asked(Load)) for made in on.engines) == 2)


async def test_ctrl_c_with_nothing_selected_stops_a_reply_and_else_says_how_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatapp.ui.clipboard.program", lambda: None)
    async with stage(tmp_path) as on:
        await on.press("ctrl+c")
        await on.until(lambda: "Ctrl+Q leaves; everything is saved." in on.said)
        on.engine.gate.clear()
        on.screen.prompt.area.show_text("one")
        await on.press("enter")
        await on.until(lambda: on.workspace.chat.reply and on.workspace.chat.reply.written)
        await on.press("ctrl+c")
        await on.until(lambda: not on.workspace.chat.busy)
        assert on.workspace.chat.path()[-1].finish == "cancelled"
        await on.press("escape")
        on.screen.transcript.text_select_all()
        await on.press("ctrl+c")
        await on.until(lambda: on.app.clipboard == "one")
