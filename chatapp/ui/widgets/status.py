"""The status line: model, speed, doubt, memory, and what the last turn read. Pure but for the widget at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from chatapp.protocol import Progress
from chatapp.text import visible
from chatapp.ui.chat import Chat
from chatapp.ui.link import EngineStatus
from chatapp.ui.reply import Reply
from chatapp.ui.views import short_model
from chatapp.ui.workspace import Workspace


@dataclass(frozen=True)
class Part:
    """A piece of the line.

    Attributes:
        rank: Pieces with a high rank are left out first where the line is narrow.
    """

    text: str
    style: str = "$faint"
    rank: int = 0


def parts(chat: Chat, engine: EngineStatus, workspace: Workspace, bits: bool = False) -> list[Part]:
    """What the status line says now, from left to right."""
    found = [Part(visible(_model(engine)), "$text", 0), _state(chat, engine)]
    if engine.can_be_stopped:
        found.append(Part("Esc stops it", rank=1))
    if engine.loaded is not None and engine.loaded.parallel:
        found.append(Part(engine.loaded.parallel, rank=2))
    if workspace.elsewhere:
        found.append(Part(f"{len(workspace.elsewhere)} more in the background", rank=3))
    for download in workspace.downloads.running.values():
        found.append(Part(f"{visible(download.name)}: {progress_words(download.progress)}", "$text-accent", rank=3))
    if chat.reply is not None and chat.reply.rate:
        found.append(Part(f"{chat.reply.rate:.1f} tok/s", rank=1))
    elif chat.ended is not None and chat.ended.tokens:
        found.append(Part(f"{chat.ended.generation_tps:.1f} tok/s", rank=1))
    mean = _mean_entropy(chat)
    if mean is not None:
        found.append(Part(f"mean H {mean / math.log(2):.2f} bits" if bits else f"mean H {mean:.2f} nats", rank=3))
    if engine.loaded is not None and (cached := cached_tokens(chat)):
        held = min(cached, engine.loaded.max_kv_size)
        # Left out first: the bar above has the same figures.
        found.append(Part(f"KV {held:,} of {engine.loaded.max_kv_size:,}", rank=5))
    if chat.started is not None:
        found.append(Part(f"reused {chat.started.reused:,} + read {chat.started.prefilled:,}", rank=2))
        found.append(Part(chat.started.method, rank=4))
    if chat.session.trouble:
        found.append(Part("not saved", "$text-error", 0))
    return found


def cached_tokens(chat: Chat) -> int:
    """Tokens of this conversation in the cache, as far as the engine has told; 0 while unknown."""
    reply = chat.reply
    if reply is not None and reply.started is not None:
        return reply.started.prompt_tokens + reply.made // reply.job.candidates
    return chat.ended.cached if chat.ended is not None else 0


def _model(engine: EngineStatus) -> str:
    return short_model(engine.loaded.title if engine.loaded is not None else engine.model or "no model")


def _state(chat: Chat, engine: EngineStatus) -> Part:
    match engine.phase:
        case "starting":
            return Part("starting", "$text-warning")
        case "loading":
            return Part(progress_words(engine.progress), "$text-warning")
        case "failed":
            return Part("not loaded", "$text-error")
        case "lost":
            return Part("engine ended · F5", "$text-error")
        case "off":
            return Part("off")
        case "ready":
            return Part(reply_words(chat.reply), "$text-success" if chat.reply else "$faint")


def reply_words(reply: Reply | None) -> str:
    """What the reply in flight is at."""
    if reply is None:
        return "ready"
    match reply.stage:
        case "waiting":
            return "queued"
        case "prefill":
            return f"reading {reply.done:,} of {reply.total:,}"
        case "decode":
            return "writing"


def progress_words(progress: Progress | None) -> str:
    """A long task in a few words."""
    if progress is None:
        return "loading"
    words = {"resolve": "looking for it", "download": "downloading", "verify": "checking", "convert": "converting"}
    what = words.get(progress.stage, "loading")
    if not progress.total:
        return what
    if progress.unit == "bytes" and progress.total > 1_000_000:
        return f"{what} {progress.done / 1e6:,.0f} of {progress.total / 1e6:,.0f} MB"
    return f"{what} {100 * progress.done // progress.total} %"


def _mean_entropy(chat: Chat) -> float | None:
    if chat.reply is not None and chat.reply.made:
        return chat.reply.mean_entropy
    return chat.ended.mean_entropy if chat.ended is not None and chat.ended.tokens else None


def fit(found: Sequence[Part], width: int) -> Content:
    """The pieces joined by dots, the least important ones left out until the line fits."""
    kept = list(found)
    while len(kept) > 1 and sum(cell_len(part.text) + 3 for part in kept) > width:
        highest = max(part.rank for part in kept)
        kept.pop(max(place for place, part in enumerate(kept) if part.rank == highest))
    pieces: list[tuple[str, str]] = []
    for part in kept:
        pieces += [(" · ", "$fainter")] if pieces else []
        pieces.append((part.text, part.style))
    return Content.assemble(" ", *pieces)


class StatusLine(Widget):
    """Shows the pieces, and is drawn again only when they changed."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self._parts: list[Part] = []

    def show(self, found: list[Part]) -> None:
        """Takes what the line says now."""
        if found != self._parts:
            self._parts = found
            self.refresh()

    def render(self) -> Content:
        return fit(self._parts, self.size.width)
