"""Folders of chatapp's that cannot be made: one sentence, before anything else happens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chatapp import paths
from chatapp.cli import main
from chatapp.ui.prompt.drafts import Drafts


@pytest.mark.parametrize(("variable", "arguments"), [("DATA", ["list"]), ("DATA", []), ("CACHE", [])])
def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    arguments: list[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(f"CHATAPP_{variable}_DIR", str(tmp_path / "file" / "folder"))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / 'file' / 'folder'}" in said
    assert "cannot be made (Not a directory)" in said
    assert f"CHATAPP_{variable}_DIR" in said


def test_drafts_are_kept_in_memory_where_their_folder_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = Drafts()
    (paths.data_dir() / "drafts").touch()
    assert "File exists" in (drafts.save("", "text") or "")
    assert drafts.load("") == "text"
