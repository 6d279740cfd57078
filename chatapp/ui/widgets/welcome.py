"""What stands where no message is yet: the name, the model and how far it is, three things to try."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Middle, Vertical
from textual.content import Content
from textual.widgets import ProgressBar, Static

from chatapp.text import visible
from chatapp.ui.keymap import Keymap
from chatapp.ui.link import EngineStatus
from chatapp.ui.widgets.status import progress_words


class Welcome(Middle):
    """Shown in place of an empty transcript; follows the engine while it loads."""

    def __init__(self, keymap: Keymap) -> None:
        super().__init__(id="welcome")
        self._keymap = keymap

    def compose(self) -> ComposeResult:
        with Vertical(id="welcome-box"):
            yield Static("chatapp", id="welcome-name")
            yield Static("", id="welcome-model", markup=False)
            yield ProgressBar(show_eta=False, id="welcome-progress")
            yield Static(self._hints(), id="welcome-hints")

    def _hints(self) -> Content:
        rows = (
            ("app.help", "keys and commands"),
            ("app.conversations", "your conversations"),
            ("app.model", "other models"),
        )
        lines = [Content.assemble((f"{self._keymap.keys(id):>4}", "bold"), f"  {words}") for id, words in rows]
        lines.append(Content.assemble(("   /", "bold"), "  commands"))
        return Content("\n").join(lines)

    def follow(self, engine: EngineStatus) -> None:
        """Shows how far the engine is."""
        self.query_one("#welcome-model", Static).update(visible(_sentence(engine)))
        bar = self.query_one(ProgressBar)
        progress = engine.progress if engine.phase == "loading" else None
        bar.display = progress is not None and progress.total > 0
        if progress is not None and progress.total:
            bar.update(total=progress.total, progress=progress.done)


def _sentence(engine: EngineStatus) -> str:
    match engine.phase:
        case "off" | "failed" | "lost":
            return ""  # the banner says why
        case "starting":
            return f"starting {engine.model} …"
        case "loading":
            return f"{engine.model}: {progress_words(engine.progress)}"
        case "ready":
            loaded = engine.loaded
            assert loaded is not None
            note = f"\n{loaded.note}" if loaded.note else ""
            return f"{loaded.title} · {loaded.max_kv_size:,} tokens of memory{note}"
