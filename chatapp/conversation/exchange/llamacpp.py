"""The export of llama.cpp's web UI: ``{"conv": {…}, "messages": […]}``, or a list of them. Messages form a tree."""

from __future__ import annotations

import json
from datetime import datetime

from chatapp.conversation.exchange.reading import Json, items, milliseconds, parts_text, string
from chatapp.conversation.exchange.transcript import Transcript

ROOT = "root"


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
    ours: dict[str, str | None] = {}
    for message in items(value["messages"]):
        key, parent = _key(message.get("id")), ours.get(_key(message.get("parent")))
        ours[key] = _add(transcript, message, parent)
    transcript.head = ours.get(_key(conv.get("currNode")))
    return transcript


def _add(transcript: Transcript, message: dict[str, Json], parent: str | None) -> str | None:
    if message.get("type") == ROOT:
        return parent
    role, content = string(message.get("role")), parts_text(message.get("content"), transcript.notices)
    if role == "system" and parent is None and not transcript.system:
        transcript.system = content
        return None
    attached = [name for part in items(message.get("extra")) if (name := string(part.get("name")))]
    if attached:
        transcript.notices.append(f"Attached files were left out: {', '.join(attached)}.")
    # Reasoning is kept apart there; a later turn does not send it to the model, and neither do we.
    thinking = string(message.get("thinking")) or string(message.get("reasoningContent"))
    return transcript.add(
        role,
        content,
        parent=parent,
        created=milliseconds(message.get("timestamp")),
        model=string(message.get("model")),
        extra={"thinking": thinking} if thinking else {},
    )


def _key(id: Json) -> str:
    return str(id) if isinstance(id, (str, int)) else ""


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
        extra = {"model": message.model} if message.model else {}
        nodes.append({**node, **extra, "thinking": message.extra.get("thinking", "")})
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


def _milliseconds(created: str) -> int:
    try:
        return round(datetime.fromisoformat(created).timestamp() * 1000)
    except ValueError:
        return 0
