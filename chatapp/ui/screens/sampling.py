"""Sampling settings of one conversation, as a form made from the fields of `chatapp.protocol.Sampling`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Input, Label, Static

from chatapp.protocol import Sampling
from chatapp.text import visible
from chatapp.ui.actions.chat import parsed
from chatapp.ui.changes import Refused
from chatapp.ui.screens.dialog import Dialog

#: Options that a person sets, in the order shown, with a few words.
FIELDS = {
    "sampler": "standard, adaptive or another one",
    "temperature": "0 is greedy",
    "top_k": "likeliest tokens to draw from",
    "top_p": "their probability mass",
    "min_p": "least share of the likeliest one's probability",
    "xtc_probability": "chance to leave out the top choices",
    "xtc_threshold": "which ones those are",
    "repetition_penalty": "1 is off",
    "presence_penalty": "0 is off",
    "frequency_penalty": "0 is off",
    "seed": "the same seed draws the same reply",
    "max_tokens": "longest reply",
    "stop": "text that ends the reply",
}


class SamplingScreen(Dialog[dict[str, Any] | None]):
    """A field for each option; empty means the default, which stands in it faintly. Its result is what was set."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("up", "app.focus_previous", "Up"),
        Binding("down", "app.focus_next", "Down"),
    ]

    def __init__(self, own: dict[str, Any], merged: Sampling, model: Sampling) -> None:
        """Makes the form.

        Args:
            own: What this conversation sets.
            merged: The options in force.
            model: The model's defaults.
        """
        super().__init__()
        self._own = own
        without_own = {key: value for key, value in msgspec.to_builtins(merged).items() if key not in own}
        self._defaults = {**msgspec.to_builtins(model), **without_own}

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static("Sampling of this conversation", classes="dialog-title", markup=False)
            with VerticalScroll(can_focus=False):
                for name, words in FIELDS.items():
                    with Horizontal(classes="field"):
                        yield Label(name.replace("_", " "), markup=False)
                        yield Input(
                            shown(self._own.get(name)),
                            placeholder=shown(self._defaults.get(name)) or words,
                            id=name,
                            compact=True,
                        )
            yield Static(id="sampling-trouble", markup=False)
            yield Static("Tab next · empty is the default · Enter takes it over · Esc leaves", classes="dialog-hint")

    def on_input_submitted(self) -> None:
        options: dict[str, Any] = {key: value for key, value in self._own.items() if key not in FIELDS}
        for name in FIELDS:
            field = self.query_one(f"#{name}", Input)
            try:
                read = parsed(name, field.value.strip())[name]
            except Refused as error:
                self.query_one("#sampling-trouble", Static).update(visible(str(error)))
                field.focus()
                return
            if read is not None:
                options[name] = read
        self.dismiss(options)


def shown(value: Any) -> str:
    """An option's value as it is typed."""
    if value is None:
        return ""
    return ", ".join(value) if isinstance(value, list | tuple) else str(value)
