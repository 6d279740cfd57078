"""Copies text: by the system's own program where there is one, else by the terminal (OSC 52).

OSC 52 does not get through Terminal.app and most tmux settings, so it is the last resort; tmux takes the text itself
and hands it on to the terminal.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping

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


async def copy(text: str, by_terminal: Callable[[str], None]) -> None:
    """Puts text on the clipboard.

    Args:
        text: What to copy.
        by_terminal: Copies by the terminal, where no program does it.
    """
    command = program()
    if command is None or not await _fed(command, text):
        by_terminal(text)


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
