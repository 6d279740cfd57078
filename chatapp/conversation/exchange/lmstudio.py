"""LM Studio's ``*.conversation.json``: messages with ``versions`` of which one is ``currentlySelected``."""

from __future__ import annotations

from chatapp.conversation.exchange.reading import Json, items, milliseconds, parts_text, string
from chatapp.conversation.exchange.transcript import Transcript


def recognizes(value: Json) -> bool:
    """Whether this is one conversation of this format."""
    messages = value.get("messages") if isinstance(value, dict) else None
    found = items(messages)
    return isinstance(messages, list) and "name" in value and all("versions" in message for message in found)


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
        ids = [_add(transcript, version, parent) for version in versions]
        parent = ids[chosen] if ids else parent
    transcript.head = parent
    return transcript


def _system(value: dict[str, Json]) -> str:
    """Newer versions keep the system prompt among the prediction settings."""
    settings = value.get("perChatPredictionConfig")
    for setting in items(settings.get("fields")) if isinstance(settings, dict) else []:
        if setting.get("key") == "llm.prediction.systemPrompt":
            return string(setting.get("value"))
    return string(value.get("systemPrompt"))


def _add(transcript: Transcript, version: dict[str, Json], parent: str | None) -> str:
    steps = items(version.get("steps"))
    if steps:
        blocks = [step for step in steps if step.get("type") == "contentBlock"]
        content = "".join(_step_text(step, transcript.notices) for step in blocks)
        left = {string(step.get("type")) for step in steps} - {"contentBlock", "debugInfoBlock"}
        transcript.notices += [f"Steps of the kind {kind!r} were left out." for kind in sorted(left)]
    else:
        content = parts_text(version.get("content"), transcript.notices)
    return transcript.add(string(version.get("role")), content, parent=parent, model=_model(version, steps))


def _step_text(step: dict[str, Json], notices: list[str]) -> str:
    """A step's text; reasoning is put between the usual tags, as the model wrote it."""
    content = step.get("content")
    # The parts of a step are pieces of one text.
    text = "".join(parts_text([part], notices) for part in content) if isinstance(content, list) else string(content)
    style = step.get("style")
    if isinstance(style, dict) and style.get("type") == "thinking":
        return string(step.get("prefix")) + text + string(step.get("suffix"))
    return text


def _model(version: dict[str, Json], steps: list[dict[str, Json]]) -> str:
    for step in steps:
        info = step.get("genInfo")
        if isinstance(info, dict) and isinstance(info.get("indexedModelIdentifier"), str):
            return info["indexedModelIdentifier"]
    sender = version.get("senderInfo")
    return string(sender.get("senderName")) if isinstance(sender, dict) and version.get("role") == "assistant" else ""
