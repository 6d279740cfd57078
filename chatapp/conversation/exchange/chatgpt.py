"""ChatGPT's data export: ``conversations.json``, a list of conversations whose ``mapping`` is a tree of messages."""

from __future__ import annotations

from collections.abc import Callable

from chatapp.conversation.exchange.reading import Json, instant, items, parts_text, string
from chatapp.conversation.exchange.transcript import Transcript


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read(value: Json) -> Transcript:
    """Reads one conversation with all its alternatives. Empty and hidden nodes are passed over, not what follows them.

    Raises:
        NotThisConversationError: A role is not known.
    """
    transcript = Transcript(
        title=string(value.get("title")),
        model=string(value.get("default_model_slug")),
        created=instant(value.get("create_time")),
    )
    nodes: dict[str, dict[str, Json]] = {k: v for k, v in value["mapping"].items() if isinstance(v, dict)}
    ours: dict[str, str | None] = {}
    ordered = _parents_first(nodes)
    if len(ordered) < len(nodes):
        transcript.notices.append(
            f"{len(nodes) - len(ordered)} messages that follow each other in a circle were left out."
        )
    for key in ordered:
        parent = nodes[key].get("parent")
        above = ours.get(parent) if isinstance(parent, str) else None
        ours[key] = _add(transcript, nodes[key].get("message"), above)
    current = value.get("current_node")
    transcript.head = ours.get(current) if isinstance(current, str) else None
    return transcript


def _add(transcript: Transcript, message: Json, above: str | None) -> str | None:
    """Adds a node's message; without one worth showing, what follows hangs on the message above."""
    if not isinstance(message, dict):
        return above
    author = message.get("author")
    role = string(author.get("role")) if isinstance(author, dict) else ""
    metadata = message.get("metadata")
    details: dict[str, Json] = metadata if isinstance(metadata, dict) else {}
    content = _content(message.get("content"), transcript.notices)
    if details.get("is_visually_hidden_from_conversation") is True or not content:
        return above
    if role == "system" and above is None and not transcript.system:
        transcript.system = content
        return above
    name = string(author.get("name")) if isinstance(author, dict) else ""
    return transcript.add(
        role,
        content,
        parent=above,
        created=instant(message.get("create_time")),
        model=string(details.get("model_slug")) if role == "assistant" else "",
        extra={"name": name} if name else {},
    )


def _content(content: Json, notices: list[str]) -> str:
    if not isinstance(content, dict):
        return ""
    if isinstance(content.get("parts"), list):
        return parts_text([part for part in content["parts"] if part != ""], notices)
    if "thoughts" in content:
        return "\n\n".join(string(t.get("content")) for t in items(content.get("thoughts")))
    text = string(content.get("text")) or string(content.get("result")) or string(content.get("content"))
    notice = f"Messages of the kind {string(content.get('content_type'))!r} have no text and were left out."
    if not text and notice not in notices:
        notices.append(notice)
    return text


def _parents_first(nodes: dict[str, dict[str, Json]]) -> list[str]:
    """The nodes' keys, siblings in the order of ``children``. Nodes in a circle are not among them."""
    children: dict[str | None, list[str]] = {}
    for key, node in nodes.items():
        parent = node.get("parent")
        children.setdefault(parent if isinstance(parent, str) and parent in nodes else None, []).append(key)
    ordered: list[str] = []
    waiting = list(reversed(children.get(None, [])))
    while waiting:
        key = waiting.pop()
        ordered.append(key)
        waiting += sorted(children.get(key, []), key=_places(nodes[key].get("children")), reverse=True)
    return ordered


def _places(listed: Json) -> Callable[[str], int]:
    """Sorts by the place in a list of keys; those that are not in it come last."""
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    places = {name: place for place, name in enumerate(names)}
    return lambda name: places.get(name, len(places))
