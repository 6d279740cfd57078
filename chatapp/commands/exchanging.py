"""``chatapp export`` and ``chatapp import``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from chatapp.commands.arguments import Parser
from chatapp.commands.conversations import one_line, print_json, tell_notices
from chatapp.conversation.exchange import export, native, registry
from chatapp.conversation.exchange.transcript import transcript_of
from chatapp.conversation.records import SUFFIX
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError, UsageError
from chatapp.text import visible


def run(argv: list[str]) -> int:
    """Runs either command."""
    return _export(argv[1:]) if argv[0] == "export" else _import(argv[1:])


def _export(argv: list[str]) -> int:
    formats = "; ".join(f"{name}: {exporter.help}" for name, exporter in registry.EXPORTERS.items())
    parser = Parser(prog="chatapp export", description="Writes a conversation out.", epilog=f"Formats: {formats}.")
    parser.add_argument("name", metavar="NAME", help="id, beginning of an id, or title")
    parser.add_argument(
        "-f", "--format", choices=registry.EXPORTERS, help="by default from FILE's ending, else markdown"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="instead of standard output")
    parser.add_argument("--tree", action="store_true", help="all branches instead of the shown one")
    parser.add_argument("--branch", metavar="BRANCH", help="a named branch, or the id of its last message")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    parser.add_argument("--json", action="store_true", help="say in JSON what was written (needs -o)")
    arguments = parser.parse_args(argv)
    if arguments.json and arguments.output is None:
        parser.error("--json says what was written to a file: give it with -o; -f json writes the messages as JSON")
    store = Store()
    session = store.look(store.find(arguments.name))
    tell_notices(session.notices)
    try:
        return _write(arguments, session)
    finally:
        session.close()


def _write(arguments: argparse.Namespace, session: ConversationSession) -> int:
    to = branch_of(session, arguments.branch) if arguments.branch else None
    if arguments.output is None:
        exporter = registry.exporter(arguments.format or "markdown")
        sys.stdout.write(
            _printable(exporter.write(transcript_of(session, tree=arguments.tree, to=to), tree=arguments.tree))
        )
        return 0
    if arguments.output.exists() and not arguments.force:
        raise UsageError(f"{arguments.output} is there already; --force replaces it.")
    written = export(
        session, arguments.output, format=arguments.format, tree=arguments.tree, to=to, overwrite=arguments.force
    )
    if arguments.json:
        print_json({"type": "exported", "id": session.id, "path": str(written)})
    return 0


def _printable(text: str) -> str:
    """A terminal gets no control characters; a pipe gets the text as it is."""
    return visible(text) if sys.stdout.isatty() else text


def branch_of(session: ConversationSession, name: str) -> str:
    """The last message of a branch, by its name or by the message's id."""
    conversation = session.conversation
    leaf = conversation.branches.get(name, name)
    if leaf not in conversation.messages:
        known = ", ".join(conversation.branches) or "none"
        raise UsageError(f"There is no branch {name!r}; named ones: {known}.")
    return leaf


def _import(argv: list[str]) -> int:
    formats = "; ".join(importer.help for importer in registry.IMPORTERS.values())
    parser = Parser(
        prog="chatapp import",
        description="Reads conversations of other programs; their files stay as they are. "
        "Exit code 1 if any of them could not be read.",
        epilog=f"Understood: {formats}; Markdown transcripts; conversation files of chatapp.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="- for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    code = 0
    for name in arguments.files:
        try:
            whole = _import_file(name, arguments.json)
        except ChatappError as error:
            code = error.exit_code
            print(f"chatapp: {visible(str(error))}", file=sys.stderr)
        else:
            code = code if whole else max(code, 1)
    return code


def _import_file(name: str, as_json: bool) -> bool:
    """Imports what can be read of a file; False if something could not."""
    store, data = Store(), _bytes(name)
    if native.is_conversation(data, name):
        _take_in(store, name, data, as_json)
        return True
    imported = registry.read(data, name)
    for transcript in imported.transcripts:
        session = store.add(transcript)
        told = session.close()
        if told:
            raise ChatappError(told)
        _tell(session, imported.format, len(transcript.messages), transcript.notices, as_json)
    tell_notices(imported.problems)
    return not imported.problems


def _take_in(store: Store, name: str, data: bytes, as_json: bool) -> None:
    """Copies a conversation file of chatapp, with the token records that lie beside it."""
    path = Path(name).expanduser()
    beside = path.with_suffix(SUFFIX)
    tokens = _bytes(str(beside)) if name != "-" and beside.exists() else b""
    session = store.take_in(data, tokens, path.stem if name != "-" else "")
    notices = list(session.notices)
    session.close()
    _tell(session, "chatapp", len(session.conversation.messages), notices, as_json)


def _tell(session: ConversationSession, format: str, count: int, notices: Sequence[str], as_json: bool) -> None:
    title = session.conversation.title
    if as_json:
        what = {"id": session.id, "title": title, "messages": count, "format": format}
        print_json({"type": "imported", **what, "notices": notices})
        return
    print(f"{session.id}  {count:4} messages  {one_line(title or 'untitled', 60)}")
    tell_notices(notices)


def _bytes(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).expanduser().read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}.") from error
