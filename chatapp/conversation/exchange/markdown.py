"""Markdown transcripts: ours, which read back exactly, and those of other programs or people, as well as can be told.

Ours has a heading for each message, ``## User`` or ``## Assistant (model)``; as a tree the heading also says what the
message follows. A line of a message that looks like such a heading gets a backslash in front.
"""

from __future__ import annotations

import re

from chatapp.conversation.events import Message
from chatapp.conversation.exchange.transcript import ROLES, NotThisConversationError, Transcript

_MARK = "<!-- chatapp transcript -->"
_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
_OURS = re.compile(
    r"^## (System|User|Assistant|Tool)(?: \((.*)\))?(?: <!-- ([^ ]+) after ([^ ]+)( shown)? -->)?$", re.MULTILINE
)
_LIKE_OURS = re.compile(r"^(\\*)(?=## (?:System|User|Assistant|Tool)\b)", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=\\*## (?:System|User|Assistant|Tool)\b)", re.MULTILINE)

_ROLE = "|".join(sorted(map(re.escape, ROLES), key=len, reverse=True))
#: "## User", "### Assistant (model):", "**You:**", "__Human__:", "User:" - alone or with the text after the colon.
_HEADING = re.compile(
    rf"^(?P<hashes>\#{{1,6}}\s+)?(?P<bold>\*\*|__)?(?P<role>{_ROLE})\b(?:\s*\([^)\n]*\))?"
    rf"(?P<colon>:)?(?(bold)(?:\*\*|__)|)(?P<colon2>:)?[ \t]*(?P<rest>.*)$",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")


def write(transcript: Transcript, *, tree: bool) -> str:
    """The shown branch, or all of the tree."""
    messages = transcript.messages if tree else transcript.path()
    head = transcript.path()[-1].id if messages else ""
    parts = [f"{_MARK}\n", f"# {' '.join(transcript.title.split())}\n\n"]
    if transcript.system:
        parts.append(_section("## System", transcript.system))
    for message in messages:
        place = f" <!-- {message.id} after {message.parent or '-'}{' shown' * (message.id == head)} -->" if tree else ""
        parts.append(_section(_heading(message) + place, message.content))
    return "".join(parts)


def _heading(message: Message) -> str:
    name = _NAMES.get(message.role, "User")
    return f"## {name} ({' '.join(message.model.split())})" if message.model else f"## {name}"


def _section(heading: str, content: str) -> str:
    return f"{heading}\n\n" + _LIKE_OURS.sub(r"\\\1", content) + "\n\n"


def read(text: str) -> Transcript:
    """Reads a transcript.

    Raises:
        NotThisConversationError: Nothing in the text says who speaks.
    """
    if text.startswith(_MARK):
        return _read_ours(text)
    if "\0" in text:
        raise NotThisConversationError("it is not a text file")
    return _read_any(text.replace("\r\n", "\n"))


def _read_ours(text: str) -> Transcript:
    marks = list(_OURS.finditer(text))
    start = text[: marks[0].start()] if marks else text
    title = re.search(r"^# (.*)$", start, re.MULTILINE)
    transcript = Transcript(title=title[1] if title else "")
    ids: dict[str, str | None] = {"-": None}
    previous: str | None = None
    for place, mark in enumerate(marks, start=1):
        end = marks[place].start() if place < len(marks) else len(text)
        content = _ESCAPED.sub("", text[mark.end() + 2 : end].removesuffix("\n\n"))
        role, model, id, after, shown = mark.groups()
        if role == "System" and not id and not transcript.messages and not transcript.system:
            transcript.system = content
            continue
        parent = ids.get(after, previous) if after else previous
        previous = transcript.add(role, content, parent=parent, model=model or "")
        ids[id or ""] = previous
        if shown:
            transcript.head = previous
    return transcript


def _read_any(text: str) -> Transcript:
    transcript = Transcript()
    role, lines, fence = "", list[str](), ""
    passed_over = False
    style: tuple[str, bool] | None = None
    for line in text.split("\n"):
        fence = _fence_after(line, fence)
        heading = None if fence else _HEADING.match(line)
        # A reply may quote a chat in another style: the first heading says which one is this file's.
        if heading and _speaks(heading) and style in (None, _style(heading)):
            style = _style(heading)
            _close(transcript, role, lines)
            role, lines = heading["role"], [heading["rest"]]
        elif role:
            lines.append(line)
        elif line.startswith("# ") and not transcript.title:
            transcript.title = line[2:].strip()
        else:
            passed_over |= bool(line.strip())
    _close(transcript, role, lines)
    if passed_over:
        transcript.notices.append("What stands before the first message was left out.")
    if not transcript.messages and not transcript.system:
        raise NotThisConversationError(
            "nothing in it says who speaks (## User, **Assistant:** or User: at a line's start)"
        )
    return transcript


def _style(heading: re.Match[str]) -> tuple[str, bool]:
    return (heading["hashes"] or "").strip(), bool(heading["bold"])


def _speaks(heading: re.Match[str]) -> bool:
    """A role at the start of an ordinary sentence ("You can …", "# AI in medicine") is no heading."""
    alone = not heading["rest"].strip()
    if heading["colon"] or heading["colon2"]:
        return bool(heading["hashes"] or heading["bold"] or heading["role"][0].isupper())
    return alone and bool(heading["hashes"] or heading["bold"])


def _fence_after(line: str, fence: str) -> str:
    """The code fence that is open after a line."""
    found = _FENCE.match(line)
    if not found:
        return fence
    if not fence:
        return found[1]
    closes = found[1][0] == fence[0] and len(found[1]) >= len(fence) and not line.strip().strip(fence[0])
    return "" if closes else fence


def _close(transcript: Transcript, role: str, lines: list[str]) -> None:
    while lines and not lines[-1].strip(" \t-*"):  # a rule between the messages
        lines = lines[:-1]
    content = "\n".join(lines).strip()
    if role and content:
        transcript.add_in_order(role, content)
