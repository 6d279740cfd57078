"""Between Textual and the terminal: what is typed and pasted comes in whole, and only what can be shown goes out.

The one module that relies on how Textual's driver and parser work (tests/ui/test_terminal.py names what it assumes):

- Textual's parser looks for keys inside a paste, too: a pasted BEL was Ctrl+G, and whatever followed a pasted end mark
  was typed. Here the text of a paste never gets to the parser.
- Textual's loop ends the program at a byte that is not UTF-8. Here it becomes U+FFFD.
- Sizes exported as ``COLUMNS`` and ``LINES`` outweighed the terminal's own, so that a resize went unseen.
- Textual's fields let no joiners in (U+200C in Persian, U+200D in emoji) that come as keys.
- Textual's text fields and palette write control characters to the terminal as they are.
- Textual leaves SIGTERM and SIGHUP to the system, which restores no terminal and saves no draft.
- Textual's driver must not be written to while another program has the terminal, and SIGCONT after SIGSTOP started a
  second reading loop beside the first: each got a part of the keys.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterable
from time import monotonic
from typing import Any
from unicodedata import category

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.color import Color
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter
from textual.message import Message

from chatapp.text import replace_unsafe

#: Seconds of silence after an end mark that end a paste. A paste that holds an end mark itself comes in one go. Where
#: there is no silence (the mouse moves), a paste is over after some more.
_QUIET, _RESTLESS = 0.03, 0.3

#: Seconds that the loop waits for input before it looks whether an Escape stands alone (as long as Textual's).
_WAIT = 0.1


class PasteParser(XTermParser):
    """Textual's parser, but what lies between the marks of a paste is text, whatever it holds."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._before = ""  # the last characters outside of a paste: a mark may come in two pieces
        self._pasted: list[str] | None = None
        self._arrived = self._looked = 0.0

    @property
    def patience(self) -> float:
        """Seconds until `tick` may have something to do."""
        return _QUIET if self._pasted is not None else _WAIT

    def feed(self, data: str) -> Iterable[Message]:
        """Takes in what was read; yields keys and the like, and pastes that are over."""
        self._arrived = monotonic()
        while data:
            if self._pasted is not None:
                self._pasted.append(data)
                return
            seen = self._before + data
            at = seen.find(START)
            if at < 0:
                self._before = seen[1 - len(START) :]
                yield from map(_typed, super().feed(data))
                return
            rest = at + len(START) - len(self._before)
            yield from map(_typed, super().feed(data[:rest]))
            self._before, self._pasted, self._looked = "", [], self._arrived
            data = data[rest:]

    def tick(self) -> Iterable[Message]:
        """Yields an Escape that stood alone, and a paste after which it has become quiet."""
        if self._pasted is None:
            yield from super().tick()
        elif monotonic() - self._arrived >= _QUIET or monotonic() - self._looked >= _RESTLESS:
            self._looked = monotonic()
            yield from self._end_paste()

    def _end_paste(self) -> Iterable[Message]:
        pasted = "".join(self._pasted or ())
        end = pasted.find(END)
        if end < 0:
            self._pasted = [pasted]
            return
        # A terminal sends one end mark for each start mark; those before it were in the text.
        another = pasted.find(START, end)
        end = pasted.rfind(END, 0, another if another >= 0 else None)
        self._pasted = None
        for event in super().feed(END):  # Textual's parser saw an empty paste
            if not isinstance(event, events.Paste):
                yield event
        yield events.Paste(pasted[:end])
        yield from self.feed(pasted[end + len(END) :])


def _typed(event: Message) -> Message:
    """A joiner between letters as a paste: fields take only printable characters as typed, and these are none."""
    if isinstance(event, events.Key) and event.character and category(event.character[0]) == "Cf":
        return events.Paste(event.character)
    return event


class LeaveNow(Message):
    """The system asks the program to end, or the terminal is gone; there is nobody to be asked anything."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number  # of the signal


class TerminalDriver(LinuxDriver):
    """Textual's driver for Linux and macOS with a reading loop of our own; see the module's docstring."""

    _away = False  # another program has the terminal, or it is gone

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        if sys.__stdout__ is not None and not self._file.isatty():
            self._file = sys.__stdout__  # stderr, where Textual draws, goes to a file

    def start_application_mode(self) -> None:
        """Takes the terminal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_leave, number)
        super().start_application_mode()

    def _asked_to_leave(self, number: signal.Signals) -> None:
        if number == signal.SIGINT and self._away:
            return  # Ctrl+C is meant for the program that has the terminal
        self._away = self._away or number == signal.SIGHUP
        self._app.post_message(LeaveNow(number))

    def suspend_application_mode(self) -> None:
        """Gives the terminal back."""
        super().suspend_application_mode()
        self._away = True

    def resume_application_mode(self) -> None:
        """Takes the terminal again, also where SIGSTOP left no time to give it back."""
        if not self._away:
            self.suspend_application_mode()
        self._away = False
        super().resume_application_mode()

    def write(self, data: str) -> None:
        """Writes to the terminal; what is drawn while another program has it is drawn again later."""
        if not self._away and self._writer_thread is not None and self._writer_thread.is_alive():
            super().write(data)  # to a thread that has ended: its queue would fill, and then this would wait for ever

    def run_input_thread(self) -> None:
        """Reads what the terminal sends until the program ends."""
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        parser = PasteParser(self._debug)
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(parser.patience):
                    data = self._read()
                    if not data:
                        os.kill(os.getpid(), signal.SIGHUP)
                        return
                    for event in parser.feed(decode(data)):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)

    def _read(self) -> bytes:
        """What has come from the terminal; nothing if it is gone."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and rows of the terminal itself; what the environment says only where it tells nothing."""
        try:
            columns, rows = os.get_terminal_size(self.fileno)
        except OSError:
            return super()._get_terminal_size()
        return (columns, rows) if columns and rows else super()._get_terminal_size()


class Printable(LineFilter):
    """The last look at what goes to the terminal: nothing that could drive it. Marks are made before, by `visible`."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without unsafe characters, as wide as before."""
        if all(segment.text.isprintable() for segment in segments):
            return segments
        return [
            segment if segment.control else Segment(replace_unsafe(segment.text, _blank), segment.style)
            for segment in segments
        ]


def _blank(character: str) -> str:
    return "\ufffd" * cell_len(character)
