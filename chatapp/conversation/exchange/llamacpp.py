"""The exports of llama.cpp's web UI. Messages form a tree.

Older ones are ``{"conv": {…}, "messages": […]}`` or a list of them. Newer ones are JSON lines, a session and then its
messages; several conversations come as a .zip of such files. The lines are Hugging Face's Session Trace Simple Format,
which other programs write too, often without ids: then each message follows the one before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from chatapp.conversation.events import Message
from chatapp.conversation.exchange.reading import (
    Json,
    circle,
    decoded,
    items,
    milliseconds,
    node_key,
    parents_first,
    parts_text,
    string,
)
from chatapp.conversation.exchange.transcript import Transcript

ROOT = "root"


def joined(values: Sequence[Json]) -> list[Json]:
    """JSON lines of sessions and messages as the older export has them; other values as they are."""
    found: list[Json] = []
    for value in values:
        kind = value.get("type") if isinstance(value, dict) else None
        last = found[-1] if found else None
        if kind == "session":
            found.append({"conv": value, "messages": []})
        elif kind == "message" and isinstance(last, dict) and recognizes(last):
            last["messages"].append(value.get("message"))
        else:
            found.append(value)
    return found


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    return isinstance(value, dict) and isinstance(value.get("conv"), dict) and isinstance(value.get("messages"), list)


def read(value: Json) -> Transcript:
    """Reads one conversation with all its alternatives.

    Raises:
        NotThisConversationError: A role is not known.
    """
    conv: dict[str, Json] = value["conv"]
    transcript = Transcript(title=string(conv.get("name")), created=milliseconds(conv.get("lastModified")))
    nodes = _nodes(items(value["messages"]))
    ordered = parents_first(nodes)
    circle(nodes, ordered, transcript.notices)
    ours: dict[str, str | None] = {}
    for key in ordered:
        ours[key] = _add(transcript, nodes[key], ours.get(node_key(nodes[key].get("parent"))))
    transcript.head = ours.get(node_key(conv.get("currNode")))
    return transcript


def _nodes(messages: Sequence[dict[str, Json]]) -> dict[str, dict[str, Json]]:
    """The messages by their ids, with ids and parents made for those that have none."""
    nodes: dict[str, dict[str, Json]] = {}
    previous: str | None = None
    for place, message in enumerate(messages):
        key = node_key(message.get("id"))
        if not key or key in nodes:
            key = f"message {place}"
        nodes[key] = message if "parent" in message else {**message, "parent": previous}
        previous = key
    return nodes


def _add(transcript: Transcript, message: dict[str, Json], parent: str | None) -> str | None:
    if message.get("type") == ROOT:
        return parent
    role, content = string(message.get("role")), parts_text(message.get("content"), transcript.notices)
    if role == "system" and parent is None and not transcript.system:
        transcript.system = content
        return None
    # Reasoning is kept apart there; a later turn does not send it to the model, and neither do we.
    extra: dict[str, Json] = {
        "thinking": string(message.get("reasoningContent")) or string(message.get("thinking")),
        "tool_calls": _calls(message.get("toolCalls")),
        "tool_call_id": string(message.get("toolCallId")),
    }
    return transcript.add(
        role,
        content + _attached(message.get("extra"), transcript.notices),
        parent=parent,
        created=milliseconds(message.get("timestamp")),
        model=string(message.get("model")),
        extra={name: found for name, found in extra.items() if found},
    )


def _calls(calls: Json) -> Json:
    """Tool calls, which the older export has as JSON inside a string."""
    if not isinstance(calls, str):
        return calls
    try:
        return decoded(calls)
    except (json.JSONDecodeError, RecursionError):
        return calls


def _attached(files: Json, notices: list[str]) -> str:
    """The text of attached files, which the model was given after the message."""
    texts: list[str] = []
    for file in items(files):
        name, text = string(file.get("name")) or "without a name", string(file.get("content"))
        if text:
            texts.append(f"\n\n--- File: {name} ---\n{text}")
        else:
            notices.append(f"An attached file was left out: {name}.")
    return "".join(texts)


def write(transcript: Transcript, *, tree: bool) -> str:
    """One conversation; only a tree has alternatives in it."""
    path = transcript.path()
    messages = transcript.messages if tree else path
    head = path[-1].id if path else None
    nodes: list[dict[str, Json]] = [_node(ROOT, None, ROOT, "system", "", "")]
    top: str = ROOT
    if transcript.system:
        nodes.append(_node("system", ROOT, "text", "system", transcript.system, transcript.created))
        top = "system"
    for message in messages:
        node = _node(message.id, message.parent or top, "text", message.role, message.content, message.created)
        nodes.append({**node, **_details(message)})
    by_id = {node["id"]: node for node in nodes}
    for node in nodes[1:]:
        by_id[node["parent"]]["children"].append(node["id"])
    conv = {
        "id": "chatapp",
        "name": transcript.title,
        "lastModified": _milliseconds(transcript.created),
        "currNode": head,
    }
    return json.dumps({"conv": conv, "messages": nodes}, ensure_ascii=False, indent=2) + "\n"


def _node(id: str, parent: str | None, kind: str, role: str, content: str, created: str) -> dict[str, Json]:
    return {
        "id": id, "convId": "chatapp", "type": kind, "timestamp": _milliseconds(created), "role": role,
        "content": content, "parent": parent, "thinking": "", "children": [],
    }  # fmt: skip


def _details(message: Message) -> dict[str, Json]:
    """What only some messages have. Reasoning goes under its older and its newer name."""
    calls, extra = message.extra.get("tool_calls"), message.extra
    found: dict[str, Json] = {
        "model": message.model,
        "thinking": extra.get("thinking"),
        "reasoningContent": extra.get("thinking"),
        "toolCalls": json.dumps(calls, ensure_ascii=False) if calls else "",
        "toolCallId": extra.get("tool_call_id"),
    }
    return {name: value for name, value in found.items() if value}


def _milliseconds(created: str) -> int:
    try:
        return round(datetime.fromisoformat(created).timestamp() * 1000)
    except ValueError:
        return 0
