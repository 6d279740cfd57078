"""Lint, format, types and import contracts, so that one test command says all there is to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent

CHECKS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["basedpyright", "--pythonpath", sys.executable, "chatapp"],
    "imports": ["lint-imports"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_code_is_clean(check: str) -> None:
    tool, *arguments = CHECKS[check]
    result = subprocess.run([BIN / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_nothing_names_a_machine_or_a_registry() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    # Assembled so that this file does not name them either.
    unwanted = [
        "/" + "root/",
        "/" + "work/main",
        "/tmp/" + "venv",
        "pypi" + ".org",
        "python" + "hosted",
        "registry.npm" + "js",
    ]
    found = []
    for name in filter(None, tracked.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{name}: {word}" for word in unwanted if word in text]
    assert not found
