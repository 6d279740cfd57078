"""The command line: finds the command, imports it alone, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NamedTuple

from chatapp import __version__
from chatapp.errors import ChatappError


class Command(NamedTuple):
    """A subcommand: its module has ``run(argv: list[str]) -> int``."""

    module: str
    help: str


COMMANDS = {
    "ask": Command("chatapp.commands.ask", "one answer to stdout, also from a pipe"),
    "score": Command("chatapp.commands.score", "entropy, varentropy and surprisal of given text"),
    "models": Command("chatapp.commands.models", "list, fetch, inspect and remove models"),
    "list": Command("chatapp.commands.conversations", "saved conversations"),
    "show": Command("chatapp.commands.conversations", "print a conversation"),
    "search": Command("chatapp.commands.conversations", "search all conversations"),
    "export": Command("chatapp.commands.conversations", "write a conversation as Markdown, HTML, JSON, CSV or JSONL"),
    "import": Command("chatapp.commands.conversations", "read conversations of other programs"),
    "rm": Command("chatapp.commands.conversations", "move a conversation to the trash"),
    "locate": Command("chatapp.commands.locate", "where config, models, conversations and themes are"),
}
CHAT = "chatapp.commands.chat"


def main(argv: list[str] | None = None) -> int:
    """Runs the program and returns its exit code: 0, 1 for failure, 2 for usage, 130 for interrupted."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in ("--version", "-V"):
        print(f"chatapp {__version__}")
        return 0
    try:
        return _dispatch(arguments)
    except ChatappError as error:
        print(f"chatapp: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("chatapp: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _silence_output()
        return 0


def _silence_output() -> None:
    """The reader of our output went away: what is still buffered goes nowhere, also when Python flushes it at exit."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - a descriptor is wanted
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        name = arguments[0]
        # A command module may serve several names, so it is given its own name too.
        return import_module(COMMANDS[name].module).run(arguments)
    return import_module(CHAT).run(arguments)


if __name__ == "__main__":
    sys.exit(main())
