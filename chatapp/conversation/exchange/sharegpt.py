"""ShareGPT: ``{"id": …, "conversations": [{"from": "human", "value": …}, …]}``, a list of them, or one on each line."""

from __future__ import annotations

import json

from chatapp.conversation.exchange.reading import Json, items, left_out, parts_text, string
from chatapp.conversation.exchange.transcript import NotThisConversationError, Transcript

_NAMES = {"system": "system", "user": "human", "assistant": "gpt", "tool": "observation"}


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    return isinstance(value, dict) and isinstance(value.get("conversations"), list)


def read(value: Json) -> Transcript:
    """Reads one conversation.

    Raises:
        NotThisConversationError: A role is not known.
    """
    transcript = Transcript(title=string(value.get("title")), model=string(value.get("model")))
    transcript.system = string(value.get("system"))
    left_out(value, ("id", "title", "model", "system", "conversations"), transcript.notices)
    for number, message in enumerate(items(value.get("conversations")), start=1):
        role = message.get("from", message.get("role"))
        if not isinstance(role, str):
            raise NotThisConversationError(f"message {number} does not say whom it is from")
        content = message.get("value", message.get("content", message.get("text")))
        extra = {"from": role} if _NAMES.get(_role(role)) != role else {}
        transcript.add_in_order(role, parts_text(content, transcript.notices), extra=extra)
    return transcript


def write(transcript: Transcript, *, tree: bool) -> str:
    """A list with one conversation; as a tree, one for each branch."""
    paths = transcript.branches() if tree else [transcript.path()]
    system = [{"from": "system", "value": transcript.system}] if transcript.system else []
    conversations = [
        {
            "id": f"{transcript.title or 'conversation'}-{number}",
            "title": transcript.title,
            "conversations": [
                *system,
                *({"from": m.extra.get("from", _NAMES.get(m.role, m.role)), "value": m.content} for m in path),
            ],
        }
        for number, path in enumerate(paths, start=1)
    ]
    return json.dumps(conversations, ensure_ascii=False, indent=2) + "\n"


def _role(name: str) -> str:
    return next((ours for ours, theirs in _NAMES.items() if theirs == name.strip().lower()), "")
