"""The formats that conversations can be written in and read from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from chatapp.conversation.exchange import chatgpt, html, llamacpp, lmstudio, markdown, native, openai, sharegpt, tokens
from chatapp.conversation.exchange.reading import Json, UnreadableError, json_of, text_of, unpacked
from chatapp.conversation.exchange.transcript import NotThisConversationError, Transcript
from chatapp.errors import UsageError


class Write(Protocol):
    """Turns a transcript into the text of a file: its shown branch, or all of its tree."""

    def __call__(self, transcript: Transcript, *, tree: bool) -> str: ...


class Exporter(NamedTuple):
    """A format to write."""

    suffix: str
    help: str
    write: Write


class Importer(NamedTuple):
    """A JSON format to read. ``recognizes`` and ``read`` take one conversation."""

    help: str
    recognizes: Callable[[Json], bool]
    read: Callable[[Json], Transcript]


EXPORTERS = {
    "markdown": Exporter(".md", "Markdown that chatapp reads back exactly", markdown.write),
    "html": Exporter(".html", "one HTML page with the heat, details on hover", html.write),
    "json": Exporter(".json", "OpenAI messages", openai.write),
    "sharegpt": Exporter(".json", "ShareGPT JSON", sharegpt.write),
    "llamacpp": Exporter(".json", "JSON for llama.cpp's web UI", llamacpp.write),
    "csv": Exporter(".csv", "token records as a table", tokens.write_csv),
    "jsonl": Exporter(".jsonl", "token records, one object a line", tokens.write_jsonl),
}

#: In the order in which a file is tried: the more telling marks first.
IMPORTERS = {
    "chatgpt": Importer("ChatGPT's data export (conversations.json or its .zip)", chatgpt.recognizes, chatgpt.read),
    "llamacpp": Importer(
        "the exports of llama.cpp's web UI (.json, .jsonl or .zip)", llamacpp.recognizes, llamacpp.read
    ),
    "lmstudio": Importer("LM Studio's .conversation.json", lmstudio.recognizes, lmstudio.read),
    "sharegpt": Importer("ShareGPT JSON or JSON lines", sharegpt.recognizes, sharegpt.read),
    "json": Importer("OpenAI messages, as JSON or JSON lines", openai.recognizes, openai.read),
}


@dataclass
class Imported:
    """What a file held.

    Attributes:
        format: Its name.
        problems: Conversations that could not be read, as sentences.
    """

    format: str
    transcripts: list[Transcript] = field(default_factory=list[Transcript])
    problems: list[str] = field(default_factory=list[str])


def read(data: bytes, name: str) -> Imported:
    """Finds out what a file is and reads all conversations in it.

    Args:
        data: The file.
        name: Of the file, for error messages.

    Raises:
        UnreadableError: It is empty, no text, damaged, or of no format that is known.
    """
    found: Imported | None = None
    problems: list[str] = []
    for inside, content in unpacked(data, name):
        try:
            imported = _read(content, inside)
        except UnreadableError as error:
            problems.append(str(error))
            continue
        found = found or Imported(imported.format)
        found.transcripts += imported.transcripts
        problems += imported.problems
    if found is None:
        raise UnreadableError(problems[0])
    found.problems = problems
    return found


def _read(data: bytes, name: str) -> Imported:
    text = text_of(data, name)
    if not text.strip():
        raise UnreadableError(f"{name} is empty.")
    if native.recognizes(text):
        return _whole("chatapp", name, lambda: native.read(text, name))
    found = json_of(text, name)
    if found is None:
        return _whole("markdown", name, lambda: markdown.read(text))
    return _conversations(llamacpp.joined(found.values), found.problems, name)


def _whole(format: str, name: str, read: Callable[[], Transcript]) -> Imported:
    try:
        return Imported(format, [read()])
    except NotThisConversationError as error:
        raise UnreadableError(f"{name} cannot be imported: {error}.") from None


def _conversations(values: list[Json], problems: list[str], name: str) -> Imported:
    single = values[0] if len(values) == 1 else values
    conversations = single if isinstance(single, list) and not openai.recognizes(single) else [single]
    found = next((f for f, i in IMPORTERS.items() for value in conversations if i.recognizes(value)), None)
    if found is None:
        known = "; ".join(importer.help for importer in IMPORTERS.values())
        raise UnreadableError(f"{name} is JSON, but of none of the formats that can be read: {known}.")
    imported = Imported(found, problems=list(problems))
    for number, value in enumerate(conversations, start=1):
        try:
            imported.transcripts.append(_conversation(IMPORTERS[found], value))
        except NotThisConversationError as error:
            imported.problems.append(f"Conversation {number} of {name} was left out: {error}.")
    if not imported.transcripts:
        raise UnreadableError(imported.problems[-1])
    return imported


def _conversation(importer: Importer, value: Json) -> Transcript:
    if not importer.recognizes(value):
        raise NotThisConversationError("it is of another format")
    transcript = importer.read(value)
    if not transcript.messages and not transcript.system:
        raise NotThisConversationError(": ".join(["it holds no message", *transcript.notices]).rstrip("."))
    return transcript


def format_of(suffix: str) -> str:
    """The format that a file's ending stands for.

    Raises:
        UsageError: None does.
    """
    for name, exporter in EXPORTERS.items():
        if exporter.suffix == suffix.lower():
            return name
    endings = ", ".join(dict.fromkeys(exporter.suffix for exporter in EXPORTERS.values()))
    raise UsageError(f"{suffix or 'No ending'} is no ending of a format that can be written; take one of: {endings}.")


def exporter(format: str) -> Exporter:
    """The exporter of that name.

    Raises:
        UsageError: There is none.
    """
    if format not in EXPORTERS:
        raise UsageError(f"There is no format {format!r}; take one of: {', '.join(EXPORTERS)}.")
    return EXPORTERS[format]
