"""The panel at the side (or, where it is narrow, below) that shows the token under the cursor."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from chatapp.ui.transcript import Transcript
from chatapp.ui.widgets.inspector import Inspected, Inspector


class InspectorPanel(VerticalScroll, can_focus=False):
    """Holds the inspector and lets it scroll."""

    def __init__(self) -> None:
        super().__init__(id="inspector-panel")

    def compose(self) -> ComposeResult:
        yield Inspector(id="inspector")

    def inspect(self, inspected: Inspected | None, transcript: Transcript) -> None:
        """Shows a token in the transcript's unit and scales."""
        self.query_one(Inspector).inspect(inspected, unit=transcript.unit, scales=transcript.scales)
