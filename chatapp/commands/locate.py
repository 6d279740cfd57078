"""``chatapp locate``: where config, models, conversations and themes are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chatapp import paths
from chatapp.commands.arguments import Parser
from chatapp.commands.conversations import print_json
from chatapp.conversation.store import TRASH
from chatapp.text import visible

PLACES: dict[str, Callable[[], Path]] = {
    "config": lambda: paths.config_dir() / "config.toml",
    "models": lambda: paths.config_dir() / "models.toml",
    "themes": lambda: paths.config_dir() / "themes",
    "conversations": paths.conversations_dir,
    "trash": lambda: paths.conversations_dir() / TRASH,
    "cache": paths.cache_dir,
    "log": paths.log_dir,
    "shipped-models": lambda: paths.shipped("models.toml"),
    "shipped-themes": lambda: paths.shipped("themes"),
}


def run(argv: list[str]) -> int:
    """Prints all places, or the one that is asked for."""
    parser = Parser(
        prog="chatapp locate", description="Where chatapp keeps things. “config”, “models” and “themes” are yours."
    )
    parser.add_argument("place", nargs="?", choices=PLACES, help="print this path only")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args(argv[1:])
    names = [arguments.place] if arguments.place else list(PLACES)
    if arguments.json:
        print_json({name: str(PLACES[name]()) for name in names})
    elif arguments.place:
        print(visible(str(PLACES[arguments.place]())))
    else:
        for name in names:
            path = PLACES[name]()
            print(f"{name:15} {visible(str(path))}{'' if path.exists() else '  (not there yet)'}")
    return 0
