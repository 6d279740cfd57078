"""``chatapp show``: prints a conversation, its branches, or whether its replies can be drawn again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from chatapp.commands.arguments import Parser
from chatapp.commands.conversations import one_line, print_json, tell_notices
from chatapp.commands.exchanging import branch_of
from chatapp.commands.heat import Painter
from chatapp.conversation.events import Message
from chatapp.conversation.records import TYPED
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import Store
from chatapp.text import visible
from chatapp.tokens import Token


def run(argv: list[str]) -> int:
    """Runs the command; ``argv`` begins with its name."""
    arguments = _parser().parse_args(argv[1:])
    store = Store()
    session = store.look(store.find(arguments.name))
    try:
        tell_notices(session.notices)
        if arguments.replay is not None:
            from chatapp.commands.replay import replay

            return replay(session, arguments.replay, arguments.json)
        if arguments.branches:
            _print_branches(session, arguments.json)
        else:
            _print_messages(session, arguments)
        return 0
    finally:
        session.close()


def _parser() -> Parser:
    parser = Parser(prog="chatapp show", description="Prints a conversation: its shown branch, or another one.")
    parser.add_argument("name", metavar="NAME", help="id, beginning of an id, or title")
    parser.add_argument("--branch", metavar="BRANCH", help="a named branch, or the id of its last message")
    parser.add_argument("--heat", action="store_true", help="colour replies by the entropy of their tokens")
    parser.add_argument("--tokens", action="store_true", help="with --json: the token records of replies too")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--branches", action="store_true", help="list all branches")
    what.add_argument(
        "--replay",
        nargs="?",
        const="",
        metavar="MESSAGE",
        help="draw the replies of the shown branch (or one, by its id) again and compare the token ids",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def _print_branches(session: ConversationSession, as_json: bool) -> None:
    conversation = session.conversation
    names = {leaf: name for name, leaf in conversation.branches.items()}
    for leaf in conversation.leaves():
        path = conversation.path(leaf.id)
        facts: dict[str, Any] = {
            "type": "branch",
            "id": leaf.id,
            "name": names.get(leaf.id, ""),
            "messages": len(path),
            "shown": leaf.id == conversation.head,
        }
        if as_json:
            print_json(facts)
            continue
        mark = "●" if facts["shown"] else " "
        what = f"{len(path):4}  {one_line(facts['name'], 20):20}  {one_line(leaf.content, 50)}"
        print(f"{mark} {visible(leaf.id)}  {what}")


def _print_messages(session: ConversationSession, arguments: argparse.Namespace) -> None:
    conversation = session.conversation
    path = conversation.path(branch_of(session, arguments.branch)) if arguments.branch else conversation.path()
    if arguments.json:
        head = {"id": session.id, "title": conversation.title, "model": conversation.model}
        print_json({"type": "conversation", **head, "created": conversation.created, "system": conversation.system})
        for message in path:
            print_json(_facts(session, message, arguments.tokens))
        return
    painter = Painter() if arguments.heat else None
    if painter:
        print(painter.legend, end="\n\n")
    if conversation.system:
        print(f"System\n{visible(conversation.system)}\n")
    for message in path:
        others = session.conversation.siblings(message.id)
        place = f"  {others.index(message) + 1}/{len(others)}" if len(others) > 1 else ""
        model = f" ({visible(message.model)})" if message.model else ""
        print(f"{visible(message.role.capitalize())}{model}{place}\n{_text(session, message, painter)}\n")


def _text(session: ConversationSession, message: Message, painter: Painter | None) -> str:
    tokens = session.tokens(message.id) if painter else []
    if not painter or not tokens:
        return visible(message.content)
    return "".join(_painted(painter, tokens))


def _painted(painter: Painter, tokens: Sequence[Token]) -> list[str]:
    return [visible(token.text) if token.id == TYPED else painter.paint(token) for token in tokens]


def _facts(session: ConversationSession, message: Message, with_tokens: bool) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(message)
    facts["alternatives"] = [other.id for other in session.conversation.siblings(message.id) if other.id != message.id]
    if with_tokens:
        facts["tokens"] = msgspec.to_builtins(session.tokens(message.id))
    return facts
