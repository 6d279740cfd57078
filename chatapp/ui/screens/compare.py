"""Replies side by side, to choose the one to go on with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Static

from chatapp.ui.screens.dialog import Dialog
from chatapp.ui.transcript import MessageView, Transcript
from chatapp.ui.widgets.siblings import Siblings


class CompareScreen(Dialog[str | None]):
    """Its result is the chosen reply's id, or None where the person left."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "Leave"),
        Binding("left,h,shift+tab", "move(-1)", "Left"),
        Binding("right,l,tab", "move(1)", "Right"),
        Binding("enter", "choose", "Choose"),
        Binding("down,j", "scroll(1)", "Down"),
        Binding("up,k", "scroll(-1)", "Up"),
        *(Binding(str(number), f"number({number})", show=False) for number in range(1, 10)),
    ]

    def __init__(self, title: str, views: Sequence[MessageView], current: int, transcript: Transcript) -> None:
        super().__init__()
        self._title = title
        self._views = list(views)
        self._current = current
        self._look = (transcript.heat, transcript.scales, transcript.unit, transcript.ramp)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog full"):
            yield Static(self._title, classes="dialog-title", markup=False)
            yield Siblings(id="siblings")
            yield Static(
                "← → another · ↑ ↓ scroll · Enter or its number takes it · Esc leaves",
                classes="dialog-hint",
                markup=False,
            )

    @property
    def _siblings(self) -> Siblings:
        return self.query_one(Siblings)

    def on_mount(self) -> None:
        self._siblings.set_scale(*self._look)
        self._siblings.set_replies(self._views, self._current)
        self._siblings.focus()

    def action_move(self, by: int) -> None:
        self._siblings.move(by)

    def action_scroll(self, by: int) -> None:
        self._siblings.scroll_relative(y=by, animate=False)

    def action_choose(self) -> None:
        self._siblings.choose()

    def action_number(self, number: int) -> None:
        if number <= len(self._views):
            self.dismiss(self._views[number - 1].id)

    def on_siblings_chosen(self, event: Siblings.Chosen) -> None:
        self.dismiss(event.message_id)
