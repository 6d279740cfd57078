"""``chatapp ask`` as programs and people use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chatapp import paths
from chatapp.conversation.store import Store
from chatapp.text import visible
from tests.commands.conftest import Program

START = {"type", "model", "prompt_tokens", "reused", "prefilled", "method"}
TOKEN = {
    "type", "index", "id", "text", "entropy", "varentropy", "surprisal", "sampled_entropy", "state", "top",
}  # fmt: skip
END = {"type", "finish", "tokens", "text", "prompt_tps", "generation_tps", "mean_entropy"}


def lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def conversation(model: Path, title: str = "holiday") -> str:
    session = Store().new(str(model), "Be brief.")
    session.rename(title)
    session.add_message("user", "Hello")
    session.close()
    return title


def test_json_has_the_promised_fields(tiny_model: Path, program: Program):
    done = program("ask", "-m", tiny_model, "--json", "--seed", 3, "--max-tokens", 6, "--alternatives", 2, "Hi", "you")
    assert (done.returncode, done.stderr) == (0, "")
    start, *tokens, end = lines(done.stdout)
    assert set(start) >= START
    assert set(end) >= END
    assert [token["index"] for token in tokens] == list(range(end["tokens"]))
    for token in tokens:
        assert set(token) >= TOKEN
        assert len(token["top"]) == 2
        assert token["entropy"] >= 0
        assert token["varentropy"] >= 0
    assert end["text"].startswith("".join(token["text"] for token in tokens))
    assert end["mean_entropy"] == pytest.approx(sum(token["entropy"] for token in tokens) / len(tokens))
    assert done.stdout.isascii()


def test_same_seed_same_ids_and_a_pipe_is_an_argument(tiny_model: Path, program: Program):
    options = ("ask", "-m", tiny_model, "--json", "--temperature", 1, "--seed", 5, "--max-tokens", 8)
    argument = program(*options, "What is it?")
    pipe = program(*options, stdin="What is it?\n")
    both = program(*options, "What", stdin="is it?")
    ids = [[line["id"] for line in lines(done.stdout) if line["type"] == "token"] for done in (argument, pipe, both)]
    assert ids[0] == ids[1] != ids[2]


def test_plain_text_is_the_text_of_the_json_made_safe(tiny_model: Path, program: Program):
    options = ("ask", "-m", tiny_model, "--temperature", 0, "--max-tokens", 40, "Hi")
    text = program(*options).stdout
    end = lines(program(*options, "--json").stdout)[-1]
    assert any(ord(c) < 32 for c in end["text"])  # the random model writes control characters
    assert text == visible(end["text"]) + "\n"
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text)


def test_heat_colours_doubt(tiny_model: Path, program: Program, monkeypatch: pytest.MonkeyPatch):
    options = ("ask", "-m", tiny_model, "--heat", "--temperature", 0, "--max-tokens", 8, "Hi")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[30;48;5;" in program(*options).stdout or "\x1b[37;48;5;" in program(*options).stdout
    monkeypatch.setenv("NO_COLOR", "1")
    plain = program(*options).stdout
    assert "48;5" not in plain
    assert "\x1b[" in plain  # underlined instead
    monkeypatch.setenv("TERM", "dumb")
    dumb = program(*options).stdout
    assert "\x1b" not in dumb
    assert "⟨" in dumb


@pytest.mark.parametrize(
    ("arguments", "stdin", "word"),
    [
        ((), "", "nothing to ask"),
        ((), b"ab\xff", "UTF-8"),
        (("--bogus", "x"), "", "--bogus"),
        (("--top-k", "many", "x"), "", "--top-k"),
        (("--max-tokens", "0", "x"), "", "--max-tokens"),
        (("-C", "a", "--from-token", "a:1:1"), "", "not both"),
        (("--from-token", "a:b"), "", "NAME:MESSAGE:INDEX"),
        (("--pick", "1", "x"), "", "--from-token"),
        (("-C", "nosuch", "x"), "", "nosuch"),
        (("--pause-above", "nan", "x"), "", "nats"),
        (("--pause-above", "-1", "x"), "", "nats"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], stdin: str | bytes, word: str, program: Program):
    done = program("ask", *arguments, stdin=stdin)
    assert done.returncode == 2
    assert done.stdout == ""
    assert word in done.stderr
    assert done.stderr.startswith("chatapp: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "word", "code"),
    [
        (("--temperature", -1), "temperature", 2),
        (("--sampler", "nosuch"), "nosuch", 2),
        (("--kv-bits", 7), "kv-bits", 2),
        (("--max-kv-size", 64), "64", 1),
        (("-m", "no-such-model"), "no-such-model", 2),
    ],
)
def test_what_the_engine_refuses_is_one_sentence(
    tiny_model: Path, options: tuple[object, ...], word: str, code: int, program: Program
):
    done = program("ask", "-m", tiny_model, *options, stdin="one two three four " * 40)
    assert (done.returncode, done.stdout) == (code, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_conversation_is_continued_and_saved(tiny_model: Path, program: Program):
    name = conversation(tiny_model)
    done = program("ask", "-C", name, "--seed", 2, "--max-tokens", 5, "And", "now?")
    assert done.returncode == 0
    session = Store().open(Store().find(name), read_only=True)
    asked, reply = session.conversation.path()[-2:]
    assert (asked.role, asked.content) == ("user", "And now?")
    assert (reply.role, reply.model, reply.finish) == ("assistant", str(tiny_model), "length")
    assert reply.sampling["seed"] == 2
    assert len(session.tokens(reply.id)) == 5


def test_the_next_call_reads_only_what_is_new(tiny_model: Path, program: Program):
    name = conversation(tiny_model)
    options = ("ask", "-C", name, "--json", "--seed", 2, "--max-tokens", 5)
    first = lines(program(*options, "One?").stdout)[0]
    second = lines(program(*options, "Two?").stdout)[0]
    assert (first["method"], second["method"]) == ("cold", "disk")
    assert second["reused"] >= first["prompt_tokens"]
    (paths.config_dir() / "config.toml").write_text("[cache]\ndisk = false\n")
    assert lines(program(*options, "Three?").stdout)[0]["method"] == "cold"
    paths.prompt_cache(Store().find(name)).write_bytes(b"cut in half")
    (paths.config_dir() / "config.toml").write_text("[cache]\ndisk_bytes = 1000\n")
    told = program(*options, "Four?")
    assert lines(told.stdout)[0]["method"] == "cold"
    assert "damaged and was ignored" in told.stderr.splitlines()[0]
    assert "more than all saved caches may take (1000)" in told.stderr.splitlines()[1]


def test_a_question_that_cannot_be_answered_is_taken_back(tiny_model: Path, program: Program):
    name = conversation(tiny_model)
    done = program("ask", "-C", name, "--max-kv-size", 64, "one two three " * 100)
    assert done.returncode == 1
    session = Store().open(Store().find(name), read_only=True)
    assert [message.content for message in session.conversation.path()] == ["Hello"]


def test_going_on_from_a_token_of_a_saved_reply(tiny_model: Path, program: Program):
    name = conversation(tiny_model)
    asked = program("ask", "-C", name, "--json", "--temperature", 1, "--seed", 2, "--max-tokens", 9, "Go")
    ids = [line["id"] for line in lines(asked.stdout) if line["type"] == "token"]
    again = lines(program("ask", "--from-token", f"{name}:-1:4", "--json").stdout)
    assert [line["id"] for line in again if line["type"] == "token"] == ids[4:]
    top = lines(asked.stdout)[1 + 4]["top"]
    picked = lines(program("ask", "--from-token", f"{name}:3:4", "--pick", 2, "--json").stdout)
    tokens = [line for line in picked if line["type"] == "token"]
    assert (tokens[0]["index"], tokens[0]["id"]) == (4, top[1]["id"])
    assert tokens[0]["surprisal"] == pytest.approx(-top[1]["logprob"])
    assert len(tokens) == 5
    session = Store().open(Store().find(name), read_only=True)
    assert len(session.conversation.path()) == 3  # nothing of it was saved
    for pick in ((), ("--pick", 1)):
        beyond = program("ask", "--from-token", f"{name}:3:99", *pick)
        assert beyond.returncode == 2
        assert "9 recorded tokens" in beyond.stderr


def test_ctrl_c_stops_with_what_there_is(tiny_model: Path):
    asking = subprocess.Popen(
        [
            sys.executable, "-m", "chatapp.cli", "ask", "-m", str(tiny_model), "--json", "--seed", "1",
            "--logit-bias", "2=-100", "Hi",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert asking.stdout is not None
    assert asking.stderr is not None
    first = [asking.stdout.readline() for _ in range(3)]
    asking.send_signal(signal.SIGINT)
    # Not communicate(): it would pass over what readline() has already taken into its buffer.
    rest, errors = asking.stdout.read(), asking.stderr.read()
    asking.wait()
    found = lines("".join(first) + rest)
    assert asking.returncode == 130
    assert found[-1]["type"] == "end"
    assert found[-1]["finish"] == "cancelled"
    assert found[-1]["tokens"] == len(found) - 2
    assert "Traceback" not in errors


def test_ctrl_c_while_loading(tiny_model: Path):
    asking = subprocess.Popen(
        [sys.executable, "-m", "chatapp.cli", "ask", "-m", str(tiny_model), "Hi"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(paths.log_dir().glob("engine-*.log")):  # until the engine starts
        assert asking.poll() is None
        time.sleep(0.02)
    asking.send_signal(signal.SIGINT)
    output, errors = asking.communicate()
    assert (asking.returncode, output) == (130, "")
    assert "Traceback" not in errors


def test_a_reader_that_goes_away_is_no_error(tiny_model: Path):
    command = f"{sys.executable} -m chatapp.cli ask -m {tiny_model} --logit-bias 2=-100 --seed 1 Hi | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert done.stdout.endswith(b"0\n")
    assert done.stderr == b""


def test_closed_standard_streams(tiny_model: Path):
    command = f"{sys.executable} -m chatapp.cli ask -m {tiny_model} --max-tokens 3 Hi <&- >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_candidates_are_told_apart(tiny_model: Path, program: Program):
    options = ("ask", "-m", tiny_model, "--candidates", 2, "--seed", 1, "--max-tokens", 4, "Hi")
    found = lines(program(*options, "--json").stdout)
    assert {line["candidate"] for line in found if line["type"] != "start"} == {0, 1}
    text = program(*options).stdout
    assert "--- 1 of 2 ---" in text
    assert "--- 2 of 2 ---" in text


def test_pausing_names_the_token(tiny_model: Path, program: Program):
    options = ("ask", "-m", tiny_model, "--pause-above", 0, "--seed", 1, "Hi")
    end = lines(program(*options, "--json").stdout)[-1]
    assert end["finish"] == "paused"
    assert end["pending"]["entropy"] > 0
    assert "paused before a token" in program(*options).stderr
