"""Writes docs/keys.md from the table of actions: ``python -m chatapp.ui.keysdoc > docs/keys.md``."""

from __future__ import annotations

import sys

from chatapp.ui.keymap import SCOPES, Action, Keymap

_HEAD = """# Keys and commands

<!-- Made from chatapp/ui/keymap.py by: python -m chatapp.ui.keysdoc > docs/keys.md -->

F1 shows this for where you are. Each action that does something can also be found by name with Ctrl+P, or typed as a
slash command in the prompt; a command may be shortened as long as it stays the only one. To send a text that begins
with a slash, write two.

Ctrl+C copies what is selected; with nothing selected it stops a reply or a download, or says how to leave. In the
transcript, clicking twice selects a word, thrice a message.

## Your own keys

In `config.toml` (`chatapp locate` says where it is) give an action's id other keys, parted by commas or spaces:

```toml
[keys]
"message.edit" = "x, f9"
"app.new" = "ctrl+b"
```

Keys are named as Textual names them (`ctrl+j`, `pageup`, `slash`, `G` for Shift+G); an empty text takes an action's
keys away. A clash with another action, or a key that cannot be pressed, is told at the start, and the default stays.
Terminals cannot tell Ctrl+I from Tab or Ctrl+M from Enter, and many swallow Ctrl+Enter and Alt+Enter.
"""

_NOTES = {
    "tokens": "While the token cursor is in a reply. Keys of the transcript that are not listed here go on working.",
    "edit": "The editor stands in the prompt's place; what the edit will read again is shown before you confirm it.",
}


def document(keymap: Keymap) -> str:
    """The whole page."""
    sections = [_HEAD]
    for scope, title in SCOPES.items():
        rows = "\n".join(_row(action, keymap) for action in keymap.scope(scope))
        note = f"{_NOTES[scope]}\n\n" if scope in _NOTES else ""
        sections.append(f"## {title}\n\n{note}| Keys | What it does | Command | Id |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(sections)


def _row(action: Action, keymap: Keymap) -> str:
    keys = " ".join(f"`{key}`" for key in keymap.keys(action.id).split())
    command = f"`/{action.command}{' ' + action.argument if action.argument else ''}`" if action.command else ""
    return f"| {keys} | {action.help} | {command.replace('|', chr(92) + '|')} | `{action.id}` |"


if __name__ == "__main__":
    sys.stdout.write(document(Keymap()))
