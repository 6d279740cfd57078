"""A terminal of known abilities, whatever the tests run in."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def truecolor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
