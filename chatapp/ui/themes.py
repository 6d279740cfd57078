"""Themes: TOML files that become Textual themes, with the heat's ramps and the syntax colours in their variables.

What is wrong in a file is reported and the others are loaded all the same. The format is described in docs/themes.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

from chatapp import paths
from chatapp.errors import ChatappError
from chatapp.tomlfile import TomlFile, read_toml
from chatapp.ui.contrast import HIGH, faded, ratio

#: What is shown when the person has not chosen.
DEFAULT = "dusk"
FOLDER = "themes"

_TEXT_STYLES = frozenset(["none", "bold", "dim", "italic", "underline", "reverse", "strike", "not"])


class Colors(msgspec.Struct, frozen=True):
    """The colours that Textual derives all others from."""

    primary: str
    background: str
    foreground: str
    secondary: str | None = None
    accent: str | None = None
    surface: str | None = None
    panel: str | None = None
    success: str | None = None
    warning: str | None = None
    error: str | None = None


class HeatColors(msgspec.Struct, frozen=True):
    """Ramps from the weakest to the strongest; empty ones take the default (see `chatapp.ui.heat`).

    Attributes:
        both: Entropy high alone, varentropy high alone, both high.
        cue: ``color``, or ``underline`` for themes without enough colours.
    """

    entropy: tuple[str, ...] = ()
    varentropy: tuple[str, ...] = ()
    surprisal: tuple[str, ...] = ()
    both: tuple[str, ...] = ()
    cue: str = "color"


class Syntax(msgspec.Struct, frozen=True):
    """Colours of code; those left out follow from the theme's colours."""

    keyword: str | None = None
    string: str | None = None
    number: str | None = None
    name: str | None = None
    type: str | None = None
    comment: str | None = None
    punctuation: str | None = None
    error: str | None = None


class ThemeFile(msgspec.Struct, frozen=True):
    """A theme's file.

    Attributes:
        name: Under which it is chosen; the file's name if left out.
        dark: It is a dark theme.
        ansi: Its colours are the terminal's own sixteen (``ansi_blue``, …).
        variables: Further variables of Textual's design system.
    """

    colors: Colors
    name: str = ""
    dark: bool = True
    ansi: bool = False
    heat: HeatColors = HeatColors()
    syntax: Syntax = Syntax()
    variables: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read: the themes by name, and a sentence for each file that is wrong."""

    themes: dict[str, Theme] = field(default_factory=dict[str, Theme])
    problems: list[str] = field(default_factory=list[str])


def user_folder() -> Path:
    """Where a person's own themes lie (it need not exist)."""
    return paths.config_dir() / FOLDER


def load_themes(folders: Iterable[Path] | None = None) -> Loaded:
    """Reads the themes of some folders; a later one's replace an earlier one's of the same name.

    Args:
        folders: By default the shipped ones and the person's.
    """
    loaded = Loaded()
    for folder in folders if folders is not None else (paths.shipped(FOLDER), user_folder()):
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = load_theme(path)
            except ChatappError as error:
                loaded.problems.append(str(error))
                continue
            loaded.themes[theme.name] = theme
    return loaded


def load_theme(path: Path) -> Theme:
    """Reads one theme.

    Raises:
        ChatappError: The file is damaged, or a key or a colour in it is wrong; file, line and key are named.
    """
    file = read_toml(path)
    theme = file.convert(file.tables, ThemeFile)
    _check_colours(file, theme)
    colors = {name: value for name, value in msgspec.structs.asdict(theme.colors).items() if value is not None}
    return Theme(
        name=theme.name or path.stem,
        dark=theme.dark,
        ansi=theme.ansi,
        variables={**_variables(theme), **theme.variables},
        **colors,
    )


def _variables(theme: ThemeFile) -> dict[str, str]:
    variables = {"heat-cue": theme.heat.cue}
    if theme.ansi:  # Textual's own style sheets ask for these two in ANSI themes
        black, white = "ansi_black", "ansi_white"
        variables["ansi-background"], variables["ansi-foreground"] = (black, white) if theme.dark else (white, black)
    variables |= _quiet_parts(theme)
    for name in ("entropy", "varentropy", "surprisal", "both"):
        ramp: tuple[str, ...] = getattr(theme.heat, name)
        if ramp:
            variables[f"heat-{name}"] = " ".join(ramp)
    for name, value in msgspec.structs.asdict(theme.syntax).items():
        if value is not None:
            variables[f"syntax-{name}"] = value
    return variables


def _quiet_parts(theme: ThemeFile) -> dict[str, str]:
    """Faint text, lines and scrollbars: between background and text, seen in every theme and loud in none."""
    background, foreground = Color.parse(theme.colors.background), Color.parse(theme.colors.foreground)
    if theme.ansi or background.ansi is not None or foreground.ansi is not None:
        return {"line": "ansi_bright_black", "faint": "ansi_default", "fainter": "ansi_bright_black"}

    def between(share: float) -> str:
        return background.blend(foreground, share).hex

    high = ratio(background, foreground) >= HIGH
    parts = {name: faded(foreground, background, s, high=high).hex for name, s in (("faint", 0.6), ("fainter", 0.35))}
    parts |= {"line": between(0.22), "scrollbar": between(0.2)}
    parts |= {"scrollbar-hover": between(0.35), "scrollbar-active": between(0.5)}
    for name in ("background", "background-hover", "background-active", "corner-color"):
        parts[f"scrollbar-{name}"] = background.hex
    return parts


def _check_colours(file: TomlFile, theme: ThemeFile) -> None:
    for table, values in (("colors", theme.colors), ("syntax", theme.syntax)):
        for name, value in msgspec.structs.asdict(values).items():
            if value is not None:
                _check_colour(file, (table, name), value)
    for name in ("entropy", "varentropy", "surprisal", "both"):
        ramp: tuple[str, ...] = getattr(theme.heat, name)
        for value in ramp:
            _check_colour(file, ("heat", name), value)
        fewest, most = (3, 3) if name == "both" else (2, 8)
        if ramp and not fewest <= len(ramp) <= most:
            wanted = "3 colours" if name == "both" else "2 to 8 colours"
            raise file.error(("heat", name), f"{len(ramp)} given where {wanted} are needed.")
    for name, value in theme.variables.items():
        words = value.split()
        if not words or not _TEXT_STYLES.issuperset(words):
            _check_colour(file, ("variables", name), words[0] if words else "")
    if theme.heat.cue not in ("color", "underline"):
        raise file.error(("heat", "cue"), 'write "color" or "underline".')


def _check_colour(file: TomlFile, keys: tuple[str, ...], value: str) -> None:
    try:
        Color.parse(value)
    except ColorParseError:
        raise file.error(keys, f"{value!r} is not a colour: write it as #rrggbb or as a name.") from None


def register(app: App[object], loaded: Loaded) -> None:
    """Makes the themes known to the app; the one in force is shown anew if it is among them."""
    for theme in loaded.themes.values():
        app.register_theme(theme)
    if app.theme in loaded.themes:
        app.mutate_reactive(App.theme)  # the name is the same, what it stands for is not


class ThemeWatcher:
    """Notices changes in the person's theme folder, by asking for its files' times.

    Args:
        folder: What to watch; it need not exist.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder if folder is not None else user_folder()
        self._seen = self._stamps()

    def poll(self) -> Loaded | None:
        """All themes, if one of the folder's files came, went or changed since the last call; else None."""
        stamps = self._stamps()
        if stamps == self._seen:
            return None
        self._seen = stamps
        return load_themes((paths.shipped(FOLDER), self.folder))

    def _stamps(self) -> dict[str, tuple[int, int]]:
        stamps: dict[str, tuple[int, int]] = {}
        for path in self.folder.glob("*.toml"):
            try:
                status = path.stat()
            except OSError:  # it went away between the two calls
                continue
            stamps[path.name] = (status.st_mtime_ns, status.st_size)
        return stamps
