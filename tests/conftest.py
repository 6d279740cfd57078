"""Fixtures for all tests: private folders, and the real default model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from chatapp.conversation.storage import Storage
from chatapp.engine.blas import use_fast_blas

use_fast_blas()  # before any test imports MLX

#: Kept from run to run, so that the model is fetched and converted once.
MODEL_CACHE = Path(
    os.environ.get("CHATAPP_TEST_CACHE_DIR") or platformdirs.user_cache_dir("chatapp-tests", appauthor=False)
)


@pytest.fixture(autouse=True)
def private_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Points every folder of chatapp at a fresh one; the folder that holds them is handed out."""
    root = tmp_path_factory.mktemp("chatapp")
    for kind in ("CONFIG", "DATA", "CACHE"):
        monkeypatch.setenv(f"CHATAPP_{kind}_DIR", str(root / kind.lower()))
    return root


@pytest.fixture(autouse=True)
def closed_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the conversations that a test leaves open: thousands of tests run in one process."""
    opened: list[Storage] = []
    made = Storage.__init__

    def remembered(self: Storage, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(Storage, "__init__", remembered)
    yield
    for storage in opened:
        storage.records.close()
        storage.journal.log.close()
        if storage._lock is not None:
            storage._lock.release()


@pytest.fixture(scope="session")
def default_model_dir() -> Path:
    """Folder of the default model, made by chatapp's own download and conversion on the first run of all.

    Workers of one run, and runs at the same time, wait for each other at the lock of the conversion.
    """
    from chatapp.engine.fetching import fetch
    from chatapp.models.registry import DEFAULT_MODEL

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHATAPP_CACHE_DIR", str(MODEL_CACHE))
        patch.setenv("CHATAPP_CONFIG_DIR", str(MODEL_CACHE / "no-config"))
        return fetch(DEFAULT_MODEL).folder
