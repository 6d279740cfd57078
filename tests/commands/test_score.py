"""``chatapp score`` as programs and people use it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.commands.conftest import Program

TEXT = "The quick brown fox\n\tjumps over the lazy dog. 東京 <|im_end|> 😀"


def test_json_is_the_text_and_its_perplexity(tiny_model: Path, tmp_path: Path, program: Program):
    file = tmp_path / "text.txt"
    file.write_text(TEXT, encoding="utf-8")
    done = program("score", "-m", tiny_model, "--json", "--alternatives", 1, file)
    assert (done.returncode, done.stderr) == (0, "")
    *tokens, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(token["text"] for token in tokens) == TEXT
    assert (tokens[0]["entropy"], tokens[0]["surprisal"]) == (0.0, 0.0)
    surprisal = [token["surprisal"] for token in tokens[1:]]
    assert end["tokens"] == len(tokens)
    assert end["perplexity"] == pytest.approx(math.exp(sum(surprisal) / len(surprisal)))
    assert end["mean_entropy"] == pytest.approx(sum(t["entropy"] for t in tokens[1:]) / len(surprisal))
    assert program("score", "-m", tiny_model, "--json", "--alternatives", 1, stdin=TEXT).stdout == done.stdout


def test_a_table_for_people(tiny_model: Path, program: Program):
    done = program("score", "-m", tiny_model, stdin="a\nb\x1b[2J")
    head, *rows, summary = done.stdout.splitlines()
    assert head.split() == ["H", "nats", "V", "nats²", "S", "nats", "token"]
    assert rows[0].strip() == "“a”"
    assert "“↵”" in done.stdout
    assert "\x1b" not in done.stdout
    assert f"{len(rows)} tokens: perplexity" in summary


@pytest.mark.parametrize(
    ("arguments", "stdin", "word"), [((), "", "empty"), (("/no/such/file",), "", "cannot be read")]
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], stdin: str, word: str, program: Program):
    done = program("score", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_that_is_no_text(tmp_path: Path, program: Program):
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    done = program("score", tmp_path / "picture")
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr
