"""Which theme is in force: the one needed for the first paint at once, all others after it; changes while it runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
from textual.app import App

from chatapp import paths
from chatapp.errors import ChatappError
from chatapp.ui import themes
from chatapp.ui.prompt.files import read_or_empty, write_private


class _Chosen(msgspec.Struct):
    theme: str = ""


class Looks:
    """The themes of an app.

    Attributes:
        names: What can be chosen.
        problems: What is wrong in theme files; whoever shows it clears it.
    """

    def __init__(self, app: App[object], wanted: str) -> None:
        """Makes one theme known and puts it in force.

        Args:
            app: Whose theme it is.
            wanted: The theme named in config.toml; empty for the one chosen last.
        """
        self.names: list[str] = []
        self.problems: list[str] = []
        self._app = app
        self._wanted = wanted or _remembered() or themes.DEFAULT
        self._watcher: themes.ThemeWatcher | None = None
        for name in (self._wanted, themes.DEFAULT):
            if self._use_one(name):
                break

    def _use_one(self, name: str) -> bool:
        for path in (folder / f"{name}.toml" for folder in _folders()):
            try:
                theme = themes.load_theme(path)
            except ChatappError:
                continue  # there is none, or load_all tells what is wrong with it
            self._app.register_theme(theme)
            self._app.theme = theme.name
            return True
        return False

    def load_all(self) -> None:
        """Reads all themes; the wanted one comes in force if its name is not its file's."""
        loaded = themes.load_themes()
        themes.register(self._app, loaded)
        self.names = sorted(loaded.themes)
        self.problems += loaded.problems
        if self._wanted in loaded.themes:
            self._app.theme = self._wanted
        else:
            self.problems.append(f"There is no theme {self._wanted!r}; Ctrl+T shows those there are.")
        self._watcher = themes.ThemeWatcher()

    def poll(self) -> None:
        """Takes over changes in the person's theme folder."""
        changed = self._watcher.poll() if self._watcher is not None else None
        if changed is not None:
            themes.register(self._app, changed)
            self.names = sorted(changed.themes)
            self.problems += changed.problems

    def choose(self, name: str) -> None:
        """Puts a theme in force, also for the next start."""
        self._app.theme = name
        try:
            write_private(_file(), msgspec.json.encode(_Chosen(name)).decode())
        except OSError as error:
            self.problems.append(f"The theme could not be remembered ({error.strerror}).")


def _folders() -> tuple[Path, Path]:
    return themes.user_folder(), paths.shipped(themes.FOLDER)


def _file() -> Path:
    return paths.data_dir() / "ui.json"


def _remembered() -> str:
    try:
        return msgspec.json.decode(read_or_empty(_file()) or "{}", type=_Chosen).theme
    except msgspec.DecodeError:
        return ""
