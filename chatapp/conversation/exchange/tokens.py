"""Token records as a table: CSV for spreadsheets, JSON lines for programs. Numbers in nats and nats²."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from chatapp.conversation.exchange.transcript import Transcript
from chatapp.tokens import Token

COLUMNS = (
    "message", "index", "id", "text", "entropy", "varentropy", "surprisal", "sampled_entropy", "state", "top",
)  # fmt: skip


def write_csv(transcript: Transcript, *, tree: bool) -> str:
    """One row a token. Text is quoted as in JSON, so that spaces show and no cell can be taken for a formula."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for message, token in _records(transcript, tree):
        row: list[Any] = [getattr(token, name) for name in COLUMNS[1:]]
        row[2] = json.dumps(token.text, ensure_ascii=False)
        row[7] = json.dumps(token.state, ensure_ascii=False) if token.state else ""
        row[8] = json.dumps([[a.id, a.text, a.logprob] for a in token.top], ensure_ascii=False)
        table.writerow([json.dumps(message), *row])
    return out.getvalue()


def write_jsonl(transcript: Transcript, *, tree: bool) -> str:
    """One object a token, with all its fields and the message it belongs to."""
    return "".join(
        msgspec.json.encode({"message": message, **msgspec.to_builtins(token)}).decode() + "\n"
        for message, token in _records(transcript, tree)
    )


def _records(transcript: Transcript, tree: bool) -> Iterator[tuple[str, Token]]:
    for message in transcript.messages if tree else transcript.path():
        for token in transcript.tokens.get(message.id, ()):
            yield message.id, token
