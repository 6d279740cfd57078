"""Conversations at the side, models, themes, exports, sizes."""

from __future__ import annotations

import errno

import pytest
from textual.command import CommandList
from textual.events import Key
from textual.geometry import Size
from textual.widgets import Input, OptionList

from chatapp.models import catalog
from chatapp.models.registry import ModelSpec, Registry
from chatapp.protocol import Fetch, Generate, Load
from chatapp.settings import Heat as HeatSettings
from chatapp.settings import Settings
from chatapp.tokens import Token
from chatapp.ui.heat import RAMPS, parse_colours
from chatapp.ui.palette import Palette
from chatapp.ui.screens import models
from chatapp.ui.screens.dialog import Dialog
from chatapp.ui.screens.models import ModelsScreen
from chatapp.ui.screens.pick import PickScreen
from chatapp.ui.widgets.chat_list import ChatList, ChatOptions
from chatapp.ui.widgets.inspector import Inspector
from chatapp.ui.widgets.legend import Legend
from chatapp.ui.widgets.sparkline import DoubtSparkline
from tests.ui.app.stage import Stage, stage
from tests.ui.fake_engine import FakeEngine


async def two_chats(s: Stage) -> tuple[str, str]:
    """Two conversations; the second is shown."""
    await s.say("about tea")
    first = s.workspace.chat.id
    await s.press("ctrl+n")
    await s.say("about coffee")
    return first, s.workspace.chat.id


async def open_list(s: Stage) -> ChatList:
    await s.press("f3")
    await s.until(lambda: s.screen.query(ChatList) and s.screen.query_one(ChatOptions).option_count)
    return s.screen.query_one(ChatList)


async def test_a_conversation_is_found_by_its_text_and_opened_at_the_message(tmp_path):
    async with stage(tmp_path, size=(120, 30)) as s:
        first, _ = await two_chats(s)
        chats = await open_list(s)
        await s.press("slash")
        await s.type("tea")
        await s.until(lambda: chats.chosen and chats.chosen.message and chats.chosen.id == first)
        await s.press("enter", "enter")
        await s.until(lambda: s.workspace.chat.id == first)
        assert s.texts[0] == "about tea"
        assert s.screen.transcript.message_cursor == chats.chosen.message


async def test_rename_trash_and_undo_in_the_list(tmp_path):
    async with stage(tmp_path, size=(120, 30)) as s:
        first, second = await two_chats(s)
        chats = await open_list(s)
        await s.until(lambda: chats.chosen and chats.chosen.id == second)
        await s.press("down", "r")
        await s.until(lambda: s.app.screen is not s.screen)
        await s.press("ctrl+a", "ctrl+k")
        await s.type("Teas")
        await s.press("enter")
        await s.until(lambda: chats.chosen and chats.chosen.title == "Teas")
        await s.press("d")
        await s.until(lambda: s.screen.query_one(ChatOptions).option_count == 1)
        assert s.store.ids() == [second]
        await s.press("u")
        await s.until(lambda: s.screen.query_one(ChatOptions).option_count == 2)
        assert set(s.store.ids()) == {first, second}
        assert s.store.open(first, read_only=True).conversation.title == "Teas"


async def test_the_cursor_of_the_list_stays_where_a_conversation_was(tmp_path):
    async with stage(tmp_path, size=(120, 30)) as s:
        await two_chats(s)
        await s.press("ctrl+n")
        await s.say("the third")
        newest, middle, oldest = (summary.id for summary in s.store.summaries())
        chats = await open_list(s)
        await s.until(lambda: chats.chosen and chats.chosen.id == newest)
        await s.press("down", "d")
        await s.until(lambda: chats.chosen and chats.chosen.id == oldest)
        await s.press("d")
        await s.until(lambda: s.store.ids() == [newest])
        assert set(s.store.trash.ids()) == {middle, oldest}


async def test_the_shown_conversation_goes_to_the_trash_and_a_new_one_is_shown(tmp_path):
    async with stage(tmp_path, size=(120, 30)) as s:
        _, second = await two_chats(s)
        chats = await open_list(s)
        await s.until(lambda: chats.chosen and chats.chosen.id == second)
        await s.press("d")
        await s.until(lambda: second not in s.store.ids())
        assert s.workspace.chat.id != second
        assert s.texts == []


async def test_a_reply_goes_on_in_the_background_while_another_conversation_is_shown(tmp_path):
    async with stage(tmp_path, FakeEngine(lambda r, c: "slow words here")) as s:
        s.engine.gate.clear()
        await s.type("first")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.written)
        first = s.workspace.chat.id
        await s.press("ctrl+n")
        assert any("goes on in the background" in text for text in s.said)
        await s.type("second")
        s.engine.gate.set()
        await s.until(lambda: not s.workspace.elsewhere)
        await s.until(lambda: any("has ended and is saved" in text for text in s.said))
        assert [m.content for m in s.store.open(first, read_only=True).conversation.path()] == [
            "first",
            "slow words here",
        ]
        assert s.screen.prompt.area.text == "second"


async def test_a_conversation_that_another_program_has_open_is_shown_and_copied(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one")
        id = s.workspace.chat.id
        async with stage(tmp_path, open_id=id) as other:
            await other.until(lambda: other.screen.query_one("#banner").display)
            await other.say("two")
            assert any("can be read here" in text for text in other.said)
            assert other.screen.prompt.area.text == "two"
            await s.say("three")
            await other.until(lambda: len(other.texts) == 4)
            other.screen.focus_transcript()
            await other.press("b")
            assert other.workspace.chat.id != id
            await other.say("four")
            assert len(other.reopened()) == 6
        assert len(s.reopened()) == 4


async def test_a_reply_that_another_program_writes_is_shown_as_it_grows(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one")
        session = s.workspace.chat.session
        async with stage(tmp_path, open_id=session.id) as other:
            await other.until(lambda: len(other.texts) == 2)
            session.clock = iter(range(0, 100, 5)).__next__
            writer = session.begin_reply(session.conversation.path()[0].id, model="fake-model")
            for text in ("so", " far"):
                writer.append([Token(0, 7, text, 2.5, 0.0, 0.0, 0.0)])
                await other.until(lambda: other.texts == ["one", writer.text])
            shown = other.screen.transcript.document.entries[-1].view
            assert (shown.streaming, [token.entropy for token in shown.tokens]) == (True, [2.5, 2.5])
            writer.finish("stop")
            await other.until(lambda: not other.screen.transcript.document.entries[-1].view.streaming)
            assert other.texts == ["one", "so far"]


@pytest.fixture
def two_models(monkeypatch, tmp_path):
    """A registry with a model that is here and one that has to be fetched."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "config.json").write_text("{}")
    specs = {
        "here": ModelSpec("here", f"path:{here}", "Model Here"),
        "there": ModelSpec("there", "hf:some/there", "Model There", download_bytes=5_000_000_000_000),
    }
    monkeypatch.setattr(models, "load_registry", lambda: Registry(specs))
    monkeypatch.setattr(catalog.hub, "cached_repositories", list)


async def test_the_picker_loads_what_is_here_and_fetches_what_is_not(tmp_path, two_models):
    async with stage(tmp_path / "chats", FakeEngine(models=("fake-model", "here"))) as s:
        s.engine.loading.clear()
        await s.press("f4")
        assert isinstance(s.app.screen, ModelsScreen)
        options = s.app.screen.query_one(OptionList)
        await s.until(lambda: options.option_count == 2)
        assert "more than the free memory" in str(options.get_option_at_index(1).prompt)
        await s.press("down", "enter")
        await s.until(lambda: s.workspace.downloads.running)
        await s.until(lambda: "downloading" in str(options.get_option_at_index(1).prompt))
        s.engine.loading.set()
        await s.until(lambda: any("there is here" in text for text in s.said))
        assert s.engine.asked(Fetch)[0].model == "there"
        await s.press("up", "enter")


async def test_a_download_is_stopped_by_a_key(tmp_path, two_models):
    async with stage(tmp_path / "chats", FakeEngine()) as s:
        s.engine.loading.clear()
        await s.press("f4")
        await s.until(lambda: s.app.screen.query_one(OptionList).option_count == 2)
        await s.press("down", "enter")
        await s.until(lambda: s.workspace.downloads.running)
        await s.press("ctrl+s")
        await s.until(lambda: not s.workspace.downloads.running)
        await s.until(lambda: any("was stopped" in text for text in s.said))


async def test_the_model_is_switched_in_mid_conversation_and_replies_carry_its_name(tmp_path):
    async with stage(tmp_path, FakeEngine(models=("fake-model", "other"))) as s:
        await s.say("one")
        await s.say("/model other")
        await s.until(lambda: s.workspace.link.status.loaded and s.workspace.link.status.loaded.model == "other")
        await s.say("two")
        assert [m.model for m in s.workspace.chat.path()] == ["", "fake-model", "", "other"]
        # Ids of the first model mean nothing to the second one.
        assert [turn.tokens for turn in s.engine.asked(Generate)[-1].turns] == [(), (), ()]
        assert [load.model for load in s.engine.asked(Load)] == ["fake-model", "other"]


async def test_a_first_model_that_cannot_be_loaded_is_said_and_another_can_be_chosen(tmp_path):
    async with stage(tmp_path, FakeEngine(models=("other",)), ready=False) as s:
        await s.until(lambda: s.workspace.link.status.phase == "failed")
        await s.until(lambda: s.screen.query_one("#banner").display)
        assert "No model is called fake-model" in str(s.screen.query_one("#banner").render())
        await s.say("hello")
        assert s.texts == ["hello"]
        await s.say("/model other")
        await s.until(lambda: s.workspace.link.status.phase == "ready")
        await s.until(lambda: not s.screen.query_one("#banner").display)
        await s.say("/regenerate")
        assert len(s.texts) == 2


@pytest.mark.parametrize("spares", [True, False])
async def test_where_another_model_cannot_be_loaded_the_one_in_use_goes_on(tmp_path, spares):
    async with stage(tmp_path) as s:
        s.engine.spares = spares
        s.engine.loading.clear()
        await s.say("/model nonsense")
        s.screen.prompt.area.show_text("meanwhile")
        await s.press("enter")
        s.engine.loading.set()
        await s.until(lambda: s.workspace.link.status.phase == "ready")
        await s.settled()
        words = "stays in use" if spares else "is loaded again"
        assert any("No model is called nonsense" in text and f"fake-model {words}" in text for text in s.said)
        assert s.texts == ["meanwhile"]  # the model that was not asked for does not answer by itself
        await s.say("hello")
        assert s.workspace.chat.path()[-1].model == "fake-model"
        loads = ["fake-model", "nonsense"] if spares else ["fake-model", "nonsense", "fake-model"]
        assert [load.model for load in s.engine.asked(Load)] == loads


async def test_an_engine_that_dies_of_a_model_is_started_again_with_the_one_before(tmp_path):
    async with stage(tmp_path, FakeEngine(models=("fake-model", "huge"))) as s:
        s.engine.loading.clear()
        await s.say("/model huge")
        await s.until(lambda: s.workspace.link.status.phase == "loading")
        s.engine.die("The engine was killed (by a person, or by the system for want of memory).")
        s.engine.loading.set()
        await s.until(lambda: s.workspace.link.status.phase == "lost")
        await s.press("f5")
        await s.until(lambda: s.workspace.link.status.phase == "ready")
        assert s.workspace.link.status.model == "fake-model"


async def test_a_model_picked_while_a_reply_is_written_is_refused_with_a_reason(tmp_path, two_models):
    async with stage(tmp_path / "chats", FakeEngine(models=("fake-model", "here"))) as s:
        s.engine.gate.clear()
        s.screen.prompt.area.show_text("hello")
        await s.press("enter")
        await s.until(lambda: s.workspace.chat.reply and s.workspace.chat.reply.written)
        await s.press("f4")
        await s.until(lambda: s.app.screen.query_one(OptionList).option_count == 2)
        await s.press("enter")
        await s.until(lambda: any("A reply is being written with the loaded model" in text for text in s.said))
        s.engine.gate.set()
        await s.settled()
        assert [load.model for load in s.engine.asked(Load)] == ["fake-model"]


async def test_a_message_sent_while_the_model_loads_is_answered_when_it_is_ready(tmp_path):
    engine = FakeEngine()
    engine.loading.clear()
    async with stage(tmp_path, engine, ready=False) as s:
        await s.type("early")
        await s.press("enter")
        assert s.texts == ["early"] == s.reopened()
        engine.loading.set()
        await s.settled()
        assert len(s.texts) == 2


async def test_a_theme_is_previewed_chosen_and_remembered(tmp_path):
    async with stage(tmp_path) as s:
        await s.until(lambda: s.app.looks.names)
        before = s.app.theme
        await s.press("ctrl+t")
        assert isinstance(s.app.screen, PickScreen)
        await s.press("down")
        assert s.app.theme != before
        await s.press("escape")
        assert s.app.theme == before
        await s.press("ctrl+t", "down")
        chosen = s.app.theme
        await s.press("enter")
    async with stage(tmp_path) as s:
        assert s.app.theme == chosen != before


async def test_the_persons_theme_is_loaded_and_a_damaged_one_is_named(tmp_path, private_folders):
    folder = private_folders / "config" / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('[colors]\nprimary="#ff0000"\nbackground="#000000"\nforeground="#ffffff"\n')
    (folder / "bad.toml").write_text("[colors\n")
    async with stage(tmp_path, settings=Settings(theme="mine")) as s:
        assert s.app.theme == "mine"
        await s.until(lambda: any("bad.toml" in text for text in s.said))
        (folder / "mine.toml").write_text('[colors]\nprimary="#00ff00"\nbackground="#000000"\nforeground="#ffffff"\n')
        await s.until(lambda: s.app.current_theme.primary == "#00ff00")


async def test_the_conversation_is_exported_with_its_heat(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with stage(tmp_path / "chats") as s:
        await s.say("one <script>")
        await s.say("/export out.html")
        await s.until(lambda: any("out.html" in text for text in s.said))
        page = (tmp_path / "out.html").read_text()
        assert "one &lt;script&gt;" in page
        assert "said" in page
        await s.say("/export out.md")
        await s.until(lambda: any("out.md" in text for text in s.said))
        assert "one" in (tmp_path / "out.md").read_text()
        await s.say("/export out.xyz")
        assert any(".xyz" in text for text in s.said)


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 15), (20, 6)])
async def test_every_part_opens_at_every_size(tmp_path, size):
    async with stage(tmp_path, size=size) as s:
        await s.say("# one\n\n" + "word " * 200)
        await s.press("escape", "t", "l", "f3")
        await s.until(lambda: s.screen.query(ChatList))
        await s.press("escape", "f1", "escape", "f4", "escape", "f8", "escape", "ctrl+t", "escape", "ctrl+p", "escape")
        await s.press("escape", "e", "escape")
        for width, height in ((100, 30), (30, 8), size):
            await s.pilot.resize_terminal(width, height)
            await s.pilot.pause()
        assert s.texts[0].startswith("# one")
        assert s.screen.prompt.area.size.height >= 1


async def test_a_first_start_shows_how_far_the_model_is(tmp_path):
    engine = FakeEngine()
    engine.loading.clear()
    async with stage(tmp_path, engine, ready=False) as s:
        await s.until(lambda: s.screen.query_one("#welcome-progress").display)
        assert s.screen.query_one("#welcome-progress").percentage == 0.5
        assert "loading 50 %" in str(s.screen.query_one("#welcome-model").render())
        engine.loading.set()
        await s.until(lambda: "2,048 tokens" in str(s.screen.query_one("#welcome-model").render()))
        assert not s.screen.query_one("#welcome-progress").display


async def test_a_full_disk_is_said_and_nothing_is_lost_when_there_is_room_again(tmp_path, monkeypatch):
    async with stage(tmp_path) as s:
        await s.say("one")
        full = True
        write = type(s.store._files).write

        def no_room(files, *arguments):
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(files, *arguments)

        monkeypatch.setattr(type(s.store._files), "write", no_room)
        await s.say("two")
        assert len(s.texts) == 4
        await s.until(lambda: s.screen.query_one("#banner").display)
        assert "/save tries again" in str(s.screen.query_one("#banner").render())
        full = False
        await s.say("/save")
        await s.until(lambda: not s.screen.query_one("#banner").display)
        assert s.reopened() == s.texts


async def test_reasoning_is_switched_for_models_that_can(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("/thinking on")
        assert any("no switch for reasoning" in text for text in s.said)


@pytest.mark.parametrize("key", ["f8", "f4", "ctrl+t"])
async def test_a_second_key_that_closes_a_dialog_closes_nothing_else(tmp_path, key):
    async with stage(tmp_path) as s:
        await s.press(key)
        await s.until(lambda: isinstance(s.app.screen, Dialog))
        dialog = s.app.screen
        dialog.dismiss(None)
        dialog.dismiss(None)
        await s.pilot.pause()
        assert s.app.screen is s.screen
        assert s.app._exception is None


@pytest.mark.parametrize("key", ["f4", "ctrl+t"])
@pytest.mark.parametrize("size", [(40, 15), (80, 24), (100, 20), (160, 50)])
async def test_a_dialog_with_a_long_list_is_as_high_as_what_is_in_it(tmp_path, key, size):
    async with stage(tmp_path, size=size) as s:
        await s.press(key)
        await s.until(lambda: isinstance(s.app.screen, Dialog))
        options = s.app.screen.query_one(OptionList)
        await s.until(lambda: options.option_count > 5)
        await s.pilot.pause()
        dialog = s.app.screen.query_one(".dialog")
        last = s.app.screen.query_one(".dialog-hint")
        assert options.region.height >= 3
        assert last.region.bottom == dialog.content_region.bottom


@pytest.mark.parametrize("key", ["f8", "f4", "ctrl+t", "f1"])
@pytest.mark.parametrize("size", [(40, 15), (80, 24), (160, 50)])
async def test_a_dialog_shows_its_keys_on_a_low_terminal_too(tmp_path, key, size):
    async with stage(tmp_path, size=size) as s:
        await s.press(key)
        await s.until(lambda: isinstance(s.app.screen, Dialog))
        await s.pilot.pause()
        hint = s.app.screen.query_one(".dialog-hint")
        assert hint.display
        assert hint.region.height >= 1
        assert s.app.screen.region.contains_region(hint.region)
        assert s.app.screen.query_one(".dialog").content_region.contains_region(hint.region)


async def test_the_ramp_of_the_settings_holds_in_all_widgets(tmp_path):
    settings = Settings(heat=HeatSettings(ramp="viridis", show="entropy", bits=True))
    async with stage(tmp_path, settings=settings, size=(120, 40)) as s:
        await s.say("hello")
        await s.press("escape", "t")
        viridis = s.screen.transcript.palette.ramps
        assert viridis.entropy == tuple(parse_colours(RAMPS["viridis"][0]["entropy"]))
        await s.until(lambda: s.screen.query(Inspector))
        for widget in (s.screen.query_one(Legend), s.screen.query_one(DoubtSparkline), s.screen.query_one(Inspector)):
            assert widget.palette.ramps == viridis
        assert "bits" in str(s.screen.query_one(Legend).render())


async def test_a_ramp_that_does_not_exist_is_said(tmp_path):
    async with stage(tmp_path, settings=Settings(heat=HeatSettings(ramp="rainbow"))) as s:
        await s.until(lambda: any("no heat.ramp 'rainbow'" in text for text in s.said))


@pytest.mark.parametrize("width", [52, 80, 110])
async def test_the_legend_of_two_measures_fits(tmp_path, width):
    async with stage(tmp_path, size=(width, 24)) as s:
        legend = s.screen.query_one(Legend)
        await s.until(lambda: legend.heat == "both" and legend.size.width)
        assert legend.render().cell_len <= legend.size.width


async def test_messages_that_were_read_get_heat_when_it_is_asked_for(tmp_path):
    async with stage(tmp_path) as s:
        await s.say("one question")
        assert not s.screen.transcript.document.entries[0].tokens
        await s.say("/score on")
        await s.say("two questions more")
        assert s.engine.asked(Generate)[-1].score_prompt
        assert [t.text for t in s.screen.transcript.document.entries[2].tokens] == ["two", " questions", " more"]
        await s.say("/score off")
        assert not s.screen.transcript.document.entries[2].tokens
        assert s.reopened() == s.texts


@pytest.mark.parametrize("key", ["enter", "escape"])
async def test_a_palette_that_is_left_twice_does_not_take_the_chat_away(tmp_path, key):
    async with stage(tmp_path) as s:
        await s.press("ctrl+p")
        await s.type("nats or bits")
        await s.until(lambda: s.app.screen.query(OptionList).first().option_count)
        await s.press("down")
        for _ in range(3):
            s.app.post_message(Key(key, None))
        await s.pilot.pause()
        assert s.screen in s.app.screen_stack
        await s.say("still here")
        assert s.texts[0] == "still here"


@pytest.mark.parametrize("words", ["screenshot", "/screenshot", "as svg"])
async def test_the_palette_finds_an_action_by_its_name_its_command_and_what_it_does(tmp_path, words):
    async with stage(tmp_path) as s:
        await s.press("ctrl+p")
        await s.until(lambda: isinstance(s.app.screen, Palette))
        await s.type(words)
        commands = s.app.screen.query_one(CommandList)
        await s.until(lambda: commands.option_count == 1 and "SVG" in str(commands.get_option_at_index(0).prompt))


async def test_a_search_in_the_palette_that_the_end_of_the_program_overtakes_ends_quietly(tmp_path):
    async with stage(tmp_path) as s:  # which raises what a worker raised
        await s.press("ctrl+p")
        palette = s.app.screen
        await palette.query_one(CommandList).remove()
        palette.query_one("CommandInput", Input).value = "heat"
        await s.pilot.pause()
        await s.app.workers.wait_for_complete()


async def test_a_page_key_in_the_palette_before_its_list_is_there_does_nothing(tmp_path):
    async with stage(tmp_path) as s:
        await s.press("ctrl+p")
        await s.until(lambda: isinstance(s.app.screen, Palette))
        commands = s.app.screen.query_one(CommandList)
        await s.until(lambda: commands.option_count)
        commands.display = False
        commands._size = Size(0, 0)
        await s.press("pagedown", "pageup")
        assert s.app._exception is None
        assert s.app.is_running


@pytest.mark.parametrize("key", ["pagedown", "pageup"])
async def test_a_page_key_in_a_list_that_is_not_laid_out_does_nothing(tmp_path, key):
    async with stage(tmp_path) as s:
        await s.say("one")
        await s.press("f3")
        options = s.screen.query_one(ChatOptions)
        await s.until(lambda: options.option_count)
        options.highlighted = 0
        options._index_to_line.clear()  # as after new options, until the next drawing
        getattr(options, f"action_{key.replace('page', 'page_')}")()
        await s.say("still here")
        assert s.texts[-2] == "still here"
