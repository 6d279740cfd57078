"""The lines of a conversation file: their schema, how they are read and written, and how older ones are migrated.

Each line is one JSON object with a ``type``. Fields that have their default are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

#: Schema that this program writes. A file with a higher one is opened read-only.
SCHEMA = 1

#: Plain JSON as `json.loads` gives it.
Json = Any


class Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """One line of a conversation file that this program understands."""


class Opened(Event, frozen=True, tag="conversation"):
    """First line of a file.

    Attributes:
        schema: Version of the lines that follow.
        id: Of the conversation; the file's name without ``.jsonl``, unless somebody renamed it.
        created: ISO 8601, UTC.
        model: The model that it began with.
        system: System message it began with.
        forked_from: Id of the conversation that this one was copied from.
    """

    schema: int
    id: str
    created: str
    model: str = ""
    system: str = ""
    forked_from: str = ""


class Message(Event, frozen=True, tag="message"):
    """A message. It never changes: an edited or regenerated one is a new message beside it.

    A message whose parent is the shown leaf becomes the shown leaf; any other one waits for a `Head`.

    Attributes:
        id: Unique in the file.
        parent: The message that it was written (or sampled) after; None for the first one.
        role: "user", "assistant", "tool" or "system".
        content: The text.
        created: ISO 8601, UTC.
        model: For a reply, the model that wrote it.
        sampling: For a reply, the fields of `chatapp.protocol.Sampling` in force, its sampler and seed included.
        finish: For a reply, why it ended (`chatapp.tokens.Finish`).
        edits: The message that this one is an edited version of.
        in_place: With ``edits``: what followed the old version follows this one too.
        continues: The reply that this one begins with and goes on from.
        aside: One of several candidates: it waits for a `Head` even where its parent is the shown leaf.
        given: How many of its first tokens were there before it was sampled (those of ``continues``, or a picked one
            and what is before it): to draw it again, the model is given these.
        setup: What else shaped it (``thinking``, ``max_kv_size``, ``keep``, for example).
        mean_entropy: Over the sampled tokens, in nats.
        peak_entropy: The highest entropy of a sampled token, in nats.
        extra: What another program's format had to say about the message (tool calls, for example).
    """

    id: str
    parent: str | None
    role: str
    content: str
    created: str = ""
    model: str = ""
    sampling: dict[str, Any] = {}
    finish: str = ""
    edits: str | None = None
    in_place: bool = False
    continues: str | None = None
    aside: bool = False
    given: int = 0
    setup: dict[str, Any] = {}
    mean_entropy: float | None = None
    peak_entropy: float | None = None
    extra: dict[str, Any] = {}


class Partial(Event, frozen=True, tag="partial"):
    """Recovery line of a reply that is being written: ``content`` is what was added since the one before.

    The first one of a reply says what `Message` says; the rest have ``id`` and ``content``.

    Attributes:
        dropped: The person did not want it; nothing is recovered.
    """

    id: str
    content: str
    parent: str | None = None
    created: str = ""
    model: str = ""
    sampling: dict[str, Any] = {}
    continues: str | None = None
    given: int = 0
    setup: dict[str, Any] = {}
    dropped: bool = False


class Head(Event, frozen=True, tag="head"):
    """Which leaf is shown; None is an empty conversation.

    Attributes:
        through: Of several versions of one message that share what follows, the one to show on the way.
    """

    id: str | None
    through: str | None = None


class Title(Event, frozen=True, tag="title"):
    title: str


class System(Event, frozen=True, tag="system"):
    """The system message from here on; empty for none."""

    content: str


class Settings(Event, frozen=True, tag="settings"):
    """What the person set for this conversation (sampling, heat…); replaces what was set before."""

    settings: dict[str, Any]


class Hide(Event, frozen=True, tag="hide"):
    """Deleted messages. They stay in the file.

    Attributes:
        head: The leaf to show, where the shown one was deleted.
    """

    ids: tuple[str, ...]
    head: str | UnsetType | None = UNSET


class Branch(Event, frozen=True, tag="branch"):
    """Names a leaf; with ``id`` None the name is removed."""

    name: str
    id: str | None = None


class Undo(Event, frozen=True, tag="undo"):
    """Takes the last step back."""


class Redo(Event, frozen=True, tag="redo"):
    """Takes the last `Undo` back."""


class Unknown(msgspec.Struct, frozen=True):
    """A line of a type that this program does not know: kept as it is."""

    raw: bytes


KnownEvent = Opened | Message | Partial | Head | Title | System | Settings | Hide | Branch | Undo | Redo
AnyEvent = KnownEvent | Unknown

#: The n-th function turns a line of schema n+1, as plain JSON, into one of schema n+2. Pure; the file is not rewritten.
MIGRATIONS: tuple[Callable[[dict[str, Json]], dict[str, Json]], ...] = ()

_TYPES = frozenset(
    kind.__struct_config__.tag
    for kind in (Opened, Message, Partial, Head, Title, System, Settings, Hide, Branch, Undo, Redo)
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_decoder = msgspec.json.Decoder(KnownEvent)
_encoder = msgspec.json.Encoder()


class _Kind(msgspec.Struct):
    type: str


class BadLineError(ValueError):
    """A line is no event; ``str(error)`` says why in a few words."""


def encode(event: Event) -> bytes:
    """The event as one line, without its newline."""
    return encode_any(event)


def encode_any(value: Any) -> bytes:
    """Any struct as JSON; lone surrogates in it, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_cleaned(msgspec.to_builtins(value)))


def _cleaned(value: Json) -> Json:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key): _cleaned(item) for key, item in value.items()}
    return [_cleaned(item) for item in value] if isinstance(value, (list, tuple)) else value


def decode(line: bytes, schema: int = SCHEMA, migrations: Sequence[Callable[..., Json]] = MIGRATIONS) -> AnyEvent:
    """Reads one line of a file of the given schema.

    Raises:
        BadLineError: It is not JSON, not an object with a type, or a field has the wrong type.
    """
    pending = migrations[schema - 1 :] if schema >= 1 else migrations
    if pending:
        line = _migrate(line, pending)
    try:
        return _decoder.decode(line)
    except RecursionError:
        raise BadLineError("is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unknown(line, error)


def _unknown(line: bytes, error: Exception) -> Unknown:
    try:
        kind = msgspec.json.decode(line, type=_Kind).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadLineError("is not a line of a conversation") from None
    if kind in _TYPES:
        raise BadLineError(f"is a {kind} line with a wrong field ({error})")
    return Unknown(line)


def _migrate(line: bytes, migrations: Sequence[Callable[..., Json]]) -> bytes:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLineError("is not JSON") from None
    if not isinstance(value, dict):
        raise BadLineError("is not a JSON object")
    for migration in migrations:
        value = migration(value)
    return json.dumps(value, ensure_ascii=False).encode()


def now() -> str:
    """The time as it is written in the files: ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def storable(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def with_parent(message: Message, parent: str | None) -> Message:
    """The same message after another one."""
    return message if message.parent == parent else msgspec.structs.replace(message, parent=parent)
