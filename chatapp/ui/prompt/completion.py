"""What the prompt can be completed to at the cursor: slash commands, their arguments, paths after ``@``."""

from __future__ import annotations

from pathlib import Path

import regex

from chatapp.ui import commands
from chatapp.ui.commands import Arguments, Suggestion
from chatapp.ui.keymap import Keymap
from chatapp.ui.prompt import attachments

_PATH = regex.compile(r'(?<!\S)@(?:"([^"\n]*)|(\S*))$')


def suggestions(line: str, first_line: bool, keymap: Keymap, arguments: Arguments, folder: Path) -> list[Suggestion]:
    """Completions for the cursor's line up to the cursor.

    Args:
        line: The line up to the cursor.
        first_line: Whether it is the prompt's first line: commands stand there.
        keymap: For the commands' help.
        arguments: Values of commands' arguments, by command name.
        folder: What relative paths start from.
    """
    if first_line and line.startswith("/"):
        return commands.complete(line, keymap, arguments)
    match = _PATH.search(line)
    if match is None:
        return []
    fragment = match[1] if match[1] is not None else match[2]
    return [
        Suggestion(name, "", match.start(), attachments.written(name) if not name.endswith("/") else _open(name))
        for name in attachments.candidates(fragment, folder)
        if name != fragment
    ]


def _open(folder: str) -> str:
    """A folder's path, written so that it can go on."""
    return f'@"{folder}' if " " in folder else f"@{folder}"
