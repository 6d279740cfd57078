"""The tiny model of the engine's tests, and the program run as a person runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.engine.conftest import tiny_model

__all__ = ["tiny_model"]

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program() -> Program:
    """Runs ``chatapp`` with arguments and standard input; its output is text."""

    def run(*arguments: object, stdin: str | bytes = b"") -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "chatapp.cli", *map(str, arguments)], input=data, capture_output=True, check=False
        )
        assert b"Traceback" not in done.stderr
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run
