"""Small made-up files in the formats of other programs.

The shapes follow what the programs document or write: ChatGPT's ``conversations.json`` (mapping of nodes), LM Studio's
``*.conversation.json`` (versions, steps, prediction settings), llama.cpp's web UI (``ExportedConversation`` of its
``database.d.ts``), ShareGPT's ``conversations`` and the OpenAI API's messages.
"""

from __future__ import annotations

from typing import Any


def _node(id: str, parent: str | None, children: list[str], message: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": id, "message": message, "parent": parent, "children": children}


def _said(id: str, role: str, content: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "id": id, "author": {"role": role, "name": None, "metadata": {}}, "create_time": 1736082000.0,
        "update_time": None, "content": content, "status": "finished_successfully", "end_turn": True, "weight": 1.0,
        "metadata": metadata, "recipient": "all",
    }  # fmt: skip


_HIDDEN = {"is_visually_hidden_from_conversation": True}


def _text(*parts: Any) -> dict[str, Any]:
    return {"content_type": "text", "parts": list(parts)}


CHATGPT: dict[str, Any] = {
    "title": "Primes",
    "create_time": 1736082000.0,
    "update_time": 1736083000.0,
    "mapping": {
        "root": _node("root", None, ["sys"], None),
        "sys": _node("sys", "root", ["u1"], _said("sys", "system", _text(""), **_HIDDEN)),
        "a2": _node("a2", "u1", ["u2"], _said("a2", "assistant", _text("No: 91 = 7 × 13."), model_slug="gpt-4o")),
        "u1": _node("u1", "sys", ["a1", "a2"], _said("u1", "user", _text("Is 91 prime?"))),
        "a1": _node("a1", "u1", [], _said("a1", "assistant", _text("Yes."), model_slug="gpt-4o-mini")),
        "u2": _node(
            "u2", "a2", ["a3"],
            _said("u2", "user", {"content_type": "multimodal_text", "parts": [
                "And this?", {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}]}),
        ),
        "a3": _node("a3", "u2", [], _said("a3", "assistant", _text("I cannot tell."), model_slug="gpt-4o")),
    },
    "moderation_results": [],
    "current_node": "a3",
    "conversation_id": "00000000-0000-4000-8000-000000000000",
    "default_model_slug": "gpt-4o",
}  # fmt: skip


def _block(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "contentBlock", "stepIdentifier": "s1", "content": [{"type": "text", "text": text}],
        "defaultShouldIncludeInContext": True, "shouldIncludeInContext": True, **more,
    }  # fmt: skip


LMSTUDIO: dict[str, Any] = {
    "name": "Tea",
    "pinned": False,
    "createdAt": 1736082000000,
    "tokenCount": 40,
    "systemPrompt": "",
    "messages": [
        {
            "versions": [
                {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Tea: how hot?"}]},
                {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "Green tea: how hot?"}]},
            ],
            "currentlySelected": 1,
        },
        {
            "versions": [
                {
                    "type": "multiStep",
                    "role": "assistant",
                    "senderInfo": {"senderName": "qwen3"},
                    "steps": [
                        _block("Easy.", style={"type": "thinking", "ended": True}, prefix="<think>", suffix="</think>"),
                        _block("80 °C.", genInfo={"indexedModelIdentifier": "qwen/qwen3-4b", "stats": {}}),
                        {"type": "debugInfoBlock", "stepIdentifier": "s3", "debugInfo": "x"},
                    ],
                }
            ],
            "currentlySelected": 0,
        },
    ],
    "perChatPredictionConfig": {"fields": [{"key": "llm.prediction.systemPrompt", "value": "Answer in one line."}]},
    "lastUsedModel": {"identifier": "qwen3-4b", "indexedModelIdentifier": "qwen/qwen3-4b"},
}


def _row(id: str, parent: str | None, kind: str, role: str, content: str, **more: Any) -> dict[str, Any]:
    return {
        "id": id, "convId": "c", "type": kind, "timestamp": 1736082000000, "role": role, "content": content,
        "parent": parent, "thinking": "", "children": [], **more,
    }  # fmt: skip


LLAMACPP: dict[str, Any] = {
    "conv": {"id": "c", "name": "Rivers", "lastModified": 1736082000000, "currNode": "m4"},
    "messages": [
        _row("m0", None, "root", "system", ""),
        _row("m1", "m0", "system", "system", "Be exact."),
        _row(
            "m2", "m1", "text", "user", "Longest river?", extra=[{"type": "TEXT", "name": "notes.txt", "content": "…"}]
        ),
        _row("m3", "m2", "text", "assistant", "The Amazon.", model="tiny.gguf"),
        _row("m4", "m2", "text", "assistant", "The Nile, by most counts.", thinking="Nile or Amazon?"),
    ],
}

SHAREGPT: dict[str, Any] = {
    "id": "abc_0",
    "conversations": [
        {"from": "system", "value": "You are a cook."},
        {"from": "human", "value": "Salt?"},
        {"from": "gpt", "value": "A pinch."},
        {"from": "observation", "value": "42 g"},
        {"from": "gpt", "value": "Less."},
    ],
}

OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {}}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "count", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "12"},
    {"role": "assistant", "content": "Twelve."},
]

MARKDOWN_HEADINGS = """# Printing

*exported yesterday*

## User

How do I print?

---

## Assistant

Like this:

```python
# User
print("User: hi")
```

You can also log.

---

## User

Thanks
"""

MARKDOWN_BOLD = """**You:** How do I print?

**ChatGPT:**

Like this:

```python
# User
print("User: hi")
```

You can also log.

**You:** Thanks
"""
