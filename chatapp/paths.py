"""Where chatapp keeps things. Folders are made private to the user (0700) on first use."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import platformdirs

import chatapp
from chatapp.errors import ChatappError

#: The end of a saved KV cache's name; MLX goes by the last part.
PROMPT_CACHE = ".cache.safetensors"


def config_dir() -> Path:
    """The person's config.toml, models.toml and themes/ (``CHATAPP_CONFIG_DIR`` overrides)."""
    return _private("CHATAPP_CONFIG_DIR", Path(platformdirs.user_config_dir("chatapp", appauthor=False)))


def data_dir() -> Path:
    """Conversations and drafts: what must never be lost (``CHATAPP_DATA_DIR`` overrides)."""
    return _private("CHATAPP_DATA_DIR", Path(platformdirs.user_data_dir("chatapp", appauthor=False)))


def cache_dir() -> Path:
    """Converted models, saved prompt caches, the search index: what can be made again (``CHATAPP_CACHE_DIR``)."""
    return _private("CHATAPP_CACHE_DIR", Path(platformdirs.user_cache_dir("chatapp", appauthor=False)))


def log_dir() -> Path:
    """Logs of the engine and of the UI."""
    return private_dir(cache_dir() / "log")


def conversations_dir() -> Path:
    """One ``<id>.jsonl`` for each conversation."""
    return private_dir(data_dir() / "conversations")


def prompt_cache(conversation: str) -> Path:
    """Where a conversation's saved KV cache lies, by the conversation's id (the engine writes and reads it)."""
    return private_dir(cache_dir() / "prompts") / f"{conversation}{PROMPT_CACHE}"


def forget_prompt_cache(conversation: str) -> None:
    """Removes a conversation's saved KV cache, in which its tokens stand; also the parts of several ranks."""
    for file in (cache_dir() / "prompts").glob(f"{glob.escape(conversation)}.*"):
        if file.name.endswith(PROMPT_CACHE):
            file.unlink(missing_ok=True)


def shipped(name: str) -> Path:
    """A file or folder that ships with chatapp: ``models.toml`` or ``themes``.

    In a wheel it lies in the package's ``data`` folder, in a checkout at the top level.
    """
    package = Path(chatapp.__file__).parent
    packaged = package / "data" / name
    return packaged if packaged.exists() else package.parent / name


class FolderError(ChatappError, OSError):
    """A folder of chatapp's cannot be made."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or str(error)
        super().__init__(
            f"The folder {path} cannot be made ({reason}): make room for it, or set CHATAPP_CONFIG_DIR, "
            "CHATAPP_DATA_DIR or CHATAPP_CACHE_DIR to a folder that can be written to."
        )
        self.strerror = reason


def private_dir(path: Path) -> Path:
    """Makes a folder that only the user can enter; missing parents get the usual permissions.

    Raises:
        FolderError: It cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(path, error) from error
    return path


def _private(variable: str, default: Path) -> Path:
    override = os.environ.get(variable)
    return private_dir(Path(override).expanduser() if override else default)
