"""Theme files: the shipped ones, mistakes in them, live reload."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.widgets import Footer, Input, Label, OptionList, TextArea

from chatapp import paths
from chatapp.ui.heat import LEVELS, MEASURES, RAMPS, Heat, Ramps
from chatapp.ui.themes import DEFAULT, ThemeWatcher, load_themes, register, user_folder
from chatapp.ui.transcript import MessageView, Transcript
from chatapp.ui.transcript.lines import Look
from chatapp.ui.transcript.palette import Palette
from tests.ui.app.stage import stage

from .colour_vision import EYES, contrast, difference, lab

SHIPPED = load_themes((paths.shipped("themes"),))
COLOURED = [name for name, theme in SHIPPED.themes.items() if theme.variables["heat-cue"] == "color"]

GOOD = """
name = "mine"
[colors]
primary = "#ff0000"
background = "#000000"
foreground = "#ffffff"
"""


@pytest.fixture(autouse=True)
def truecolor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("textual.constants.COLOR_SYSTEM", "truecolor")


def ramps_of(name: str) -> Ramps:
    theme = SHIPPED.themes[name]
    return Ramps.of_variables({**theme.variables, "background": theme.background or ""}, dark=theme.dark)


def test_the_shipped_themes_are_sound_and_of_every_kind() -> None:
    assert SHIPPED.problems == []
    themes = SHIPPED.themes.values()
    assert len(SHIPPED.themes) >= 8
    assert DEFAULT in SHIPPED.themes
    assert any(not theme.dark for theme in themes)
    assert any(theme.ansi for theme in themes)
    assert {"contrast", "contrast-light"} <= set(SHIPPED.themes)


RGB = [name for name, theme in SHIPPED.themes.items() if not theme.ansi]


@pytest.mark.parametrize("name", RGB)
def test_text_is_readable(name: str) -> None:
    theme = SHIPPED.themes[name]
    background = Color.parse(theme.background or "").rgb
    least = 15.0 if "contrast" in name else 9.0
    assert contrast(Color.parse(theme.foreground or "").rgb, background) >= least
    for role in ("primary", "secondary", "accent", "success", "warning", "error"):
        assert contrast(Color.parse(getattr(theme, role)).rgb, background) >= 4.5, role


def palette_of_theme(name: str, ramp: str = "") -> Palette:
    theme = SHIPPED.themes[name]
    variables = {**theme.to_color_system().generate(), **theme.variables}
    return Palette(variables, dark=theme.dark, ramp=ramp)


def shown_contrast(style: Style) -> float:
    assert style.color is not None
    assert style.bgcolor is not None
    return contrast(Color.from_rich_color(style.color).rgb, Color.from_rich_color(style.bgcolor).rgb)


ROLES = ("text", "heading", "link", "code", "table", "bullet", "quote", "marker", "rule", "hint", "syntax-comment")


@pytest.mark.parametrize("name", COLOURED)
@pytest.mark.parametrize("ramp", ["", *RAMPS])
def test_text_of_every_look_is_readable_on_every_heat(name: str, ramp: str) -> None:
    palette = palette_of_theme(name, ramp)
    for heat in (*MEASURES, Heat.BOTH):
        levels = range(LEVELS + 1)
        for first, second in itertools.product(levels, levels if heat is Heat.BOTH else (0,)):
            for role in ROLES if first + second else ():
                style = palette.heated(palette.look(Look(role)), heat, first, second)
                assert shown_contrast(style) >= 4.5, (heat, first, second, role)
                gone = palette.look(Look(role), evicted=True)
                assert shown_contrast(palette.heated(gone, heat, first, second, evicted=True)) >= 3.0


@pytest.mark.parametrize("name", RGB)
def test_faint_text_is_readable(name: str) -> None:
    palette = palette_of_theme(name)
    high = "contrast" in name
    for role, think, evicted, fill in itertools.product(ROLES, (False, True), (False, True), ("", "code")):
        assert shown_contrast(palette.look(Look(role), think=think, evicted=evicted, fill=fill)) >= (
            4.5 if high else 3.0
        )
    for think in (False, True):
        assert shown_contrast(palette.look(Look(), think=think)) >= (7 if high else 4.5)
    for strength in (0.55, 0.6):
        assert shown_contrast(palette.accent("foreground", strength=strength)) >= (7 if high else 4.5)
    background = SHIPPED.themes[name].background or ""
    for variable, least in (("faint", 4.5), ("fainter", 3.0), ("line", 1.4)):
        assert contrast(Color.parse(SHIPPED.themes[name].variables[variable]).rgb, Color.parse(background).rgb) >= least


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("name", COLOURED)
def test_the_heat_can_be_told_apart_by_all_eyes(name: str, eyes: str) -> None:
    ramps = ramps_of(name)
    background = ramps.background.rgb
    for heat in MEASURES:
        colours = [color.rgb for level in range(1, LEVELS + 1) if (color := ramps.color(heat, level))]
        lightness = [lab(rgb, eyes)[0] for rgb in (background, *colours)]
        assert lightness == sorted(lightness, reverse=not SHIPPED.themes[name].dark), heat
        assert difference(background, colours[0], eyes) >= 7, f"{heat}: the weakest looks like none"
        assert difference(colours[0], colours[-1], eyes) >= 30, heat
        assert all(difference(a, b, eyes) >= 3 for a, b in itertools.pairwise(colours)), heat
    corners = [background, *(corner.rgb for corner in ramps.both)]
    for one, other in itertools.combinations(corners, 2):
        assert difference(one, other, eyes) >= 20, f"both: {one} and {other}"


@pytest.mark.parametrize("name", SHIPPED.themes)
async def test_every_theme_draws_a_whole_app(name: str) -> None:
    class Host(App[None]):
        def compose(self) -> ComposeResult:
            yield Transcript()
            yield Label("x")
            yield Input("y")
            yield TextArea("z")
            yield OptionList("one", "two")
            yield Footer()

    app = Host()
    async with app.run_test(size=(60, 30)) as pilot:
        register(app, SHIPPED)
        app.theme = name
        transcript = app.query_one(Transcript)
        transcript.set_messages([MessageView("u", "user", "# hi\n\n**bold** `code`\n```python\nx = 1\n```")])
        for heat in Heat:
            transcript.heat = heat
        await pilot.pause()
        assert transcript.palette.plain == (SHIPPED.themes[name].variables["heat-cue"] == "underline")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ('[colors]\nprimary = "#ff0000"', "line 1: colors: object missing required field `background`."),
        (GOOD.replace("#ff0000", "#ff00"), ""),
        (GOOD.replace("#ff0000", "reddish"), "line 4: colors.primary: 'reddish' is not a colour"),
        (GOOD + 'accnt = "#fff"\n', "line 7: colors.accnt: unknown key: did you mean accent?"),
        (GOOD + '[heat]\nentropy = ["#000000"]\n', "line 8: heat.entropy: 1 given where 2 to 8 colours are needed."),
        (GOOD + '[heat]\nboth = ["#000", "#111"]\n', "line 8: heat.both: 2 given where 3 colours are needed."),
        (GOOD + '[heat]\ncue = "blink"\n', 'line 8: heat.cue: write "color" or "underline".'),
        (GOOD + '[syntax]\nkeyword = "x"\n', "line 8: syntax.keyword: 'x' is not a colour"),
        (GOOD + '[variables]\nborder = "what ever"\n', "line 8: variables.border: 'what' is not a colour"),
        ("name = ", "line 1"),
        ("\x00", "line 1"),
    ],
)
def test_a_mistake_is_named_and_the_others_load(tmp_path: Path, change: str, says: str) -> None:
    (tmp_path / "a.toml").write_text(change)
    (tmp_path / "b.toml").write_text(GOOD.replace("mine", "other"))
    loaded = load_themes((tmp_path,))
    assert "other" in loaded.themes
    if not says:  # four hex digits are a colour with transparency
        assert loaded.problems == []
        return
    (problem,) = loaded.problems
    assert str(tmp_path / "a.toml") in problem
    assert says in problem


def test_bytes_that_are_no_text_and_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'name = "\xff"')
    (tmp_path / "b.toml").mkdir()
    loaded = load_themes((tmp_path,))
    assert loaded.themes == {}
    assert [problem.split(":")[0].split(",")[0].split(" cannot")[0] for problem in loaded.problems] == [
        str(tmp_path / "a.toml"),
        str(tmp_path / "b.toml"),
    ]


def test_a_persons_theme_takes_the_place_of_a_shipped_one() -> None:
    user_folder().mkdir()
    (user_folder() / "x.toml").write_text(GOOD.replace("mine", "dusk"))
    assert load_themes().themes["dusk"].primary == "#ff0000"
    assert "paper" in load_themes().themes


def test_the_watcher_notices_what_came_changed_and_went(tmp_path: Path) -> None:
    folder = tmp_path / "themes"
    watcher = ThemeWatcher(folder)
    assert watcher.poll() is None
    folder.mkdir()
    path = folder / "a.toml"
    path.write_text(GOOD)
    loaded = watcher.poll()
    assert loaded is not None
    assert {"mine", DEFAULT} <= loaded.themes.keys()
    assert watcher.poll() is None
    path.write_text(GOOD.replace("#ff0000", "#00ff00"))
    os.utime(path, ns=(1, 1))
    loaded = watcher.poll()
    assert loaded is not None
    assert loaded.themes["mine"].primary == "#00ff00"
    path.write_text("broken")
    loaded = watcher.poll()
    assert loaded is not None
    assert len(loaded.problems) == 1
    path.write_text(GOOD.replace('name = "mine"', f'name = "{DEFAULT}"'))
    loaded = watcher.poll()
    assert loaded is not None
    assert loaded.themes[DEFAULT].primary == "#ff0000"
    path.unlink()
    loaded = watcher.poll()
    assert loaded is not None
    assert "mine" not in loaded.themes
    assert loaded.themes[DEFAULT].primary != "#ff0000", "the shipped one is in force again"


async def test_a_changed_theme_in_force_is_shown_at_once(tmp_path: Path) -> None:
    class Host(App[None]):
        def compose(self) -> ComposeResult:
            yield Transcript()

    (tmp_path / "mine.toml").write_text(GOOD)
    app = Host()
    async with app.run_test() as pilot:
        register(app, load_themes((tmp_path,)))
        app.theme = "mine"
        await pilot.pause()
        transcript = app.query_one(Transcript)
        assert transcript.palette.background == Color.parse("#000000")
        (tmp_path / "mine.toml").write_text(GOOD.replace("#000000", "#102030"))
        register(app, load_themes((tmp_path,)))
        await pilot.pause()
        await pilot.pause()
        assert transcript.palette.background == Color.parse("#102030")
        assert transcript.styles.background == Color.parse("#102030")


async def test_a_broken_theme_of_the_default_name_costs_nothing_but_itself(tmp_path: Path) -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / f"{DEFAULT}.toml").write_text("[colors]\nprimary = 5\n")
    async with stage(tmp_path) as s:
        assert s.app.theme == DEFAULT
        await s.until(lambda: any(f"{DEFAULT}.toml" in said for said in s.said))
