"""LM Studio's ``*.conversation.json``: messages with ``versions`` of which one is ``currentlySelected``."""

from __future__ import annotations

import json

from chatapp.conversation.exchange.reading import Json, items, milliseconds, node_key, parts_text, string
from chatapp.conversation.exchange.transcript import Transcript


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    messages = value.get("messages") if isinstance(value, dict) else None
    found = items(messages)
    if not isinstance(messages, list) or not all("versions" in message for message in found):
        return False
    return bool(found) or "name" in value  # a chat may have no name yet, an empty one has nothing else to tell


def read(value: Json) -> Transcript:
    """Reads one conversation. The versions of a message become alternatives; what follows hangs on the selected one.

    Raises:
        NotThisConversationError: A role is not known.
    """
    model = value.get("lastUsedModel")
    transcript = Transcript(
        title=string(value.get("name")),
        system=_system(value),
        model=string(model.get("identifier")) if isinstance(model, dict) else "",
        created=milliseconds(value.get("createdAt")),
    )
    parent: str | None = None
    for message in items(value.get("messages")):
        versions = items(message.get("versions"))
        selected = message.get("currentlySelected")
        chosen = selected if isinstance(selected, int) and 0 <= selected < len(versions) else 0
        ends = [_add(transcript, version, parent) for version in versions]
        parent = ends[chosen] if ends else parent
    transcript.head = parent
    return transcript


def _system(value: dict[str, Json]) -> str:
    """Newer versions keep the system prompt among the prediction settings."""
    settings = value.get("perChatPredictionConfig")
    for setting in items(settings.get("fields")) if isinstance(settings, dict) else []:
        if setting.get("key") == "llm.prediction.systemPrompt":
            return string(setting.get("value"))
    return string(value.get("systemPrompt"))


def _add(transcript: Transcript, version: dict[str, Json], parent: str | None) -> str | None:
    """Adds a version, as several messages where tools were called in between; returns the last one."""
    role, steps = string(version.get("role")), items(version.get("steps"))
    model = _model(version, steps)
    if not steps:
        return transcript.add(role, parts_text(version.get("content"), transcript.notices), parent=parent, model=model)
    left = {string(step.get("type")) for step in steps} - {"contentBlock", "debugInfoBlock"}
    transcript.notices += [f"Steps of the kind {kind!r} were left out." for kind in sorted(left)]
    said = _Said(transcript, role, parent, model)
    for step in steps:
        if step.get("type") == "contentBlock":
            said.take(step)
    return said.end()


class _Said:
    """Takes the steps of one version and adds the messages that they are."""

    def __init__(self, transcript: Transcript, role: str, parent: str | None, model: str) -> None:
        self._transcript = transcript
        self._role = role
        self._parent = parent
        self._model = model
        self._text = ""
        self._calls: list[Json] = []

    def take(self, step: dict[str, Json]) -> None:
        """The pieces of a step are pieces of one text; reasoning is put between its tags, as the model wrote it."""
        content, style = step.get("content"), step.get("style")
        thinking = isinstance(style, dict) and style.get("type") == "thinking"
        self._text += string(step.get("prefix")) if thinking else ""
        parts: list[Json] = content if isinstance(content, list) else [string(content)]
        for part in parts:
            match part:
                case {"type": "toolCallRequest"}:
                    self._call(part)
                case {"type": "toolCallResult"}:
                    self._result(part)
                case _:
                    self._text += parts_text([part], self._transcript.notices)
        self._text += string(step.get("suffix")) if thinking else ""

    def _call(self, part: dict[str, Json]) -> None:
        given = json.dumps(part.get("parameters", {}), ensure_ascii=False)
        function = {"name": string(part.get("name")), "arguments": given}
        self._calls.append({"id": _call_id(part), "type": "function", "function": function})

    def _result(self, part: dict[str, Json]) -> None:
        self._close()
        extra = {"tool_call_id": _call_id(part)}
        text = parts_text(part.get("content"), self._transcript.notices)
        self._parent = self._transcript.add("tool", text, parent=self._parent, extra=extra)

    def _close(self) -> None:
        if self._text or self._calls:
            extra = {"tool_calls": self._calls} if self._calls else {}
            self._parent = self._transcript.add(
                self._role, self._text, parent=self._parent, model=self._model, extra=extra
            )
        self._text, self._calls = "", []

    def end(self) -> str | None:
        """The last message."""
        self._close()
        return self._parent


def _call_id(part: dict[str, Json]) -> str:
    return string(part.get("toolCallRequestId")) or node_key(part.get("callId"))


def _model(version: dict[str, Json], steps: list[dict[str, Json]]) -> str:
    for step in steps:
        info = step.get("genInfo")
        if isinstance(info, dict) and isinstance(info.get("indexedModelIdentifier"), str):
            return info["indexedModelIdentifier"]
    sender = version.get("senderInfo")
    return string(sender.get("senderName")) if isinstance(sender, dict) and version.get("role") == "assistant" else ""
