"""Samples made after public files of other programs: the structure is theirs, shortened, the texts are ours.

Each names what it was made after (repository and path, or the page), read in November 2026.
"""

from __future__ import annotations

import json
from typing import Any

Json = Any


def _node(id: str, parent: str | None, children: list[str], message: Json = None) -> Json:
    found = {"id": id, "children": children}
    return found | ({"parent": parent} if parent else {}) | ({"message": message} if message else {})


def _said(role: str, content: Json, recipient: str = "all", **more: Json) -> Json:
    author = {"role": role, "name": "internal_tool"} if role == "tool" else {"role": role}
    return {"id": "m", "author": author, "content": content, "recipient": recipient, **more}


def _text(text: str) -> Json:
    return {"content_type": "text", "parts": [text]}


_MODEL = {"model_slug": "gpt-5-5-thinking"}
_RECAP = {"content_type": "reasoning_recap", "content": "Thought for 16s"}
_IMAGE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_1", "width": 1254, "height": 1254}
_HIDDEN = {"is_visually_hidden_from_conversation": True}

#: pionxzh/chatgpt-exporter, tests/fixtures/thinking-single-preamble.json and thinking-summaries.json
CHATGPT_REASONING: Json = {
    "id": "fixture", "title": "Tides", "create_time": 1, "update_time": 2, "current_node": "n5",
    "mapping": {
        "n0": _node("n0", None, ["n1"]),
        "n1": _node("n1", "n0", ["n2"], _said("user", _text("Why two tides a day?"))),
        "n2": _node("n2", "n1", ["n3"], _said(
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"summary": "Bulges", "content": "There are two bulges."}]},
            metadata=_MODEL,
        )),
        "n3": _node("n3", "n2", ["n4"], _said(
            "assistant", _text("Let me think about the far side."), channel="commentary",
            metadata={**_MODEL, "is_thinking_preamble_message": True},
        )),
        "n4": _node("n4", "n3", ["n5"], _said("assistant", _RECAP, metadata={**_MODEL, "finished_duration_sec": 16})),
        "n5": _node("n5", "n4", [], _said(
            "assistant", _text("One bulge on each side."), channel="final", metadata=_MODEL
        )),
    },
}  # fmt: skip

#: pionxzh/chatgpt-exporter, tests/fixtures/image-generation.json
CHATGPT_IMAGES: Json = {
    "id": "fixture", "title": "Fixture", "create_time": 1, "update_time": 2, "current_node": "n12",
    "mapping": {
        "n0": _node("n0", None, ["n1"]),
        "n1": _node("n1", "n0", ["n2"], _said(
            "user", {"content_type": "multimodal_text", "parts": [_IMAGE, "Make the sky green."]},
            metadata={"is_visually_hidden_from_conversation": False},
        )),
        "n2": _node("n2", "n1", ["n3"], _said("tool", {"content_type": "multimodal_text", "parts": [_IMAGE]})),
        "n3": _node("n3", "n2", ["n5"], _said(
            "tool", {"content_type": "multimodal_text", "parts": [_IMAGE, "Do not describe it."]}, metadata=_HIDDEN
        )),
        "n5": _node("n5", "n3", ["n6", "n7"], _said("assistant", _RECAP)),
        "n6": _node("n6", "n5", [], _said("assistant", _text(""), metadata=_HIDDEN)),
        "n7": _node("n7", "n5", ["n8"], _said("user", _text("Now a blue one."))),
        "n8": _node("n8", "n7", ["n12"], _said(
            "assistant", {"content_type": "code", "language": "json", "text": '{"size": "1024"}'},
            recipient="internal_tool", channel="commentary",
        )),
        "n12": _node("n12", "n8", [], _said("assistant", _text(""), metadata=_HIDDEN)),
    },
}  # fmt: skip


def _full(id: str, parent: str | None, children: list[str], role: str, text: str, when: int) -> Json:
    author = {"role": role, "name": None, "metadata": {}}
    details = {"model_slug": "gpt-4", "finish_details": {"type": "stop"}} if role == "assistant" else {}
    message = {
        "id": id, "author": author, "create_time": when, "update_time": None, "content": _text(text),
        "status": "finished", "end_turn": True, "weight": 1, "metadata": details, "recipient": "all",
    }  # fmt: skip
    return {"id": id, "parent": parent, "children": children, "message": message}


#: mitkury/chatgpt-export-parser, example-conversation.json
CHATGPT_BRANCH: Json = {
    "id": "conv-123", "title": "Bread", "create_time": 1704067200, "update_time": 1704067500, "current_node": "msg-6",
    "is_archived": False, "moderation_results": [],
    "mapping": {
        "msg-1": _full("msg-1", None, ["msg-2"], "system", "", 1704067200),
        "msg-2": _full("msg-2", "msg-1", ["msg-3"], "user", "Can you help me bake?", 1704067300),
        "msg-3": _full("msg-3", "msg-2", ["msg-4", "msg-5"], "assistant", "Of course!", 1704067350),
        "msg-4": _full("msg-4", "msg-3", ["msg-6"], "user", "Rye bread, please.", 1704067400),
        "msg-5": _full("msg-5", "msg-3", [], "user", "Wheat bread instead.", 1704067450),
        "msg-6": _full("msg-6", "msg-4", [], "assistant", "```\nrye\n```", 1704067500),
    },
    "plugin_ids": None, "conversation_template_id": None, "gizmo_id": None, "safe_urls": [],
}  # fmt: skip

#: lm-sys/FastChat, data/dummy_conversation_with_system.json
SHAREGPT_SYSTEM: Json = [
    {
        "id": "identity_0",
        "system": "You are a baker.",
        "conversations": [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "A baker."}],
    },
    {
        "id": "identity_6",
        "conversations": [{"from": "human", "value": "What is up?"}, {"from": "gpt", "value": "The dough."}],
    },
]

#: hiyouga/LLaMA-Factory, data/glaive_toolcall_en_demo.json (as in its data/README.md)
SHAREGPT_TOOLS: Json = [
    {
        "conversations": [
            {"from": "human", "value": "A number from 1 to 100, please."},
            {"from": "function_call", "value": '{"name": "draw", "arguments": {"min": 1, "max": 100}}'},
            {"from": "observation", "value": '{"number": 57}'},
            {"from": "gpt", "value": "57."},
        ],
        "tools": '[{"name": "draw", "parameters": {}}]',
    }
]

_TOOL = {"type": "function", "function": {"name": "takeoff", "parameters": {"type": "object", "properties": {}}}}

#: openai/openai-cookbook, examples/data/drone_training.jsonl
OPENAI_TOOLS: Json = {
    "messages": [
        {"role": "system", "content": "You fly a drone.\nReject the rest."},
        {"role": "user", "content": "Take off"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call_id", "type": "function", "function": {"name": "takeoff", "arguments": '{"altitude": 100}'}}
            ],
        },
    ],
    "parallel_tool_calls": False,
    "tools": [_TOOL],
}

#: hiyouga/LLaMA-Factory, data/mllm_demo.json
OPENAI_IMAGES: Json = [
    {
        "messages": [
            {"content": "Who are they?", "role": "user"},
            {"content": "Two bakers.", "role": "assistant"},
        ],
        "images": ["data/1.jpg"],
    }
]

_ROOT = {"id": "r", "convId": "a", "type": "root", "timestamp": 0, "role": "system", "content": "", "parent": None,
         "children": ["1"]}  # fmt: skip


def _row(id: str, parent: str | None, role: str, content: str, **more: Json) -> Json:
    return {
        "id": id, "convId": "a", "type": "text", "timestamp": 1765275434078, "role": role, "content": content,
        "parent": parent, "children": [], **more,
    }  # fmt: skip


_CONV = {"id": "a", "currNode": "4", "lastModified": 1765279699684, "name": "Clocks"}

#: ggml-org/llama.cpp, tools/ui/tests/unit/conversation-import.test.ts, tools/server/webui/src/lib/types/database.d.ts.
#: A child stands before its parent here: the order of the rows tells nothing.
LLAMACPP_SESSION: Json = [
    {"type": "session", "harness": "llama.app", **_CONV},
    {"type": "message", "message": _ROOT},
    {"type": "message", "message": _row("2", "1", "assistant", "", model="tiny.gguf", reasoningContent="Call it.",
                                        toolCalls=[{"id": "t1", "function": {"name": "get_time", "arguments": "{}"}}])},
    {"type": "message", "message": _row("1", "r", "user", "What time is it?", extra=[
        {"type": "TEXT", "name": "zone.txt", "size": 3, "content": "UTC"},
        {"type": "IMAGE", "name": "clock.png", "base64Url": "data:image/png;base64,AA=="}])},
    {"type": "message", "message": _row("4", "3", "assistant", "15:00.", timings={"predicted_n": 4})},
    {"type": "message", "message": _row("3", "2", "tool", "15:00 UTC", toolCallId="t1")},
]  # fmt: skip

#: The same conversation in the older export, where tool calls are JSON inside a string.
LLAMACPP_OLDER: Json = {
    "conv": _CONV,
    "messages": [
        {**row, "toolCalls": json.dumps(row["toolCalls"])} if "toolCalls" in row else row
        for row in (line["message"] for line in LLAMACPP_SESSION[1:])
    ],
}

#: huggingface/hub-docs, docs/hub/session-traces-format.md
SESSION_TRACE: Json = [
    {"type": "session", "harness": "my-agent", "id": "abc123", "name": "the time"},
    {"type": "message", "message": {"role": "user", "content": "what time is it?"}},
    {"type": "message", "message": {"role": "assistant", "content": "", "toolCalls": [
        {"id": "t1", "function": {"name": "get_time", "arguments": "{}"}}]}},
    {"type": "message", "message": {"role": "tool", "toolCallId": "t1", "content": "15:00"}},
    {"type": "message", "message": {"role": "assistant", "content": "it is 15:00"}},
]  # fmt: skip


def _step(*content: Json, **more: Json) -> Json:
    return {
        "type": "contentBlock", "stepIdentifier": "1-0.5", "content": list(content),
        "defaultShouldIncludeInContext": True, "shouldIncludeInContext": True, **more,
    }  # fmt: skip


_REQUEST = {"type": "toolCallRequest", "callId": 42, "toolCallRequestId": "request-42", "name": "fs_read",
            "parameters": {"path": "oven.txt"}, "pluginIdentifier": "mcp/files"}  # fmt: skip
_RESULT = {"type": "toolCallResult", "callId": 42, "toolCallRequestId": "request-42",
           "content": '[{"type":"text","text":"220"}]'}  # fmt: skip

#: No whole file was found in public. Fields after YorkieDev/lm-studio-conversation-converter, script.js (versions,
#: steps, settings), lmstudio-ai/lmstudio-bug-tracker issue 872 (tokensCount may be null) and public programs that read
#: tool calls out of these files; a new chat has no name yet.
LMSTUDIO_TOOLS: Json = {
    "pinned": False,
    "createdAt": 1765275434078,
    "tokenCount": 40,
    "systemPrompt": "",
    "messages": [
        {
            "versions": [
                {"type": "singleStep", "role": "user", "content": [
                    {"type": "text", "text": "How hot is the oven?"},
                    {"type": "file", "fileIdentifier": "1 - 2.png", "fileType": "image", "sizeBytes": 5}]},
            ],
            "currentlySelected": 0,
        },
        {
            "versions": [
                {
                    "type": "multiStep",
                    "role": "assistant",
                    "senderInfo": {"senderName": "qwen3"},
                    "steps": [
                        _step({"type": "text", "text": "Look.", "tokensCount": None},
                              style={"type": "thinking", "ended": True, "title": ""},
                              prefix="<think>", suffix="</think>"),
                        _step(_REQUEST, roleOverride="assistant"),
                        _step(_RESULT, roleOverride="tool"),
                        _step({"type": "text", "text": "220 ", "tokensCount": 2}, {"type": "text", "text": "°C."},
                              genInfo={"indexedModelIdentifier": "qwen/qwen3-4b", "stats": {"stopReason": "eosFound"}}),
                        {"type": "debugInfoBlock", "stepIdentifier": "2", "debugInfo": "x"},
                    ],
                }
            ],
            "currentlySelected": 0,
        },
    ],
    "usePerChatPredictionConfig": True,
    "perChatPredictionConfig": {"fields": [{"key": "llm.prediction.systemPrompt", "value": "Be exact."}]},
    "clientInput": "",
    "plugins": [],
    "lastUsedModel": {"identifier": "qwen3-4b", "indexedModelIdentifier": "qwen/qwen3-4b"},
}  # fmt: skip

#: Transcripts of pionxzh/chatgpt-exporter, as many lie in public repositories.
MARKDOWN_EXPORTER = """# Loading with a job

#### You:
Load it with a job?

#### ChatGPT:
Yes, by these steps:

1. **Connect**: make it.
## 2. Run
You: run it.

#### You:
Thanks
"""
