"""``chatapp [NAME]``: the terminal UI, on a new, a named or the latest conversation."""

from __future__ import annotations

import sys

from chatapp.commands.arguments import Parser, add_model_options, load_request
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.errors import UsageError
from chatapp.settings import load_settings


def run(argv: list[str]) -> int:
    """Runs the UI until the person leaves."""
    arguments = _parser().parse_args(argv)
    if arguments.name and arguments.latest:
        raise UsageError("Give the name of a conversation or -c for the latest one, not both.")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat needs a terminal; `chatapp ask` answers in a pipe.")
    settings = load_settings()
    store = Store()
    session = _session(store, arguments.name, arguments.latest, arguments.model or settings.model, settings.system)

    # Textual is imported here, so that --help and wrong arguments answer at once.
    from chatapp.client import Engine
    from chatapp.ui.app import ChatApp
    from chatapp.ui.link import EngineLink
    from chatapp.ui.workspace import Workspace

    chosen = arguments.model or session.conversation.model or settings.model
    arguments.model = None  # from here on the link says which model is wanted
    link = EngineLink(Engine.start, lambda number, model: load_request(arguments, settings, number, model))
    app = ChatApp(Workspace(store, link, settings, session), chosen)
    app.run(mouse=settings.mouse)
    return app.return_code or 0


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


def _session(store: Store, name: str | None, latest: bool, model: str, system: str) -> ConversationSession:
    if name:
        return store.open(store.find(name))
    if latest:
        id = store.latest()
        if id is None:
            raise UsageError("There is no conversation to go on with yet; `chatapp` begins one.")
        return store.open(id)
    return store.new(model, system)
