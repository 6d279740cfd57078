"""Slash commands: every action by name in the prompt, with completion. Pure; the screen carries them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chatapp.errors import UsageError
from chatapp.ui.keymap import Action, Keymap, commands

#: Values that a command's argument can complete to, by command name.
Arguments = Mapping[str, Iterable[str]]


@dataclass(frozen=True)
class Call:
    """A command as it was typed."""

    action: Action
    argument: str


@dataclass(frozen=True)
class Suggestion:
    """Something the prompt can be completed to.

    Attributes:
        text: What is shown.
        help: A few words beside it.
        start: Column of the prompt's line where the replaced part begins.
        replacement: What is put there, up to the cursor.
        runs: It makes a whole command, which Enter runs.
    """

    text: str
    help: str
    start: int
    replacement: str
    runs: bool = False


def is_command(text: str) -> bool:
    """Whether a prompt is a command. Two slashes in front send the rest as it is, one slash included."""
    return text.startswith("/") and not text.startswith("//") and "\n" not in text.strip()


def literal(text: str) -> str:
    """The prompt that is sent: ``//x`` stands for ``/x``."""
    return text[1:] if text.startswith("//") else text


def parse(text: str) -> Call:
    """Reads a command; a name may be shortened as long as it stays the only one.

    Raises:
        UsageError: There is no such command, or several begin so.
    """
    name, _, argument = text.strip()[1:].partition(" ")
    table = commands()
    if name in table:
        return Call(table[name], argument.strip())
    fitting = [command for command in sorted(table) if name and command.startswith(name)]
    if len(fitting) == 1:
        return Call(table[fitting[0]], argument.strip())
    if fitting:
        raise UsageError(f"/{name} can mean {', '.join('/' + command for command in fitting)}.")
    raise UsageError(f"There is no command /{name}. F1 lists them; begin with // to send the text as it is.")


def complete(line: str, keymap: Keymap, arguments: Arguments) -> list[Suggestion]:
    """What a line that begins with a slash, up to the cursor, can go on to."""
    if not is_command(line):
        return []
    name, space, argument = line[1:].partition(" ")
    if not space:
        return [
            Suggestion(
                f"/{command}",
                _help(action, keymap),
                0,
                f"/{command}{' ' if action.argument else ''}",
                runs=not action.argument or action.argument.startswith("["),
            )
            for command, action in sorted(commands(keymap.actions.values()).items())
            if command.startswith(name)
        ]
    start = len(name) + 2
    return [
        Suggestion(value, "", start, value, runs=not value.endswith(" "))
        for value in arguments.get(name, ())
        if value.startswith(argument) and value != argument
    ]


def _help(action: Action, keymap: Keymap) -> str:
    keys = keymap.keys(action.id)
    return f"{action.help}  ({keys})" if keys else action.help
