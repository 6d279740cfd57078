"""Search over all conversations, by words, role, model, date and doubt.

budget "rotating cache"     messages with the word and the phrase
cach*  -python              a beginning of a word; without a word
role:assistant model:smol   who wrote it
after:2026-01 before:2026-02-15
entropy>3                   replies with a token whose entropy is above 3 nats
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import regex

from chatapp.conversation.events import storable
from chatapp.conversation.index import Index, spaced
from chatapp.errors import UsageError

#: Characters around the first word found.
EXCERPT = 160

_TERM = regex.compile(
    r"""(?P<not>-)?(?:(?P<key>role|model|title|before|after):(?:"(?P<quoted>[^"]*)"|(?P<value>\S*))"""
    r"""|entropy(?P<sign>>=|<=|>|<)(?P<limit>\S*)"""
    r"""|"(?P<phrase>[^"]*)"?|(?P<word>\S+))"""
)
_DATE = regex.compile(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?")


@dataclass(frozen=True)
class Hit:
    """A message that was found.

    Attributes:
        conversation: Id of the conversation.
        title: Of the conversation.
        message: Id of the message.
        role: Of the message.
        model: That wrote it; empty for a person's.
        created: ISO 8601, UTC.
        peak_entropy: The highest entropy of its sampled tokens, in nats; None without records.
        excerpt: Text around the first word found.
    """

    conversation: str
    title: str
    message: str
    role: str
    model: str
    created: str
    peak_entropy: float | None
    excerpt: str


@dataclass
class Query:
    """A parsed query.

    Attributes:
        words: For SQLite's full-text syntax, every part quoted; empty if there are none.
        conditions: SQL over messages ``m`` and files ``f``, with ``?`` for `values`.
        marks: What to look for when an excerpt is cut.
    """

    words: str = ""
    conditions: list[str] = field(default_factory=list[str])
    values: list[str | float] = field(default_factory=list[str | float])
    marks: list[str] = field(default_factory=list[str])


def parse(text: str) -> Query:
    """Reads a query.

    Raises:
        UsageError: A date or a number cannot be read, or nothing is asked for.
    """
    text = storable(text).replace("\0", " ")
    query = Query()
    wanted: list[str] = []
    unwanted: list[str] = []
    for term in _TERM.finditer(text):
        if term["key"]:
            _add_field(query, term["key"], term["quoted"] or term["value"] or "", bool(term["not"]))
        elif term["sign"]:
            condition = f"coalesce(m.peak {term['sign']} ?, 0)" if term["not"] else f"m.peak {term['sign']} ?"
            query.conditions.append(f"NOT {condition}" if term["not"] else condition)
            query.values.append(_number(term["limit"]))
        else:
            _add_words(term["phrase"] or term["word"] or "", unwanted if term["not"] else wanted)
            if not term["not"]:
                query.marks.append(term["phrase"] or (term["word"] or "").rstrip("*"))
    query.words = " AND ".join(wanted)
    if unwanted and wanted:
        query.words = f"({query.words})" + "".join(f" NOT {part}" for part in unwanted)
    elif unwanted:
        query.conditions.append("m.number NOT IN (SELECT rowid FROM words WHERE words MATCH ?)")
        query.values.append(" OR ".join(unwanted))
    if not query.words and not query.conditions:
        raise UsageError('Say what to search for: words, "a phrase", role:user, model:NAME, after:2026-01, entropy>3.')
    return query


def _add_field(query: Query, key: str, value: str, negated: bool) -> None:
    if not value:
        raise UsageError(f"{key}: needs a value right after the colon.")
    match key:
        case "before" | "after":
            condition = f"m.created <> '' AND m.created {'<' if key == 'before' else '>='} ?"
            query.values.append(_date(key, value))
        case "role":
            condition = "m.role = ?"
            query.values.append(value)
        case _:
            condition = f"instr(lower({'m.model' if key == 'model' else 'f.title'}), lower(?)) > 0"
            query.values.append(value)
    query.conditions.append(f"NOT ({condition})" if negated else condition)


def _add_words(text: str, parts: list[str]) -> None:
    star = "*" if text.endswith("*") else ""
    words = spaced(text.rstrip("*")).replace('"', " ").strip()
    if regex.search(r"[\p{L}\p{N}]", words):
        parts.append(f'"{words}"{star}')


def _number(text: str) -> float:
    try:
        number = float(text)
        if math.isnan(number):
            raise ValueError
        return number
    except ValueError:
        raise UsageError(f"entropy needs a number in nats, as in entropy>3, not {text!r}.") from None


def _date(key: str, text: str) -> str:
    """The beginning of a day, month or year here, in UTC as the files have it."""
    match = _DATE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        local = datetime(int(match[1]), int(match[2] or 1), int(match[3] or 1)).astimezone()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{key}: needs a date as in {key}:2026-01-31, not {text!r}.") from None
    return local.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")


def search(folder: Path, text: str, *, limit: int = 50, index: Index | None = None) -> list[Hit]:
    """Messages that match, in conversations changed last first.

    Args:
        folder: Of the conversations.
        text: The query, as at the top of this module.
        limit: At most so many hits.
        index: To use; None for the folder's own in the cache folder.

    Raises:
        UsageError: The query cannot be read.
    """
    query = parse(text)
    return (index or Index(folder)).read(lambda database: _hits(database, query, limit))


def _hits(database: sqlite3.Connection, query: Query, limit: int) -> list[Hit]:
    conditions, values = list(query.conditions), list(query.values)
    source = "messages m"
    number = "m.number"
    if query.words:
        source = "words CROSS JOIN messages m ON m.number = words.rowid"
        number = "words.rowid"
        conditions.insert(0, "words MATCH ?")
        values.insert(0, query.words)
    rows = database.execute(
        f"SELECT m.file, f.title, m.id, m.role, m.model, m.created, m.peak, m.content FROM {source}"
        f" JOIN files f ON f.name = m.file WHERE {' AND '.join(conditions)} ORDER BY {number} DESC LIMIT ?",
        (*values, limit),
    )
    return [Hit(*row[:-1], excerpt=excerpt(row[-1], query.marks)) for row in rows]


def excerpt(content: str, marks: list[str]) -> str:
    """A piece of a text around the first of these words, on one line."""
    lowered = content.casefold() if len(content.casefold()) == len(content) else content
    found = [place for mark in marks if (place := lowered.find(mark.casefold())) >= 0]
    start = max(0, min(found, default=0) - EXCERPT // 3)
    piece = " ".join(content[start : start + EXCERPT].split())
    return ("…" if start else "") + piece + ("…" if start + EXCERPT < len(content) else "")
