"""A download that a chat waits for can be stopped from the prompt, and is taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

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


async def test_escape_stops_the_download_and_f5_takes_it_up(tmp_path: Path) -> None:
    engine = Downloading()
    async with stage(tmp_path, engine, ready=False) as on:
        link = on.workspace.link
        await on.until(lambda: link.status.progress is not None)
        await on.press("escape")
        await on.until(lambda: link.status.phase == "failed")
        assert "was stopped; what is there is used when it starts again" in link.status.message
        [cancel] = engine.asked(Cancel)
        assert cancel.target == engine.asked(Load)[0].request
        await on.press("escape")
        assert len(engine.asked(Cancel)) == 1, "nothing is left to stop"
        await on.press("f5")
        await on.until(lambda: sum(len(made.asked(Load)) for made in on.engines) == 2)
