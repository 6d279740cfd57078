"""When frames are drawn, and what `chatapp.ui.frames` assumes of Textual."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.app import App
from textual.screen import UPDATE_PERIOD, Screen
from textual.timer import Timer
from textual.widgets import Static

from chatapp.ui import frames
from chatapp.ui.frames import BREATH, FrameTimer, PacedScreen
from tests.ui.app.stage import stage


class Time:
    """A clock on which only sleeping and drawing take time."""

    def __init__(self, costs: list[float]) -> None:
        self.now = 100.0
        self.begun: list[float] = []
        self._costs = costs

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def draw(self) -> None:
        self.begun.append(self.now)
        self.now += self._costs.pop(0)
        if not self._costs:
            raise asyncio.CancelledError


async def drawn(timer: type[Timer], costs: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds from the beginning of each frame to that of the next, where they are always wanted."""
    time = Time(costs)
    monkeypatch.setattr("chatapp.ui.frames.monotonic", time)
    monkeypatch.setattr("textual._time.get_time", time)
    monkeypatch.setattr("textual.timer.sleep", time.sleep)
    monkeypatch.setattr(frames.asyncio, "sleep", time.sleep)
    app: App[None] = App()
    with app._context():
        await timer(app, UPDATE_PERIOD, callback=time.draw)._run_timer()
    return [after - before for before, after in zip(time.begun, time.begun[1:], strict=False)]


async def test_frames_keep_the_beat_and_a_long_one_delays_the_next_by_no_more_than_itself(
    monkeypatch: pytest.MonkeyPatch,
):
    long = 1.2 * UPDATE_PERIOD
    gaps = await drawn(FrameTimer, [0.001, 0.001, long, 0.001], monkeypatch)
    assert gaps == pytest.approx([UPDATE_PERIOD, UPDATE_PERIOD, long + BREATH])


async def test_textuals_timer_leaves_beats_out(monkeypatch: pytest.MonkeyPatch):
    """Why there is a timer of our own. When this fails, `chatapp.ui.frames` can go."""
    gaps = await drawn(Timer, [0.001, 1.2 * UPDATE_PERIOD, 0.001], monkeypatch)
    assert gaps[-1] > 2 * UPDATE_PERIOD


class Host(App[None]):
    def get_default_screen(self) -> Screen[None]:
        return PacedScreen()


async def test_a_screen_draws_from_its_frame_timer_alone():
    async with Host().run_test() as pilot:
        screen = pilot.app.screen
        await screen.mount(label := Static("one"))
        await pilot.pause()
        assert [timer.name for timer in screen._timers if timer.name in ("frames", "screen_update")] == ["frames"]
        label.update("two")
        await pilot.pause()
        assert "two" in pilot.app.export_screenshot()


async def test_the_chat_is_drawn_so(tmp_path: Path):
    async with stage(tmp_path) as s:
        assert isinstance(s.screen._update_timer, FrameTimer)
