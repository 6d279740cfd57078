"""``chatapp [NAME]``: the terminal UI, on a new, a named or the latest conversation."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from chatapp import paths
from chatapp.commands.arguments import Parser, add_model_options, hosts, load_request
from chatapp.errors import UsageError
from chatapp.settings import Settings, load_settings
from chatapp.text import visible

if TYPE_CHECKING:
    import argparse

    from chatapp.conversation.session import ConversationSession
    from chatapp.launch import Hosts
    from chatapp.ui.workspace import Workspace


def run(argv: list[str]) -> int:
    """Runs the UI until the person leaves."""
    arguments = _parser().parse_args(argv)
    if arguments.name and arguments.latest:
        raise UsageError("Give the name of a conversation or -c for the latest one, not both.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal; `chatapp ask` answers in a pipe.")
    if os.environ.get("TERM") == "dumb":
        raise UsageError("This terminal (TERM=dumb) cannot show a full screen; `chatapp ask` works in it.")
    settings = load_settings()
    for folder in (paths.conversations_dir, paths.log_dir):
        folder()  # what cannot be made is said before the screen is taken
    machines = hosts(arguments)
    # A conversation that is asked for must be there before the screen is taken; a new one can wait for the first paint.
    session = _saved(arguments.name) if arguments.name or arguments.latest else None
    model = arguments.model or (session.conversation.model if session else "") or settings.model
    arguments.model = None  # from here on the link says which model is wanted

    from chatapp.ui.app import ChatApp

    app = ChatApp(settings, lambda: _workspace(arguments, settings, session, model, machines), model)
    app.run(mouse=settings.mouse)
    for sentence in app.farewell:
        print(visible(sentence), file=sys.stderr)
    return app.return_code or 0


def _workspace(
    arguments: argparse.Namespace,
    settings: Settings,
    session: ConversationSession | None,
    model: str,
    machines: Hosts | None,
) -> Workspace:
    from chatapp.client import Engine
    from chatapp.conversation.store import Store
    from chatapp.ui.link import EngineLink
    from chatapp.ui.workspace import Workspace

    store = Store()
    link = EngineLink(
        lambda: Engine.start(hosts=machines), lambda number, name: load_request(arguments, settings, number, name)
    )
    return Workspace(store, link, settings, session or store.new(model, settings.system))


def _parser() -> Parser:
    parser = Parser(
        prog="chatapp",
        description="A chat with a model on this machine. Commands: ask, score, models, list, show, search, export, "
        "import, rm, locate; `chatapp COMMAND --help` tells more.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="id or title of a saved conversation")
    parser.add_argument("-c", "--continue", dest="latest", action="store_true", help="go on with the latest one")
    add_model_options(parser)
    return parser


def _saved(name: str | None) -> ConversationSession:
    """The conversation of that name; without one, the latest."""
    from chatapp.conversation.store import Store

    store = Store()
    id = store.find(name) if name else store.latest()
    if id is None:
        raise UsageError("There is no conversation to go on with yet; `chatapp` begins one.")
    return store.open(id)
