"""docs/ask.md says what the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path

from chatapp.commands import ask
from tests.commands.conftest import Program
from tests.engine.folder import write_deeper

PAGE = (Path(__file__).parents[2] / "docs" / "ask.md").read_text(encoding="utf-8")


def documented(heading: str) -> dict[str, set[str]]:
    """For each type of line the words in code style of its row."""
    section = PAGE.split(f"## JSON lines of `{heading}`")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
    return {kind: set(re.findall(r"`(\w+)`", text)) for kind, text in rows}


def test_every_field_is_documented(tiny_model: Path, tmp_path: Path, program: Program):
    asked = program(
        "ask", "-m", tiny_model, "--json", "--candidates", 2, "--attention", "--pause-above", 5.5, "--seed", 1,
        "--max-tokens", 9, "Hi",
    )  # fmt: skip
    deeper = write_deeper(tmp_path / "deeper", tiny_model, 12)
    drafted = program("ask", "-m", deeper, "--json", "--draft", tiny_model, "--max-tokens", 9, "Hi")
    scored = program("score", "-m", tiny_model, "--json", stdin="Hello you")
    for heading, output in (("ask", asked.stdout), ("ask", drafted.stdout), ("score", scored.stdout)):
        fields = documented(heading)
        for line in map(json.loads, output.splitlines()):
            assert line.keys() - {"type"} <= fields[line["type"]]
    assert '"drafted"' in drafted.stdout
    assert '"attention"' in asked.stdout


def test_every_option_in_the_examples_exists():
    known = ask._parser().format_help()
    for option in re.findall(r"^    .*?chatapp ask (.*?)(?:   #.*)?$", PAGE, re.MULTILINE):
        for name in re.findall(r"(?<!\S)--?[a-zA-Z][a-z-]*", option):
            assert name in known, name
