"""Every format: public shapes read right, what was written reads back equal, odd files end in one sentence."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import re
import zipfile
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatapp.conversation.events import Message
from chatapp.conversation.exchange import export, registry
from chatapp.conversation.exchange.transcript import Transcript, transcript_of
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError

from . import public_samples as public
from .helpers import reply, token
from .samples import CHATGPT, LLAMACPP, LMSTUDIO, MARKDOWN_BOLD, MARKDOWN_HEADINGS, OPENAI, SHAREGPT


def read(value: object) -> registry.Imported:
    data = (
        value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else json.dumps(value).encode()
    )
    return registry.read(data, "file.json")


def plain(transcript: Transcript) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in transcript.path()]


# What other programs write -----------------------------------------------------------------------------------------


def test_chatgpt_export_keeps_the_tree_the_shown_branch_and_the_models():
    imported = read([CHATGPT])
    [transcript] = imported.transcripts
    assert imported.format == "chatgpt"
    assert (transcript.title, transcript.created) == ("Primes", "2025-01-05T13:00:00.000Z")
    assert plain(transcript) == [
        ("user", "Is 91 prime?"), ("assistant", "No: 91 = 7 × 13."), ("user", "And this?\n[image_asset_pointer]"),
        ("assistant", "I cannot tell."),
    ]  # fmt: skip
    assert transcript.path()[1].model == "gpt-4o"
    alternatives = [m.content for m in transcript.messages if m.parent == transcript.path()[0].id]
    assert alternatives == ["Yes.", "No: 91 = 7 × 13."]
    assert transcript.notices == ["Parts of the kind 'image_asset_pointer' were left out; "
                                  "[image_asset_pointer] stands in their place."]  # fmt: skip


def test_chatgpt_export_as_it_is_downloaded():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("user.json", "{}")
        archive.writestr("conversations.json", json.dumps([CHATGPT, CHATGPT]))
    assert [t.title for t in read(packed.getvalue()).transcripts] == ["Primes", "Primes"]


def test_lm_studio_conversation():
    imported = read(LMSTUDIO)
    [transcript] = imported.transcripts
    assert (imported.format, transcript.title, transcript.system) == ("lmstudio", "Tea", "Answer in one line.")
    assert (transcript.model, transcript.created) == ("qwen3-4b", "2025-01-05T13:00:00.000Z")
    assert plain(transcript) == [("user", "Green tea: how hot?"), ("assistant", "<think>Easy.</think>80 °C.")]
    assert [m.content for m in transcript.messages if m.role == "user"] == ["Tea: how hot?", "Green tea: how hot?"]
    assert transcript.path()[1].model == "qwen/qwen3-4b"


@pytest.mark.parametrize("value", [LLAMACPP, [LLAMACPP]], ids=["one", "list"])
def test_llama_cpp_web_ui_export(value):
    imported = read(value)
    [transcript] = imported.transcripts
    assert (imported.format, transcript.title, transcript.system) == ("llamacpp", "Rivers", "Be exact.")
    assert plain(transcript) == [
        ("user", "Longest river?\n\n--- File: notes.txt ---\n…"),
        ("assistant", "The Nile, by most counts."),
    ]
    assert [m.content for m in transcript.messages][1:] == ["The Amazon.", "The Nile, by most counts."]
    assert transcript.messages[2].extra == {"thinking": "Nile or Amazon?"}
    assert transcript.notices == []


@pytest.mark.parametrize("text", [json.dumps([SHAREGPT]), json.dumps(SHAREGPT) + "\n" + json.dumps(SHAREGPT) + "\n"])
def test_sharegpt_as_a_list_and_line_by_line(text):
    imported = read(text)
    assert imported.format == "sharegpt"
    for transcript in imported.transcripts:
        assert transcript.system == "You are a cook."
        assert plain(transcript) == [
            ("user", "Salt?"),
            ("assistant", "A pinch."),
            ("tool", "42 g"),
            ("assistant", "Less."),
        ]


def test_openai_messages_and_fine_tuning_lines():
    [transcript] = read(OPENAI).transcripts
    assert transcript.system == "Be kind."
    assert plain(transcript) == [
        ("user", "Hi\n[image_url]"),
        ("assistant", ""),
        ("tool", "12"),
        ("assistant", "Twelve."),
    ]
    lines = "\n".join(json.dumps({"messages": OPENAI}) for _ in range(3))
    assert len(read(lines).transcripts) == 3


@pytest.mark.parametrize("text", [MARKDOWN_HEADINGS, MARKDOWN_BOLD, MARKDOWN_HEADINGS.replace("\n", "\r\n")])
def test_markdown_of_other_programs(text):
    imported = read(text)
    assert imported.format == "markdown"
    assert plain(imported.transcripts[0]) == [
        ("user", "How do I print?"),
        ("assistant", 'Like this:\n\n```python\n# User\nprint("User: hi")\n```\n\nYou can also log.'),
        ("user", "Thanks"),
    ]
    before = ["What stands before the first message was left out."] if "exported yesterday" in text else []
    assert imported.transcripts[0].notices == before


def test_one_bad_conversation_does_not_take_the_others_with_it():
    strange = {"conversations": [{"from": "narrator", "value": "Once"}]}
    imported = read([SHAREGPT, strange, SHAREGPT])
    assert len(imported.transcripts) == 2
    assert imported.problems == ["Conversation 2 of file.json was left out: message 1 has the unknown role 'narrator'."]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        ("Grüße".encode("latin-1"), "is not UTF-8 (byte 3)"),
        (b"\x00\x01\x02", "it is not a text file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\xff", "is not a text file"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' * 100_000 + b"1", "nested too deeply"),
        (b'{"messages": [', "is not valid JSON (line 1, column 15"),
        (b'{"a": 1}\n{"a": \n', "none of the formats"),
        (b'{"a": \n{"a": 1}\n{"b"', "is not valid JSON (line 3"),
        (b"[]", "none of the formats"),
        (b"{}", "none of the formats"),
        (b'[{"role": 5}, 7]', "none of the formats"),
        (b'[{"role": 5, "content": "x"}]', "has no role"),
        (b'{"conversations": [{"value": "x"}]}', "does not say whom"),
        (b"Just a text about cats.", "who speaks"),
        (b"PK\x03\x04 broken", "damaged"),
        (b'{"conversations": []}', "it holds no message"),
        (b'{"mapping": {"a": {"parent": "a", "message": {"author": {"role": "user"}}}}}', "in a circle"),
    ],
)
def test_odd_files_end_in_one_sentence(data, sentence):
    with pytest.raises(ChatappError) as caught:
        registry.read(data, "file.json")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_damaged_json_lines_what_is_whole_is_read_and_the_rest_named():
    line = json.dumps({"messages": [{"role": "user", "content": "Hi"}]})
    lines = [line[:20], line, "", line, "\0garbage", line, line]
    cut = line[:-5]
    imported = registry.read("\n".join([*lines, cut]).encode(), "chats.jsonl")
    assert len(imported.transcripts) == 4
    assert imported.problems == ["Lines 1, 5, 8 of chats.jsonl are no whole JSON and were left out."]
    many = registry.read("\n".join([line, "{"] * 13).encode(), "chats.jsonl")
    assert many.problems[0].startswith("Lines 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 3 more of")
    [last] = registry.read(f"{line}\n{cut}".encode(), "x").problems
    assert last == "Line 2 of x is no whole JSON and was left out."


@pytest.mark.parametrize("value", [[CHATGPT, CHATGPT, CHATGPT], [SHAREGPT] * 3, [LLAMACPP] * 3])
@pytest.mark.parametrize("indent", [None, 1])
def test_of_a_list_that_breaks_off_the_whole_conversations_are_read(value, indent):
    text = json.dumps(value, indent=indent)
    imported = registry.read(text[:-40].encode(), "export.json")
    assert len(imported.transcripts) == 2
    assert len(imported.problems) == 1
    assert re.fullmatch(
        r"export.json breaks off or is damaged at line \d+, column \d+; what stands before that was read.",
        imported.problems[0],
    )


def test_of_messages_that_break_off_the_whole_ones_are_read():
    text = json.dumps([{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}])
    assert plain(registry.read(text[:-10].encode(), "x").transcripts[0]) == [("user", "one")]


def test_utf_16_and_texts_with_a_mark_are_read():
    text = json.dumps([{"role": "user", "content": "Grüße 👋"}], ensure_ascii=False)
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"):
        assert plain(registry.read(text.encode(encoding), "x").transcripts[0]) == [("user", "Grüße 👋")]


def test_numbers_too_large_for_the_files_do_no_harm(store):
    tools = '[{"role": "user", "content": "x", "tool_calls": [%s]}]'
    for digits in ("1" * 5000, "-" + "1" * 30, str(1 << 64), str((1 << 62) + 1), "0.5"):
        imported = registry.read((tools % digits).encode(), "x")
        session = store.add(imported.transcripts[0])
        session.close()
        kept = store.open(session.id).conversation.path()[0].extra["tool_calls"]
        assert kept == [json.loads(digits)] if len(digits) < 20 else kept != []
    late = '{"conv": {"lastModified": %s}, "messages": [{"id": 1, "role": "user", "content": "x", "timestamp": %s}]}'
    assert registry.read((late % ("9" * 400, "1e400")).encode(), "x").transcripts[0].messages[0].created == ""


def test_long_runs_of_anything_are_read_in_no_time():
    ours = "<!-- chatapp transcript -->\n# \n\n## User"
    for piece in ("\n", " ", "-\n", "(", "\\", "#", "*", "`", "User:\n", "<!-- "):
        for start in ("User: x", ours + " (", ours + "\n\n"):
            with contextlib.suppress(ChatappError):
                registry.read((start + piece * 100_000 + "y").encode(), "x")


def test_a_large_file_is_read():
    messages = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"{i} " + "x" * 100} for i in range(20_000)]
    [transcript] = read(messages).transcripts
    assert len(transcript.path()) == 20_000


# There and back -----------------------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    st.lists(
        st.sampled_from(["## User", "\\## User", "\\\\## Tool x", "\n", "\r", " ", "# Title", "User:", "**You:**",
                         "```", "<!-- chatapp transcript -->", "## Assistant (m) <!-- 1 after 2 -->",
                         "\u2028", "&<b>'\""]),
        max_size=8,
    ).map("".join),
)  # fmt: skip


@st.composite
def trees(draw: st.DrawFn) -> Transcript:
    transcript = Transcript(
        draw(st.sampled_from(["", "A title", "## x"])), draw(TEXTS), "m", "2025-01-05T13:00:00.000Z"
    )
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from([None, *(m.id for m in transcript.messages)])) if number else None
        role = draw(st.sampled_from(["user", "assistant", "tool"]))
        transcript.add(role, draw(TEXTS), parent=parent, model="m (q4)" if role == "assistant" else "")
    transcript.head = draw(st.sampled_from([m.id for m in transcript.messages]))
    return transcript


def shape(transcript: Transcript) -> set[tuple[tuple[str, str, str], ...]]:
    """All branches, as texts: equal trees have equal ones whatever the ids are."""
    return {tuple((m.role, m.content, m.model) for m in branch) for branch in transcript.branches()}


@given(trees())
@settings(deadline=None, max_examples=150)
def test_shown_branches_read_back_equal(transcript):
    for format in ("json", "sharegpt", "llamacpp", "markdown"):
        [again] = registry.read(registry.EXPORTERS[format].write(transcript, tree=False).encode(), "x").transcripts
        assert plain(again) == plain(transcript), format
        assert again.system == transcript.system, format
        twice = registry.EXPORTERS[format].write(again, tree=False)
        assert plain(registry.read(twice.encode(), "x").transcripts[0]) == plain(transcript), format


@given(trees())
@settings(deadline=None, max_examples=150)
def test_trees_read_back_equal(transcript):
    for format in ("llamacpp", "markdown"):
        [again] = registry.read(registry.EXPORTERS[format].write(transcript, tree=True).encode(), "x").transcripts
        assert shape(again) == shape(transcript), format
        assert plain(again) == plain(transcript), format
    for format in ("json", "sharegpt"):
        branches = registry.read(registry.EXPORTERS[format].write(transcript, tree=True).encode(), "x").transcripts
        assert [plain(b) for b in branches] == [[(m.role, m.content) for m in b] for b in transcript.branches()]


@given(trees())
@settings(deadline=None, max_examples=60)
def test_imported_conversations_are_stored_and_come_out_equal(tmp_path_factory, transcript):
    store = Store(tmp_path_factory.mktemp("store"))
    store.add(transcript).close()
    session = store.open(store.ids()[0])
    assert session.notices == []
    assert plain(transcript_of(session)) == plain(transcript)
    out = transcript_of(session, tree=True)
    assert shape(out) == shape(transcript)
    native = registry.read(session.path.read_bytes(), "x")
    assert native.format == "chatapp"
    assert shape(native.transcripts[0]) == shape(transcript)
    session.close()


@pytest.mark.parametrize("value", [[CHATGPT], LMSTUDIO, LLAMACPP, [SHAREGPT], OPENAI, MARKDOWN_BOLD])
def test_what_was_imported_is_exported_with_equal_messages(store, value):
    [transcript] = read(value).transcripts
    session = store.add(transcript)
    for format in ("json", "sharegpt", "llamacpp", "markdown"):
        text = registry.EXPORTERS[format].write(transcript_of(session), tree=False)
        [again] = registry.read(text.encode(), "x").transcripts
        assert (plain(again), again.system) == (plain(transcript), transcript.system)
    if value is OPENAI:
        exported = json.loads(registry.EXPORTERS["json"].write(transcript_of(session), tree=False))
        assert exported[2]["tool_calls"] == OPENAI[2]["tool_calls"]
        assert exported[3]["tool_call_id"] == "c1"


# The heat -----------------------------------------------------------------------------------------------------------

HOSTILE = '<script>alert(1)</script>" onmouseover="x'


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.data.append(data)


def heated(store: Store) -> Transcript:
    session = store.new("tiny", "Be " + HOSTILE)
    session.add_message("user", HOSTILE + " \x1b[2J\u202e")
    reply(session, "Hel", "lo", HOSTILE)
    writer = session.begin_reply(parent=session.conversation.path()[0].id, model="tiny")
    writer.append([token("Other")])
    writer.finish("stop")
    return transcript_of(session, tree=True)


def test_html_stands_alone_and_nothing_in_it_is_markup_but_ours(store):
    transcript = heated(store)
    text = registry.EXPORTERS["html"].write(transcript, tree=True)
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "link", "iframe", "object", "a"}
    assert not [
        name for _, attributes in page.tags for name in attributes if name.startswith("on") or name in ("src", "href")
    ]
    assert ("meta", {"http-equiv": "Content-Security-Policy",
                     "content": "default-src 'none'; style-src 'unsafe-inline'"}) in page.tags  # fmt: skip
    assert not re.search(r"url\(|@import|https?:", text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "".join(page.data).count("<script>alert(1)</script>") >= 3  # shown as text


def test_a_file_that_is_there_is_kept_unless_it_is_to_be_replaced(store, tmp_path):
    session = store.new("tiny")
    session.add_message("user", "one")
    first = export(session, tmp_path / "out.md")
    before = first.read_text()
    session.add_message("user", "two")
    assert export(session, tmp_path / "out.md").name == "out-2.md"
    assert export(session, tmp_path / "out.md").name == "out-3.md"
    assert first.read_text() == before
    assert export(session, first, overwrite=True) == first
    assert "two" in first.read_text()


def test_html_has_the_numbers_of_each_token_and_the_alternatives_folded(store):
    transcript = heated(store)
    page = Page(registry.EXPORTERS["html"].write(transcript, tree=True))
    spans = [attributes for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert [a["title"].split("\n")[0] for a in spans] == [
        "entropy 0.500 nats", "entropy 0.500 nats", "entropy 1.500 nats", "entropy 2.500 nats",
    ]  # fmt: skip
    assert "surprisal 0.125 nats (p = 88.2%)" in spans[0]["title"]
    hot = [int(re.search(r"e(\d+)", a["class"])[1]) for a in spans[1:]]
    assert hot == sorted(hot)
    assert hot[0] < hot[-1]
    assert [tag for tag, _ in page.tags].count("details") == 1
    assert "details" not in [tag for tag, _ in Page(registry.EXPORTERS["html"].write(transcript, tree=False)).tags]


@pytest.mark.parametrize(
    ("pieces", "folded", "answer"),
    [
        (("<think>", "two and", " two</", "think>", "\n\nFour."), "<think>two and two</think>", "\n\nFour."),
        (("opened by the template</think>", " Four."), "opened by the template</think>", " Four."),
        (("<think>", "not ended"), "<think>not ended", ""),
        (("The tag <think> is written", " so.</think>"), None, "The tag <think> is written so.</think>"),
    ],
)
@pytest.mark.parametrize("with_tokens", [True, False])
def test_html_folds_the_reasoning_part(store, pieces, folded, answer, with_tokens):
    session = store.new("tiny")
    session.add_message("user", "What is </think> two and two?")
    reply(session, *pieces)
    transcript = transcript_of(session)
    if not with_tokens:
        transcript.tokens.clear()
    text = registry.EXPORTERS["html"].write(transcript, tree=False)
    found = re.search(r"<details><summary>Reasoning</summary>(.*?)</details>(.*?)</div>", text, re.DOTALL)
    assert (found is not None) == (folded is not None)
    assert text.count("</details>") == text.count("<details>") == (folded is not None)
    if found:
        assert "".join(Page(found[1]).data) == folded
    last = found[2] if found else text.rpartition('<div class="text">')[2]
    assert "".join(Page(last).data).rstrip("\n") == answer


def test_words_can_be_read_on_the_hottest_ground_of_both_colour_schemes(store):
    """Contrast by WCAG 2.2, 1.4.3: at least 4.5 to 1."""
    text = registry.EXPORTERS["html"].write(heated(store), tree=False)
    assert "calc(var(--strong) * 1)" in text
    schemes = re.findall(
        r"--ground: #(\w+); --ink: #(\w+);.*?--heat: (\d+) (\d+) (\d+); --strong: (\.\d+);", text, re.DOTALL
    )
    assert len(schemes) == 2
    for ground, ink, *heat, strong in schemes:
        behind = [float(strong) * int(h) + (1 - float(strong)) * g for h, g in zip(heat, channels(ground), strict=True)]
        bright, dark = sorted([luminance(behind), luminance(channels(ink))], reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 4.5


def channels(colour: str) -> list[float]:
    wide = colour if len(colour) == 6 else "".join(c * 2 for c in colour)
    return [float(int(wide[place : place + 2], 16)) for place in (0, 2, 4)]


def luminance(colour: list[float]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_token_records_as_csv_and_json_lines(store):
    session = store.new("tiny")
    session.add_message("user", "A")
    id = reply(session, " =1+1", "\n")
    transcript = transcript_of(session)
    rows = list(csv.DictReader(io.StringIO(registry.EXPORTERS["csv"].write(transcript, tree=False))))
    assert [json.loads(row["text"]) for row in rows] == [" =1+1", "\n"]
    assert [(row["index"], row["id"], row["entropy"], row["surprisal"]) for row in rows] == [
        ("0", "100", "0.5", "0.125"), ("1", "101", "1.5", "0.125"),
    ]  # fmt: skip
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "-", "@"))]
    lines = [json.loads(line) for line in registry.EXPORTERS["jsonl"].write(transcript, tree=False).splitlines()]
    assert [line["message"] for line in lines] == [id, id]
    assert lines[0]["top"] == [{"id": 100, "text": " =1+1", "logprob": -0.125}]


# Damage -------------------------------------------------------------------------------------------------------------


def test_fuzzed_imports_end_in_conversations_or_one_sentence():
    count = 10_000
    chance = random.Random(count)
    values = [[CHATGPT], LMSTUDIO, LLAMACPP, [SHAREGPT], OPENAI, [public.CHATGPT_REASONING], public.LMSTUDIO_TOOLS]
    samples = [json.dumps(value).encode() for value in values]
    samples += ["\n".join(map(json.dumps, public.LLAMACPP_SESSION)).encode()]
    samples += [MARKDOWN_BOLD.encode(), MARKDOWN_HEADINGS.encode()]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(count):
        data = mutated(chance, chance.choice(samples))
        try:
            imported = registry.read(data, "file")
        except ChatappError:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        for transcript in imported.transcripts:
            transcript.branches()
            for exporter in registry.EXPORTERS.values():
                exporter.write(transcript, tree=True)
    assert min(outcomes.values()) > count / 20


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Damage to bytes, or to values: JSON that is whole but holds the wrong kinds of things."""
    if chance.random() < 0.5 and data[:1] in b"[{":
        lines = data.split(b"\n")
        place = chance.randrange(len(lines))
        value = json.loads(lines[place])
        for _ in range(chance.randint(1, 3)):
            value = changed(chance, value)
        lines[place] = json.dumps(value).encode()
        return b"\n".join(lines)
    a, b = sorted(chance.choices(range(len(data)), k=2))
    return chance.choice(
        [data[:a], data[:a] + data[b:], data[:a] + b"\0\xff" + data[a:], data[b:] + data[:a], data + data]
    )


def changed(chance: random.Random, value: object) -> object:
    """One place in a JSON value replaced by something unfitting."""
    odd = [None, True, -1, 1e300, "", "x", [], {}, [None], {"a": [1]}, ["x", 2], "2", 0, "\ud800"]
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        return {**value, key: changed(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        return [*value[:place], changed(chance, value[place]), *value[place + 1 :]]
    return chance.choice(odd)


def test_messages_are_never_shared_between_transcripts():
    one, two = Transcript(), Transcript()
    one.add("user", "x", parent=None)
    assert two.messages == []
    assert one.messages == [Message("1", None, "user", "x")]
