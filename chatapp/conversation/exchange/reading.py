"""From the bytes of a file to text or JSON, with errors that a person can act on."""

from __future__ import annotations

import codecs
import io
import json
import zipfile
from datetime import UTC, datetime
from typing import Any

from chatapp.errors import ChatappError

#: Plain JSON as `json.loads` gives it.
Json = Any

#: Largest file inside a .zip that is unpacked, in bytes.
MAX_UNPACKED = 4 << 30

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class UnreadableError(ChatappError):
    """A file to import cannot be read."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message, "usage")


def unpacked(data: bytes, name: str) -> bytes:
    """The conversations inside a .zip (ChatGPT's export is one); other files as they are.

    Raises:
        UnreadableError: A damaged .zip, or one without conversations.
    """
    if not data.startswith(b"PK\x03\x04"):
        return data
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = next((i for i in archive.infolist() if i.filename.endswith("conversations.json")), None)
            if inside is None:
                raise UnreadableError(f"{name} has no conversations.json in it.")
            if inside.file_size > MAX_UNPACKED:
                raise UnreadableError(f"{inside.filename} in {name} is too large; unpack it and import it by itself.")
            return archive.read(inside)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        raise UnreadableError(f"{name} is a damaged or encrypted .zip; unpack it and import what is inside.") from error


def text_of(data: bytes, name: str) -> str:
    """Text in UTF-8, or in UTF-16 with its mark.

    Raises:
        UnreadableError: Another encoding.
    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{name} is not UTF-8 (byte {error.start + 1}); convert it first, for example with iconv."
        ) from error


def json_of(text: str, name: str) -> list[Json] | None:
    """The JSON values of a text: one, or one on each line. None if it does not look like JSON at all.

    Raises:
        UnreadableError: It begins like JSON but is none, or is nested too deeply.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return [json.loads(text, parse_int=_integer)]
    except RecursionError:
        raise UnreadableError(f"{name} is nested too deeply to be a conversation.") from None
    except json.JSONDecodeError as error:
        whole = error
    values: list[Json] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line, parse_int=_integer))
        except RecursionError:
            raise UnreadableError(f"Line {number} of {name} is nested too deeply to be a conversation.") from None
        except json.JSONDecodeError as error:
            where = f"line {whole.lineno}, column {whole.colno}: {whole.msg}"
            if values:  # it is JSON line by line
                where = f"line {number}, column {error.colno}: {error.msg}"
            raise UnreadableError(f"{name} is not valid JSON ({where}).") from None
    return values


def _integer(digits: str) -> int | float:
    """An integer of up to 64 bits, as our files can hold it; a longer one as a float."""
    value = float(digits)
    return int(digits) if abs(value) < 1 << 63 else value


def instant(seconds: Json) -> str:
    """Seconds since 1970 as our files have it; empty for anything else."""
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
        return ""
    try:
        when = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return ""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def milliseconds(value: Json) -> str:
    """Milliseconds since 1970 as our files have it; empty for anything else."""
    return instant(value / 1000) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def string(value: Json) -> str:
    """A string, or the empty one for anything else."""
    return value if isinstance(value, str) else ""


def items(value: Json) -> list[dict[str, Json]]:
    """The objects of a list; nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def parts_text(content: Json, notices: list[str]) -> str:
    """The text of a message that is a string or a list of parts. Other parts are named in its place and in a notice."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    return "\n".join(text for part in parts if (text := _part_text(part, notices)))


def _part_text(part: Json, notices: list[str]) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        text = part.get("text")
        if isinstance(text, str):
            return text
        kind = string(part.get("type")) or string(part.get("content_type")) or "part"
    else:
        kind = type(part).__name__
    notice = f"Parts of the kind {kind!r} were left out; [{kind}] stands in their place."
    if notice not in notices:
        notices.append(notice)
    return f"[{kind}]"
