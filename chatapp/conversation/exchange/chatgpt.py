"""ChatGPT's data export: ``conversations.json``, in parts where it is large.

A list of conversations whose ``mapping`` is a tree of messages.
"""

from __future__ import annotations

from chatapp.conversation.exchange.reading import (
    Json,
    circle,
    instant,
    items,
    node_key,
    parents_first,
    parts_text,
    string,
)
from chatapp.conversation.exchange.transcript import Transcript


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read(value: Json) -> Transcript:
    """Reads one conversation with all its alternatives. Empty and hidden nodes are passed over, not what follows them.

    Reasoning is a node of its own there; here it is kept beside the reply that follows it.

    Raises:
        NotThisConversationError: A role is not known.
    """
    transcript = Transcript(
        title=string(value.get("title")),
        model=string(value.get("default_model_slug")),
        created=instant(value.get("create_time")),
    )
    nodes: dict[str, dict[str, Json]] = {k: v for k, v in value["mapping"].items() if isinstance(v, dict)}
    ordered = parents_first(nodes)
    circle(nodes, ordered, transcript.notices)
    ours: dict[str, str | None] = {}
    thoughts: dict[str, str] = {}
    for key in ordered:
        parent, message = node_key(nodes[key].get("parent")), nodes[key].get("message")
        above, thinking = ours.get(parent), thoughts.get(parent, "")
        if isinstance(message, dict) and (more := _thoughts(message.get("content"))):
            ours[key], thoughts[key] = above, "\n\n".join(part for part in (thinking, more) if part)
            continue
        ours[key] = _add(transcript, message, above, thinking) if isinstance(message, dict) else above
        if ours[key] == above:
            thoughts[key] = thinking
    transcript.head = ours.get(node_key(value.get("current_node")))
    return transcript


def _thoughts(content: Json) -> str:
    if not isinstance(content, dict) or "thoughts" not in content:
        return ""
    parts = [string(t.get("content")) or string(t.get("summary")) for t in items(content.get("thoughts"))]
    return "\n\n".join(part for part in parts if part)


def _add(transcript: Transcript, message: dict[str, Json], above: str | None, thinking: str) -> str | None:
    """Adds a node's message; without one worth showing, what follows hangs on the message above."""
    author = message.get("author")
    role, name = (string(author.get(key)) for key in ("role", "name")) if isinstance(author, dict) else ("", "")
    metadata = message.get("metadata")
    details: dict[str, Json] = metadata if isinstance(metadata, dict) else {}
    content = _content(message.get("content"), transcript.notices)
    if details.get("is_visually_hidden_from_conversation") is True or not content:
        return above
    if role == "system" and above is None and not transcript.system:
        transcript.system = content
        return above
    recipient = string(message.get("recipient"))
    extra = {"name": name, "recipient": "" if recipient == "all" else recipient, "thinking": thinking}
    return transcript.add(
        role,
        content,
        parent=above,
        created=instant(message.get("create_time")),
        model=string(details.get("model_slug")) if role == "assistant" else "",
        extra={key: text for key, text in extra.items() if text},
    )


def _content(content: Json, notices: list[str]) -> str:
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("parts"), list):
        return parts_text([part for part in content["parts"] if part != ""], notices)
    if "thoughts" in content:
        return ""
    kind = string(content.get("content_type"))
    # "Thought for 16 s" is no part of what was said.
    fields = () if kind == "reasoning_recap" else ("text", "result", "content")
    text = next((found for field in fields if (found := string(content.get(field)))), "")
    notice = f"Messages of the kind {kind!r} have no text and were left out."
    if not text and notice not in notices:
        notices.append(notice)
    return text
