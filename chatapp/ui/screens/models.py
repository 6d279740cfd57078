"""The model picker: what is here, what fits in memory, downloads with their progress."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from chatapp.errors import ChatappError
from chatapp.models import fit
from chatapp.models.catalog import Entry, look_at_all
from chatapp.models.registry import load_registry
from chatapp.models.space import size_text
from chatapp.text import visible
from chatapp.ui.downloads import Download, Downloads
from chatapp.ui.screens.dialog import Dialog
from chatapp.ui.views import short_model
from chatapp.ui.widgets.options import Options
from chatapp.ui.widgets.status import progress_words

_STATES = {"ready": "●", "partial": "◐", "absent": "○"}


@dataclass(frozen=True)
class Known:
    """A model of the list, and whether it fits into the memory there is now (None: its size is unknown)."""

    entry: Entry
    fits: bool | None


class ModelsScreen(Dialog[str | None]):
    """Its result is the model to load, or None where the person left. Downloads go on when it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Leave"),
        Binding("ctrl+s", "stop", "Stop the download"),
    ]

    def __init__(self, downloads: Downloads, loaded: str) -> None:
        """Makes the screen.

        Args:
            downloads: Those that run, and where new ones are begun.
            loaded: Name of the model in use.
        """
        super().__init__()
        self._downloads = downloads
        self._loaded = loaded
        self._known: list[Known] = []
        self._shown: list[Known] = []
        self._downloading: set[str] = set()
        # Held here: the look at the disk may end after the screen was left.
        self._field = Input(placeholder="filter, or owner/repo, or a folder", compact=True)
        self._options = Options(markup=False, compact=True)
        self._note = Static("looking …", id="models-note", markup=False)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide"):
            in_use = f" · {short_model(self._loaded)} is in use" if self._loaded else ""
            yield Static(visible(f"Models{in_use}"), classes="dialog-title", markup=False)
            yield self._field
            yield self._options
            yield self._note
            yield Static(
                "● here  ◐ in part  ○ to download · Enter loads or downloads · Ctrl+S stops a download · Esc leaves",
                classes="dialog-hint",
                markup=False,
            )

    def on_mount(self) -> None:
        self._options.can_focus = False
        self.run_worker(self._look, exclusive=True)
        self.set_interval(0.25, self._follow)

    async def _look(self) -> None:
        try:
            self._known = await asyncio.to_thread(_all)
        except ChatappError as error:
            self._note.update(visible(str(error)))
            return
        self._show()

    def _show(self) -> None:
        wanted = self._field.value.strip().lower()
        options = self._options
        before = options.highlighted
        self._shown = [
            known for known in self._known if wanted in f"{known.entry.spec.name} {known.entry.spec.title}".lower()
        ]
        options.clear_options()
        options.add_options(
            Option(row(known, known.entry.spec.name == self._loaded, self._downloads.running)) for known in self._shown
        )
        if self._shown:
            current = next((i for i, known in enumerate(self._shown) if known.entry.spec.name == self._loaded), 0)
            options.highlighted = min(before, len(self._shown) - 1) if before is not None else current
        self._show_note()

    def _show_note(self) -> None:
        index = self._options.highlighted
        note = self._note
        if index is None or index >= len(self._shown):
            wanted = self._field.value.strip()
            note.update(visible(f"Enter looks for {wanted} on the Hub or this disk.") if wanted else "")
            return
        spec = self._shown[index].entry.spec
        note.update(visible(" · ".join(part for part in (spec.name, spec.license, spec.note) if part)))

    def _follow(self) -> None:
        """Shows how far the downloads are; looks again when one has ended."""
        running = set(self._downloads.running)
        if self._downloading - running:
            self.run_worker(self._look, exclusive=True)
        elif running:
            self._show()
        self._downloading = running

    def on_input_changed(self) -> None:
        self._show()

    def on_option_list_option_highlighted(self) -> None:
        self._show_note()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._take(self._shown[event.option_index].entry)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        index = self._options.highlighted
        if index is not None and index < len(self._shown):
            self._take(self._shown[index].entry)
        elif event.value.strip():
            self.dismiss(event.value.strip())

    def _take(self, entry: Entry) -> None:
        if entry.state == "ready":
            self.dismiss(entry.spec.name)
        else:
            self._downloads.start(entry.spec.name)
            self._show()

    def on_key(self, event: events.Key) -> None:
        options = self._options
        if event.key in ("up", "down"):
            event.stop()
            (options.action_cursor_up if event.key == "up" else options.action_cursor_down)()

    def action_stop(self) -> None:
        index = self._options.highlighted
        if index is not None and index < len(self._shown):
            self._downloads.stop(self._shown[index].entry.spec.name)


def _all() -> list[Known]:
    available = fit.available_bytes()
    return [Known(entry, entry.fits(available)) for entry in look_at_all(load_registry())]


def row(known: Known, loaded: bool, running: dict[str, Download]) -> Content:
    """A model's line: state, name, size, whether it fits, and the download if one runs."""
    entry = known.entry
    size = entry.bytes if entry.state == "ready" else entry.spec.download_bytes
    parts: list[tuple[str, str]] = [
        (f"{_STATES[entry.state]} ", "$text-success" if entry.state == "ready" else "$faint"),
        (f"{visible(entry.spec.title or entry.spec.name)[:30]:<30} ", "bold" if loaded else ""),
        (f"{size_text(size) if size else '':>8}  ", "$faint"),
    ]
    if entry.spec.name in running:
        parts.append((progress_words(running[entry.spec.name].progress), "$text-accent"))
    elif loaded:
        parts.append(("in use", "$text-success"))
    elif known.fits is False:
        parts.append(("more than the free memory", "$text-warning"))
    return Content.assemble(*parts)
