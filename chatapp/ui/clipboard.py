"""Gives copied text to the system's own program, if there is one.

The terminal is asked too (OSC 52, by Textual), but that does not get through Terminal.app and most tmux settings. tmux
takes the text itself and hands it on to the terminal.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping

_PROGRAMS = (
    ("pbcopy", ["pbcopy"], ""),
    ("wl-copy", ["wl-copy"], "WAYLAND_DISPLAY"),
    ("xclip", ["xclip", "-selection", "clipboard"], "DISPLAY"),
    ("xsel", ["xsel", "--clipboard", "--input"], "DISPLAY"),
    ("clip.exe", ["clip.exe"], "WSL_DISTRO_NAME"),
)


_TMUX = ("tmux", ["tmux", "load-buffer", "-w", "-"], "TMUX")


def program(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The command that takes text for the clipboard on its stdin; None if there is none here."""
    # Over SSH the clipboard that counts is at the other end of the line: only the terminal reaches it.
    programs = (_TMUX,) if environment.get("SSH_TTY") else (*_PROGRAMS, _TMUX)
    for name, command, variable in programs:
        if (not variable or environment.get(variable)) and shutil.which(name):
            return command
    return None


async def copy(text: str) -> bool:
    """Puts text on the clipboard; False where no program does it."""
    command = program()
    return command is not None and await _fed(command, text)


async def _fed(command: list[str], text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.wait_for(process.communicate(text.encode("utf-8", "replace")), 3)
    except (OSError, TimeoutError):
        return False
    return process.returncode == 0
