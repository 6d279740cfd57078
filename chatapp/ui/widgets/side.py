"""The panel at the side (or, where it is narrow, below) that shows the token under the cursor."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from chatapp.ui.transcript import Transcript
from chatapp.ui.widgets.inspector import Inspected, Inspector
from chatapp.ui.widgets.sparkline import DoubtSparkline


class InspectorPanel(VerticalScroll, can_focus=False):
    """The course of the reply's doubt, and everything known about the token under the cursor.

    Attributes:
        pinned: It stays when the token cursor is left; else it comes and goes with it.
    """

    def __init__(self, pinned: bool) -> None:
        super().__init__(id="inspector-panel")
        self.pinned = pinned
        # Made here, not looked up: the cursor may move before the panel is composed and after it is taken away.
        self._sparkline = DoubtSparkline(id="sparkline")
        self._sparkline.can_focus = False  # the keys of tokens walk it
        self._inspector = Inspector(id="inspector")

    def compose(self) -> ComposeResult:
        yield self._sparkline
        yield self._inspector

    def follow(self, transcript: Transcript) -> None:
        """Shows the token under the transcript's cursor, in its unit and scales."""
        entry, index = transcript.focused_entry, transcript.token_cursor
        self.display = self.pinned or index is not None
        sparkline, inspector = self._sparkline, self._inspector
        sparkline.set_ramp(transcript.ramp)
        inspector.set_ramp(transcript.ramp)
        sparkline.set_scale(transcript.heat, transcript.scales)
        if entry is None or index is None:
            sparkline.set_tokens("", ())
            inspector.inspect(None, unit=transcript.unit, scales=transcript.scales)
            return
        sparkline.set_tokens(entry.id, entry.tokens, index)
        inspected = Inspected(entry.tokens[index], index, len(entry.tokens))
        inspector.inspect(inspected, unit=transcript.unit, scales=transcript.scales)
