"""From the bytes of a file to text or JSON, with errors that a person can act on."""

from __future__ import annotations

import codecs
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from chatapp.errors import ChatappError

#: Plain JSON as `json.loads` gives it.
Json = Any

#: Largest file inside a .zip that is unpacked, in bytes.
MAX_UNPACKED = 4 << 30

#: What has conversations in a .zip. A large export of ChatGPT comes as conversations-000.json and so on.
_MEMBER = re.compile(r"(^|/)conversations(-\d+)?\.json$|(?<!\.tokens)\.jsonl$")

#: Between two items of a list.
_GAP = re.compile(r"[\s\[,]*")

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class UnreadableError(ChatappError):
    """A file to import cannot be read."""

    exit_code = 1

    def __init__(self, message: str) -> None:
        super().__init__(message, "usage")


def unpacked(data: bytes, name: str) -> list[tuple[str, bytes]]:
    """Name and content of the files with conversations in a .zip (of ChatGPT or llama.cpp); another file as it is.

    Raises:
        UnreadableError: A damaged .zip, or one without conversations.
    """
    if not data.startswith(b"PK\x03\x04"):
        return [(name, data)]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = sorted((i for i in archive.infolist() if _MEMBER.search(i.filename)), key=lambda i: i.filename)
            if not inside:
                raise UnreadableError(f"{name} has no conversations in it (conversations.json, or .jsonl files).")
            if sum(member.file_size for member in inside) > MAX_UNPACKED:
                raise UnreadableError(f"What is in {name} is too large; unpack it and import the files by themselves.")
            return [(f"{member.filename} in {name}", archive.read(member)) for member in inside]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, zlib.error) as error:
        raise UnreadableError(f"{name} is a damaged or encrypted .zip; unpack it and import what is inside.") from error


def text_of(data: bytes, name: str) -> str:
    """Text in UTF-8 or UTF-16.

    Raises:
        UnreadableError: Another encoding, or no text at all.
    """
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    if encoding == "utf-8" and len(data) % 2 == 0 and 0 in data[:2]:  # its first character is an ASCII one
        encoding = "utf-16-be" if data[0] == 0 else "utf-16-le"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if any(byte < 9 for byte in data[:4096]):
            raise UnreadableError(f"{name} is not a text file.") from error
        raise UnreadableError(
            f"{name} is not UTF-8 (byte {error.start + 1}); convert it first, for example with iconv."
        ) from error


@dataclass(frozen=True)
class Values:
    """The JSON values of a text.

    Attributes:
        values: One, or one for each line.
        problems: What could not be read, as sentences with line numbers.
    """

    values: list[Json]
    problems: list[str]


def json_of(text: str, name: str) -> Values | None:
    """The JSON values of a text, as far as they are whole. None if it does not look like JSON at all.

    Raises:
        UnreadableError: It begins like JSON but holds no whole value, or is nested too deeply.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return Values([decoded(text)], [])
    except RecursionError:
        raise UnreadableError(f"{name} is nested too deeply to be a conversation.") from None
    except json.JSONDecodeError as error:
        whole = error
    found = _json_lines(text, name) or _beginning(text, name, whole)
    if found is None:
        where = f"line {whole.lineno}, column {whole.colno}: {whole.msg}"
        raise UnreadableError(f"{name} is not valid JSON ({where}).")
    return found


def _json_lines(text: str, name: str) -> Values | None:
    """The values of JSON lines; None if most lines are no whole values, as in JSON over several lines."""
    values: list[Json] = []
    bad: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = decoded(line)
        except (RecursionError, json.JSONDecodeError):
            value = None
        if isinstance(value, (dict, list)):
            values.append(value)
        else:
            bad.append(number)
    if len(bad) > len(values):
        return None
    if not bad:
        return Values(values, [])
    some = ", ".join(map(str, bad[:10])) + (f" and {len(bad) - 10} more" if len(bad) > 10 else "")
    lines = f"Line {some} of {name} is" if len(bad) == 1 else f"Lines {some} of {name} are"
    return Values(values, [f"{lines} no whole JSON and {'was' if len(bad) == 1 else 'were'} left out."])


def _beginning(text: str, name: str, error: json.JSONDecodeError) -> Values | None:
    """The whole items of a list that breaks off; None if there are none."""
    items: list[Json] = []
    place = _after_gap(text, 0) if text.lstrip().startswith("[") else len(text)
    while place < len(text):
        try:
            item, place = _decoder.raw_decode(text, place)
        except (RecursionError, json.JSONDecodeError):
            break
        items.append(item)
        place = _after_gap(text, place)
    if not items:
        return None
    where = f"line {error.lineno}, column {error.colno}"
    return Values([items], [f"{name} breaks off or is damaged at {where}; what stands before that was read."])


def _after_gap(text: str, place: int) -> int:
    gap = _GAP.match(text, place)
    return gap.end() if gap else place


def _integer(digits: str) -> int | float:
    """An integer of up to 64 bits, as our files can hold it; a longer one as a float."""
    value = float(digits)
    return int(digits) if abs(value) < 1 << 63 else value


def decoded(text: str) -> Json:
    """One JSON value, with numbers as our files can hold them.

    Raises:
        json.JSONDecodeError: It is none.
        RecursionError: It is nested too deeply.
    """
    return _decoder.decode(text)


_decoder = json.JSONDecoder(parse_int=_integer)


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


def left_out(value: Mapping[str, Json], known: Collection[str], notices: list[str]) -> None:
    """Notes which fields of an object have something to say that has no place here."""
    names = ", ".join(str(name) for name in value if name not in known and value[name])
    if names:
        notices.append(f"Fields that have no place here were left out: {names}.")


def node_key(id: Json) -> str:
    """A node's id as text; empty for none."""
    return str(id) if isinstance(id, (str, int)) else ""


def parents_first(nodes: Mapping[str, Mapping[str, Json]]) -> list[str]:
    """The keys of nodes with a ``parent`` and ``children``, siblings in the order of ``children``.

    Nodes that follow each other in a circle are not among them.
    """
    children: dict[str | None, list[str]] = {}
    for key, node in nodes.items():
        parent = node_key(node.get("parent"))
        children.setdefault(parent if parent in nodes else None, []).append(key)
    ordered: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        key = waiting.pop()
        ordered.append(key)
        waiting += sorted(children.get(key, []), key=_places(nodes[key].get("children")))[::-1]
    return ordered


def circle(nodes: Mapping[str, Json], ordered: Collection[str], notices: list[str]) -> None:
    """Notes how many nodes `parents_first` left out."""
    if len(ordered) < len(nodes):
        notices.append(f"{len(nodes) - len(ordered)} messages that follow each other in a circle were left out.")


def _places(listed: Json) -> Callable[[str], int]:
    """Sorts by the place in a list of keys; those that are not in it come last."""
    names = [node_key(name) for name in listed] if isinstance(listed, list) else []
    places = {name: place for place, name in enumerate(names)}
    return lambda name: places.get(name, len(places))
