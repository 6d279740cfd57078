"""Prompts that were sent, to step back through; kept over restarts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from chatapp import paths
from chatapp.ui.prompt.files import read_or_empty, write_private

#: How many prompts are kept, and the longest one that is.
KEPT = 500
LONGEST = 20_000


class History:
    """A list of prompts with a place in it; the newest end is the text being written."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or paths.data_dir() / "prompts.jsonl"
        self._entries: list[str] | None = None
        self._back = 0
        self._unsent = ""

    @property
    def entries(self) -> list[str]:
        """Oldest first; read from disk when first asked for, so that start-up does not wait for it."""
        if self._entries is None:
            self._entries = list(_parse(read_or_empty(self._path)))[-KEPT:]
        return self._entries

    def add(self, prompt: str) -> None:
        """Keeps a sent prompt and goes to the newest end. A prompt equal to the last one is not kept twice."""
        self._back = 0
        self._unsent = ""
        prompt = prompt.encode("utf-8", "replace").decode()  # lone surrogates are nothing for a file
        if len(prompt) > LONGEST or not prompt.strip() or self.entries[-1:] == [prompt]:
            return
        self._entries = [*self.entries, prompt][-KEPT:]
        lines = "".join(msgspec.json.encode(entry).decode() + "\n" for entry in self._entries)
        try:
            write_private(self._path, lines)
        except OSError:
            return  # it stays in memory; a full disk is told where it loses something (the conversation)

    def older(self, current: str) -> str | None:
        """The prompt before the one shown, or None at the oldest."""
        if self._back >= len(self.entries):
            return None
        if self._back == 0:
            self._unsent = current
        self._back += 1
        return self.entries[-self._back]

    def newer(self) -> str | None:
        """The prompt after the one shown, at the end what was being written; None there."""
        if self._back == 0:
            return None
        self._back -= 1
        return self.entries[-self._back] if self._back else self._unsent


def _parse(text: str) -> list[str]:
    entries: list[str] = []
    for line in text.splitlines():
        try:
            entries.append(msgspec.json.decode(line, type=str))
        except msgspec.DecodeError:
            continue  # a damaged line costs one prompt of the history, nothing else
    return entries
