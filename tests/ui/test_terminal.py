"""What comes from a terminal and what goes to it; and what `chatapp.ui.terminal` assumes of Textual."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from textual import events
from textual._xterm_parser import XTermParser
from textual.color import Color

from chatapp.settings import Settings
from chatapp.ui.app import ChatApp
from chatapp.ui.prompt import standins
from chatapp.ui.prompt.area import WritingArea
from chatapp.ui.terminal import PasteParser, Printable, TerminalDriver
from tests.ui.app.stage import stage

START, END = "\x1b[200~", "\x1b[201~"
EVIL = "a\x1b[2J\x1b[A\x07\x11\u009b1m\u202e\x1b]52;c;aGk=\x07 b"


class Clock:
    """Time that passes when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatapp.ui.terminal.monotonic", CLOCK)
    monkeypatch.setattr("textual._parser.get_time", CLOCK)


def heard(pieces: list[str], parser: XTermParser | None = None) -> list[str]:
    """Keys by name and pastes by text, after all has become quiet."""
    parser = parser or PasteParser()
    found = [event for piece in pieces for event in parser.feed(piece)]
    for _ in range(3):
        CLOCK.now += 0.2
        found += parser.tick()
    return [f"paste {e.text!r}" if isinstance(e, events.Paste) else getattr(e, "key", type(e).__name__) for e in found]


def test_nothing_in_a_paste_is_a_key():
    assert heard([f"x{START}{EVIL}{END}y"]) == ["x", f"paste {EVIL!r}", "y"]


def test_an_end_mark_in_a_pasted_text_ends_nothing():
    text = f"harmless{END}\x11\r"
    assert heard([f"{START}{text}", f"{END}"]) == [f"paste {text!r}"]


def test_a_mouse_that_moves_on_does_not_hold_a_paste_back():
    parser = PasteParser()
    found = [*parser.feed(f"{START}text{END}")]
    for _ in range(40):
        CLOCK.now += 0.01
        found += [*parser.feed("\x1b[<35;5;5M"), *parser.tick()]
    assert [event.text for event in found if isinstance(event, events.Paste)] == ["text"]
    assert sum(isinstance(event, events.MouseMove) for event in found) == 40


def test_two_pastes_in_one_go_are_two():
    assert heard([f"{START}a{END}{START}b{END}"]) == ["paste 'a'", "paste 'b'"]


def test_wherever_the_stream_is_cut_it_is_heard_alike():
    stream = f"\x1b[Ax{START}one\x1btwo{END}\x1b[B"
    for cut in range(len(stream) + 1):
        for second in range(cut, len(stream) + 1):
            pieces = [stream[:cut], stream[cut:second], stream[second:]]
            assert heard([piece for piece in pieces if piece]) == ["up", "x", "paste 'one\\x1btwo'", "down"]


def test_joiners_that_are_typed_get_into_a_text():
    """Textual's fields take only what is printable; once this fails for its own parser, `_typed` can go."""
    assert heard(["a\u200cb", "\U0001f468\u200d\U0001f469"]) == [
        "a", "paste '\\u200c'", "b", "man", "paste '\\u200d'", "woman",
    ]  # fmt: skip
    assert not events.Key("zero_width_joiner", "\u200d").is_printable


def test_an_escape_alone_is_a_key_after_a_while():
    parser = PasteParser()
    assert heard(["\x1b"], parser) == ["escape"]
    assert heard([f"{START}a{END}", "\x1b"], parser)[0] == "paste 'a'"


def test_textuals_parser_looks_for_keys_in_pastes():
    """Once this fails, Textual has mended it and `PasteParser` can go; that relies on the empty paste, too."""
    assert "ctrl+g" in heard([f"{START}a\x1b\x07{END}"], XTermParser())
    assert heard([START + END], XTermParser()) == ["paste ''"]


class Heard(TerminalDriver):
    """A driver on one end of a pseudo-terminal."""

    def __init__(self, app: ChatApp, fileno: int) -> None:
        super().__init__(app)
        self.fileno = fileno
        self.events: list[events.Event] = []

    def process_message(self, message):
        self.events.append(message)


async def test_bytes_that_are_no_text_and_sizes_of_the_environment(monkeypatch: pytest.MonkeyPatch, private_folders):
    monkeypatch.setenv("COLUMNS", "33")
    monkeypatch.setenv("LINES", "7")
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.__stdin__", nothing)
        driver = Heard(ChatApp(Settings(), lambda: None, ""), slave)
    assert driver._get_terminal_size() == (132, 40)
    thread = threading.Thread(target=driver.run_input_thread)
    thread.start()
    os.write(master, b"a\xffb\xc3\n")
    for _ in range(500):
        if len(driver.events) >= 5:
            break
        CLOCK.now += 0.1
        time.sleep(0.01)
    driver.exit_event.set()
    thread.join(10)
    assert not thread.is_alive()
    assert [e.character for e in driver.events] == ["a", "\ufffd", "b", "\ufffd", "\n"]
    os.close(master)
    os.close(slave)


async def test_going_on_after_a_stop_reads_keys_once(monkeypatch: pytest.MonkeyPatch, private_folders):
    """SIGSTOP leaves no time to give the terminal back: Textual would read keys in two threads from then on."""
    master, slave = os.openpty()
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.__stdin__", nothing)
        driver = Heard(ChatApp(Settings(), lambda: None, ""), slave)
    with os.fdopen(slave, "w") as terminal:
        driver._file = terminal
        driver.start_application_mode()
        driver._sigcont_application()
        threads = [thread.name for thread in threading.enumerate()]
        assert threads.count("textual-input") == threads.count("textual-output") == 1
        driver.suspend_application_mode()
        for _ in range(1000):
            driver.write("drawn while another program has the terminal")  # would fill a queue that nobody empties
        driver.resume_application_mode()
        driver.stop_application_mode()
        driver.close()
    os.close(master)


async def test_where_errors_go_to_a_file_the_screen_is_drawn_on_the_terminal(monkeypatch, private_folders, tmp_path):
    master, slave = os.openpty()
    with (tmp_path / "errors").open("w") as errors, os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.__stderr__", errors)
        monkeypatch.setattr("sys.__stdout__", terminal)
        with Path(os.devnull).open() as nothing:
            monkeypatch.setattr("sys.__stdin__", nothing)
            assert Heard(ChatApp(Settings(), lambda: None, ""), slave)._file is terminal
    os.close(master)


async def test_an_area_draws_marks_and_gives_back_what_it_was_given(tmp_path):
    text = f"{EVIL}\x0c\x0b\u2028\U000e0041\ud800 end\nsecond\r"
    async with stage(tmp_path) as s:
        area = s.screen.prompt.area
        area.show_text(text)
        await s.pilot.pause()
        assert area.full_text == text
        assert area.document.line_count == 2
        shown = "".join(segment.text for y in range(4) for segment in area.render_line(y))
        assert "a␛[2J␛[A␇␑▯1m▯␛]52" in shown
        area.show_text("")
        s.app.post_message(events.Paste(EVIL))
        await s.until(lambda: area.full_text == EVIL)
        area.select_all()
        assert area.selected_text == EVIL


@given(st.text(st.characters(exclude_categories=("Co",))))
def test_stand_ins_are_exact_and_printable(text):
    held = standins.put_in(text)
    assert standins.take_out(held) == text
    assert len(held) == len(text)
    assert all(character == "\n" or character == "\t" or not "\ud800" <= character <= "\udfff" for character in held)


async def test_no_widget_can_write_control_characters(tmp_path):
    """Textual's own fields would: the palette's is one."""
    async with stage(tmp_path) as s:
        await s.press("ctrl+p")
        s.app.post_message(events.Paste("q\x1b[2J\u009b"))
        field = s.app.screen.query_one("CommandInput")
        await s.until(lambda: "\x1b" in field.value)
        await s.pilot.pause()
        written = "".join(strip.render(s.app.console) for strip in s.app.screen._compositor.render_strips())
        assert "q[2J" in "".join(
            segment.text for strip in s.app.screen._compositor.render_strips() for segment in strip
        )
        assert "\x1b[2J" not in written
        assert "\u009b" not in written


def test_the_last_look_keeps_the_width():
    shown = Printable().apply([Segment("a\x1b\ud800永"), Segment("plain")], Color(0, 0, 0))
    assert [segment.text for segment in shown] == ["a\ufffd永", "plain"]


def test_every_change_of_a_writing_area_goes_through_edit():
    area = WritingArea("x")
    area.insert("\x1b")
    assert area.text == "\U0010001b"
