"""``chatapp list | show | search | export | import | rm``: saved conversations, for people and for scripts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from chatapp import paths
from chatapp.commands.arguments import Parser, natural
from chatapp.conversation.search import Hit
from chatapp.conversation.store import Store
from chatapp.errors import ChatappError
from chatapp.text import visible

#: Characters of an id that a list shows: enough to name a conversation among thousands.
ID_LENGTH = 10


def run(argv: list[str]) -> int:
    """Runs a command and returns its exit code; ``argv`` begins with its name."""
    # Each module is imported when its command is given.
    if argv[0] == "show":
        from chatapp.commands import showing

        return showing.run(argv)
    if argv[0] in ("export", "import"):
        from chatapp.commands import exchanging

        return exchanging.run(argv)
    command: Callable[[list[str]], int] = {"list": _list, "search": _search, "rm": _remove}[argv[0]]
    return command(argv[1:])


def print_json(value: Any) -> None:
    """One JSON object as one line."""
    # JSON itself leaves C1 and bidi controls as they are: a terminal gets them escaped.
    print(json.dumps(value, ensure_ascii=sys.stdout.isatty()))


def tell_notices(notices: Sequence[str]) -> None:
    """What the person should know beside the result."""
    for notice in notices:
        print(f"chatapp: {visible(notice)}", file=sys.stderr)


def one_line(text: str, width: int) -> str:
    """Text as it may be printed in a column."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def _list(argv: list[str]) -> int:
    parser = Parser(prog="chatapp list", description="Saved conversations, the one changed last first.")
    parser.add_argument("-n", "--limit", type=natural, metavar="N", help="at most so many")
    parser.add_argument("--trash", action="store_true", help="those that were removed")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    store = Store().trash if arguments.trash else Store()
    summaries = store.summaries()[: arguments.limit]
    for summary in summaries:
        if arguments.json:
            print_json({"type": "conversation", **summary._asdict()})
            continue
        when = datetime.fromtimestamp(summary.updated).strftime("%Y-%m-%d %H:%M")
        title = one_line(summary.title or "untitled", 50) if summary.readable else "(not a conversation)"
        what = f"{when}  {summary.messages:4}  {one_line(summary.model, 24):24}  {title}"
        print(f"{visible(summary.id):{ID_LENGTH}}  {what}")
    if not summaries and not arguments.json:
        print("The trash is empty." if arguments.trash else "No conversation is saved yet.", file=sys.stderr)
    return 0


def _search(argv: list[str]) -> int:
    parser = Parser(
        prog="chatapp search",
        description="Messages in all conversations, the latest first. Exit code 1 if none is found.",
        epilog='Terms: word, begin*, "a phrase", -without, role:user, model:NAME, title:WORD, after:2026-01, '
        "before:2026-01-31, entropy>3 (the highest entropy of a token, in nats). All of them have to fit.",
    )
    parser.add_argument("-n", "--limit", type=natural, default=50, metavar="N", help="at most so many (50)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    # What looks like an option may be a word to leave out: everything that is not ours goes to the query.
    arguments, rest = parser.parse_known_args(argv)
    query = " ".join(_quoted(term) for term in rest)
    hits = Store().search(query, limit=arguments.limit)
    for hit in hits:
        if arguments.json:
            print_json({"type": "hit", **dataclasses.asdict(hit)})
        else:
            print(_hit_text(hit))
    if not hits and not arguments.json:
        print("Nothing found.", file=sys.stderr)
    return 0 if hits else 1


def _quoted(term: str) -> str:
    """An argument with a space was a phrase to the shell, and is one to us."""
    return f'"{term}"' if " " in term and '"' not in term and ":" not in term else term


def _hit_text(hit: Hit) -> str:
    peak = f"  peak {hit.peak_entropy:.1f} nats" if hit.peak_entropy is not None else ""
    where = f"{hit.conversation}  {hit.created[:10]}  {hit.role}{peak}  {one_line(hit.title, 40)}"
    return visible(f"{where}\n    {hit.excerpt}")


def _remove(argv: list[str]) -> int:
    parser = Parser(
        prog="chatapp rm",
        description="Moves conversations to the trash (see chatapp list --trash), or brings them back.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="id, beginning of an id, or title")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--restore", action="store_true", help="bring back from the trash")
    what.add_argument("--empty-trash", action="store_true", help="delete for good what is in the trash, or NAMEs of it")
    parser.add_argument("--older-than", type=float, metavar="DAYS", help="with --empty-trash: only what is older")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args(argv)
    if not arguments.names and not arguments.empty_trash:
        parser.error("name a conversation")
    if arguments.older_than is not None and not arguments.empty_trash:
        parser.error("--older-than belongs to --empty-trash")
    return _each(arguments, Store())


def _each(arguments: argparse.Namespace, store: Store) -> int:
    """Does it for each name; one that fails does not keep the others from it."""
    place = store.trash if arguments.restore or arguments.empty_trash else store
    names: list[str] = arguments.names or _old(place, arguments.older_than)
    act, done = {
        (True, False): (store.restore, "restored"),
        (False, True): (store.trash.erase, "deleted for good"),
        (False, False): (store.remove, "moved to the trash"),
    }[arguments.restore, arguments.empty_trash]
    failed: ChatappError | None = None
    for name in names:
        try:
            id = place.find(name)
            act(id)
            if not arguments.restore:
                paths.forget_prompt_cache(id)
        except ChatappError as error:
            failed = error
            print(f"chatapp: {visible(str(error))}", file=sys.stderr)
            continue
        print_json({"type": "removed", "id": id, "done": done}) if arguments.json else print(f"{visible(id)} {done}")
    return failed.exit_code if failed else 0


def _old(store: Store, days: float | None) -> list[str]:
    if days is None:
        return store.ids()
    return [summary.id for summary in store.summaries() if time.time() - summary.updated > days * 86400]
