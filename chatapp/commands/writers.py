"""What `ask` and `score` write on standard output: the text, the text with its heat, or JSON lines for programs.

The JSON fields are an interface that other programs rely on: fields may be added, none renamed or dropped.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

import msgspec

from chatapp.commands.heat import Painter
from chatapp.protocol import Ended, Started
from chatapp.text import visible
from chatapp.tokens import Token


class Writer(Protocol):
    """Takes the events of one answer in order."""

    def start(self, model: str, event: Started) -> None: ...

    def tokens(self, tokens: Sequence[Token], candidate: int) -> None: ...

    def end(self, event: Ended) -> None: ...


class TextWriter:
    """The answer's text as it grows; of several candidates each one when it has ended."""

    def __init__(self, candidates: int, painter: Painter | None = None) -> None:
        self._candidates = candidates
        self._painter = painter
        self._parts: dict[int, list[str]] = {}
        self._out = standard_output()

    def start(self, model: str, event: Started) -> None:
        pass

    def tokens(self, tokens: Sequence[Token], candidate: int) -> None:
        paint = self._painter.paint if self._painter else _plain
        text = "".join(paint(token) for token in tokens)
        self._parts.setdefault(candidate, []).append(text)
        if self._candidates == 1:
            write(self._out, text)

    def end(self, event: Ended) -> None:
        text = "".join(self._parts.get(event.candidate, ()))
        if self._candidates > 1:
            write(self._out, f"--- {event.candidate + 1} of {self._candidates} ---\n{text}\n")
        elif text and not text.endswith("\n"):
            write(self._out, "\n")
        if self._painter and sys.stderr is not None and sys.stderr.isatty():
            print(self._painter.legend, file=sys.stderr)


class JsonWriter:
    """One JSON object a line, as design and README describe them."""

    def __init__(self, candidates: int = 1) -> None:
        self._candidates = candidates
        self._out = standard_output()

    def start(self, model: str, event: Started) -> None:
        self.line(
            type="start",
            model=model,
            prompt_tokens=event.prompt_tokens,
            reused=event.reused,
            prefilled=event.prefilled,
            method=event.method,
        )

    def tokens(self, tokens: Sequence[Token], candidate: int) -> None:
        for token in tokens:
            self.line(**token_fields(token), **self._which(candidate))

    def end(self, event: Ended) -> None:
        fields: dict[str, Any] = {
            "type": "end",
            "finish": event.finish,
            "tokens": event.tokens,
            "text": event.text,
            "prompt_tps": event.prompt_tps,
            "generation_tps": event.generation_tps,
            "mean_entropy": event.mean_entropy,
            "seed": event.seed,
        }
        if event.pending is not None:
            fields["pending"] = token_fields(event.pending)
        if event.drafted:
            fields |= {"drafted": event.drafted, "accepted": event.accepted}
        self.line(**fields, **self._which(event.candidate))

    def line(self, **fields: Any) -> None:
        """Writes one object. Non-ASCII is escaped, so that no control character reaches a terminal."""
        write(self._out, json.dumps(_finite(fields), allow_nan=False) + "\n")

    def _which(self, candidate: int) -> dict[str, int]:
        return {"candidate": candidate} if self._candidates > 1 else {}


def token_fields(token: Token) -> dict[str, Any]:
    """A token's line."""
    fields: dict[str, Any] = {
        "type": "token",
        "index": token.index,
        "id": token.id,
        "text": token.text,
        "entropy": token.entropy,
        "varentropy": token.varentropy,
        "surprisal": token.surprisal,
        "sampled_entropy": token.sampled_entropy,
        "state": token.state,
        "top": [{"id": other.id, "text": other.text, "logprob": other.logprob} for other in token.top],
    }
    if token.attention is not None:
        fields["attention"] = msgspec.to_builtins(token.attention)
    return fields


def standard_output() -> TextIO:
    """Where answers go; characters that the terminal's encoding lacks become question marks."""
    if sys.stdout is None:
        return open(os.devnull, "w")  # noqa: PTH123 - lives as long as the program
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    return sys.stdout


def write(out: TextIO, text: str) -> None:
    """Writes and flushes, so that a reader sees every token when it comes."""
    out.write(text)
    out.flush()


def _plain(token: Token) -> str:
    return visible(token.text)


def _finite(value: Any) -> Any:
    """The value with infinities and NaN, which JSON does not have, as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
