"""What other programs really write, read and given back; see `public_samples` for where each shape was found."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from chatapp.conversation.exchange import registry
from chatapp.conversation.exchange.transcript import Transcript, transcript_of
from chatapp.conversation.store import Store

from . import public_samples as public


def data(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def json_lines(values: list) -> str:
    return "\n".join(map(json.dumps, values))


def only(value: object) -> Transcript:
    imported = registry.read(data(value), "file")
    assert imported.problems == []
    [transcript] = imported.transcripts
    return transcript


def plain(transcript: Transcript) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in transcript.path()]


def archive(**members: object) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        for name, value in members.items():
            made.writestr(name.replace("__", "."), data(value))
    return packed.getvalue()


def test_chatgpt_reasoning_is_kept_beside_its_reply_and_is_no_turn():
    transcript = only([public.CHATGPT_REASONING])
    assert plain(transcript) == [
        ("user", "Why two tides a day?"),
        ("assistant", "Let me think about the far side."),
        ("assistant", "One bulge on each side."),
    ]
    assert [message.extra for message in transcript.path()] == [{}, {"thinking": "There are two bulges."}, {}]
    assert transcript.notices == ["Messages of the kind 'reasoning_recap' have no text and were left out."]


def test_chatgpt_reasoning_passes_nodes_that_say_nothing():
    value = json.loads(json.dumps(public.CHATGPT_REASONING))
    value["mapping"]["n4"]["parent"] = "n2"  # without the preamble: thoughts, how long they took, the reply
    del value["mapping"]["n3"]
    reply = only([value]).path()[-1]
    assert (reply.content, reply.extra) == ("One bulge on each side.", {"thinking": "There are two bulges."})


def test_chatgpt_images_tools_and_hidden_nodes():
    transcript = only([public.CHATGPT_IMAGES])
    assert plain(transcript) == [
        ("user", "[image_asset_pointer]\nMake the sky green."),
        ("tool", "[image_asset_pointer]"),
        ("user", "Now a blue one."),
        ("assistant", '{"size": "1024"}'),
    ]
    assert transcript.path()[1].extra == {"name": "internal_tool"}
    assert transcript.path()[3].extra == {"recipient": "internal_tool"}


def test_chatgpt_branches():
    transcript = only(public.CHATGPT_BRANCH)
    assert [content for _, content in plain(transcript)] == [
        "Can you help me bake?", "Of course!", "Rye bread, please.", "```\nrye\n```",
    ]  # fmt: skip
    assert [[m.content for m in branch][-1] for branch in transcript.branches()] == [
        "```\nrye\n```",
        "Wheat bread instead.",
    ]
    assert (transcript.path()[1].model, transcript.path()[1].created) == ("gpt-4", "2024-01-01T00:02:30.000Z")


def test_a_large_chatgpt_export_comes_in_parts():
    """As Mintplex-Labs/anything-llm issue 5564 lists it."""
    packed = archive(
        chat__html="<html>", **{"conversations-001__json": [public.CHATGPT_BRANCH]},
        **{"conversations-000__json": [public.CHATGPT_REASONING]}, shared_conversations__json=[], user__json={},
    )  # fmt: skip
    imported = registry.read(packed, "export.zip")
    assert [transcript.title for transcript in imported.transcripts] == ["Tides", "Bread"]
    assert imported.problems == []


def test_sharegpt_with_a_system_field_and_with_tools():
    first, second = registry.read(data(public.SHAREGPT_SYSTEM), "x").transcripts
    assert (first.system, second.system) == ("You are a baker.", "")
    assert plain(second) == [("user", "What is up?"), ("assistant", "The dough.")]
    tools = only(public.SHAREGPT_TOOLS)
    assert [role for role, _ in plain(tools)] == ["user", "assistant", "tool", "assistant"]
    assert tools.notices == ["Fields that have no place here were left out: tools."]
    [again] = json.loads(registry.EXPORTERS["sharegpt"].write(tools, tree=False))
    assert again["conversations"] == public.SHAREGPT_TOOLS[0]["conversations"]


def test_openai_fine_tuning_lines_with_tools_and_with_images():
    imported = registry.read(data(json_lines([public.OPENAI_TOOLS] * 2)), "x")
    assert [transcript.system for transcript in imported.transcripts] == ["You fly a drone.\nReject the rest."] * 2
    assert imported.transcripts[0].notices == ["Fields that have no place here were left out: tools."]
    again = json.loads(registry.EXPORTERS["json"].write(imported.transcripts[0], tree=False))
    assert again[2] == {**public.OPENAI_TOOLS["messages"][2], "content": ""}
    assert only(public.OPENAI_IMAGES).notices == ["Fields that have no place here were left out: images."]


@pytest.mark.parametrize(
    "value",
    [json_lines(public.LLAMACPP_SESSION), public.LLAMACPP_OLDER, [public.LLAMACPP_OLDER]],
    ids=["lines", "older", "older list"],
)
def test_llama_cpp_exports_whatever_the_order_of_their_rows(value):
    transcript = only(value)
    assert (transcript.title, transcript.created) == ("Clocks", "2025-12-09T11:28:19.684Z")
    assert plain(transcript) == [
        ("user", "What time is it?\n\n--- File: zone.txt ---\nUTC"),
        ("assistant", ""), ("tool", "15:00 UTC"), ("assistant", "15:00."),
    ]  # fmt: skip
    calls = [{"id": "t1", "function": {"name": "get_time", "arguments": "{}"}}]
    assert transcript.path()[1].extra == {"thinking": "Call it.", "tool_calls": calls}
    assert transcript.path()[2].extra == {"tool_call_id": "t1"}
    assert transcript.notices == ["An attached file was left out: clock.png."]
    again = only(registry.EXPORTERS["llamacpp"].write(transcript, tree=True))
    assert [(m.role, m.content, m.model, m.extra) for m in again.path()] == [
        (m.role, m.content, m.model, m.extra) for m in transcript.path()
    ]


def test_several_llama_cpp_sessions_in_one_file_and_in_a_zip():
    session = json_lines(public.LLAMACPP_SESSION)
    other = json_lines(public.SESSION_TRACE)
    assert [t.title for t in registry.read(data(session + "\n" + other), "x").transcripts] == ["Clocks", "the time"]
    packed = archive(a__jsonl=session, b__jsonl=other, notes__txt="ignored")
    assert [t.title for t in registry.read(packed, "archive").transcripts] == ["Clocks", "the time"]


def test_a_session_trace_without_ids_is_a_chain():
    assert plain(only(json_lines(public.SESSION_TRACE))) == [
        ("user", "what time is it?"), ("assistant", ""), ("tool", "15:00"), ("assistant", "it is 15:00"),
    ]  # fmt: skip


def test_lm_studio_tool_calls_become_messages_and_a_chat_needs_no_name():
    transcript = only(public.LMSTUDIO_TOOLS)
    assert (transcript.system, transcript.created) == ("Be exact.", "2025-12-09T10:17:14.078Z")
    assert plain(transcript) == [
        ("user", "How hot is the oven?\n[file]"),
        ("assistant", "<think>Look.</think>"),
        ("tool", '[{"type":"text","text":"220"}]'),
        ("assistant", "220 °C."),
    ]
    [call] = transcript.path()[1].extra["tool_calls"]
    assert call["id"] == transcript.path()[2].extra["tool_call_id"] == "request-42"
    assert call["function"] == {"name": "fs_read", "arguments": '{"path": "oven.txt"}'}
    assert {message.model for message in transcript.path() if message.role == "assistant"} == {"qwen/qwen3-4b"}


def test_markdown_of_the_exporter_in_browsers():
    transcript = only(public.MARKDOWN_EXPORTER)
    assert transcript.title == "Loading with a job"
    assert [role for role, _ in plain(transcript)] == ["user", "assistant", "user"]
    assert plain(transcript)[0] == ("user", "Load it with a job?")


@pytest.mark.parametrize(
    "value",
    [
        [public.CHATGPT_REASONING], [public.CHATGPT_IMAGES], public.CHATGPT_BRANCH, public.SHAREGPT_TOOLS,
        json_lines([public.OPENAI_TOOLS]), public.OPENAI_IMAGES, json_lines(public.LLAMACPP_SESSION),
        json_lines(public.SESSION_TRACE), public.LMSTUDIO_TOOLS, public.MARKDOWN_EXPORTER,
    ],
    ids=range(10),
)  # fmt: skip
def test_imported_then_exported_then_imported_the_messages_are_equal(store: Store, value):
    session = store.add(only(value))
    session.close()
    session = store.open(session.id)
    assert session.notices == []
    before = transcript_of(session, tree=True)
    for format in ("markdown", "llamacpp", "json", "sharegpt"):
        again = registry.read(registry.EXPORTERS[format].write(before, tree=True).encode(), "x").transcripts
        branches = [branch for transcript in again for branch in transcript.branches()]
        assert {tuple((m.role, m.content) for m in branch) for branch in branches} == {
            tuple((m.role, m.content) for m in branch) for branch in before.branches()
        }, format
