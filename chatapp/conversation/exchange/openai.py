"""Messages as the OpenAI API has them: a list of them, an object with ``messages``, or such objects line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chatapp.conversation.events import Message
from chatapp.conversation.exchange.reading import Json, items, left_out, parts_text, string
from chatapp.conversation.exchange.transcript import NotThisConversationError, Transcript

#: Fields of a message that are kept as they are and given back.
_KEPT = ("name", "tool_calls", "tool_call_id", "function_call", "refusal", "reasoning_content", "weight")


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format, or a list of messages."""
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        return False
    return all(isinstance(message, dict) and "role" in message for message in messages)


def read(value: Json) -> Transcript:
    """Reads one conversation.

    Raises:
        NotThisConversationError: A role is not known.
    """
    outer = value if isinstance(value, dict) else {}
    transcript = Transcript(title=string(outer.get("title")), model=string(outer.get("model")))
    left_out(outer, ("id", "title", "model", "messages"), transcript.notices)
    for number, message in enumerate(items(outer.get("messages") if outer else value), start=1):
        role = message.get("role")
        if not isinstance(role, str):
            raise NotThisConversationError(f"message {number} has no role")
        extra = {key: message[key] for key in _KEPT if message.get(key) is not None}
        if role in ("developer", "function"):
            extra["role"] = role
        transcript.add_in_order(role, parts_text(message.get("content"), transcript.notices), extra=extra)
    return transcript


def write(transcript: Transcript, *, tree: bool) -> str:
    """The shown branch as one list of messages; as a tree, an object for each branch."""
    if not tree:
        return _dump(_messages(transcript, transcript.path()))
    outer = {"title": transcript.title, "model": transcript.model}
    branches = [{**outer, "messages": _messages(transcript, branch)} for branch in transcript.branches()]
    return _dump(branches)


def _messages(transcript: Transcript, path: Sequence[Message]) -> list[Json]:
    system = [{"role": "system", "content": transcript.system}] if transcript.system else []
    return [*system, *({"role": m.role, "content": m.content, **_extra(m)} for m in path)]


def _extra(message: Message) -> dict[str, Json]:
    return {key: value for key, value in message.extra.items() if key in (*_KEPT, "role")}


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
