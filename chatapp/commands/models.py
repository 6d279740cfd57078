"""``chatapp models``: lists, fetches, inspects and removes models. Only ``fetch`` needs a network."""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import sys
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.table import Table

from chatapp.commands.arguments import Parser
from chatapp.errors import ChatappError, UsageError
from chatapp.models import catalog, fit
from chatapp.models.catalog import Entry
from chatapp.models.folder import check_files, read_config
from chatapp.models.registry import Registry, load_registry
from chatapp.models.space import size_text
from chatapp.text import visible

_STATES = {"ready": "here", "partial": "partly here", "absent": ""}


def run(argv: list[str]) -> int:
    """Runs the command and returns its exit code."""
    arguments = _parser().parse_args(argv[1:] or ["list"])
    action: Callable[[argparse.Namespace, Registry], int] = arguments.action
    return action(arguments, load_registry())


def _parser() -> Parser:
    parser = Parser(prog="chatapp models", description="The models that chatapp knows, and what of them is here.")
    actions = parser.add_subparsers(required=True, metavar="list|fetch|info|rm")
    for name, action, text in (
        ("list", _list, "all known models and whether they are here"),
        ("fetch", _fetch, "download a model, and convert it if it is GGUF"),
        ("info", _info, "all that is known of a model and of this machine"),
        ("rm", _remove, "delete what was downloaded and converted of a model"),
    ):
        sub = actions.add_parser(name, help=text, description=text)
        sub.set_defaults(action=action)
        if name == "info":
            sub.add_argument("model", nargs="?", default="", help="registry name, owner/repo, folder or .gguf file")
        elif name != "list":
            sub.add_argument("model", help="registry name, owner/repo, folder or .gguf file")
        if name == "rm":
            sub.add_argument("-y", "--yes", action="store_true", help="do not ask")
        sub.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


def _list(arguments: argparse.Namespace, registry: Registry) -> int:
    entries = catalog.look_at_all(registry)
    available = fit.available_bytes()
    if arguments.json:
        for entry in entries:
            _print_json(_facts(entry, available))
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, justify in (
        ("model", "left"),
        ("size", "right"),
        ("memory", "right"),
        ("licence", "left"),
        ("", "left"),
    ):
        table.add_column(title, justify=justify, no_wrap=title in ("model", "size", "memory"))  # type: ignore[arg-type]
    for entry in entries:
        table.add_row(*_row(entry, available))
    _console().print(table)
    print("\nchatapp -m MODEL starts a chat with one; a Hub repository, a folder or a .gguf file does too.")
    return 0


def _row(entry: Entry, available: int) -> list[str]:
    spec = entry.spec
    size = spec.download_bytes or entry.bytes
    remarks = [_STATES[entry.state]]
    if entry.fits(available) is False:
        remarks.append("does not fit in memory now")
    if not entry.known:
        remarks.append("in the Hub's cache")
    return [
        visible(spec.name),
        size_text(size) if size else "",
        size_text(spec.memory_bytes) if spec.memory_bytes else "",
        visible(spec.license),
        ", ".join(filter(None, remarks)),
    ]


def _fetch(arguments: argparse.Namespace, registry: Registry) -> int:
    # Imported here: it brings NumPy and the converter.
    from chatapp.commands.running import LoadProgress
    from chatapp.engine.fetching import fetch
    from chatapp.models.progress import Step
    from chatapp.protocol import Progress

    with LoadProgress() as bars:

        def show(step: Step) -> None:
            bars.show(Progress(0, **msgspec.structs.asdict(step)))

        ready = fetch(registry.find(arguments.model), show, refresh=True)
    # A folder of the person's own is fetched by looking at it: say now what is missing in it.
    read_config(ready.folder, visible(ready.spec.name))
    check_files(ready.folder, visible(ready.spec.name))
    if arguments.json:
        _print_json({"model": ready.spec.name, "folder": str(ready.folder), "bytes": ready.bytes})
    else:
        print(f"{visible(ready.spec.name)} is ready in {visible(str(ready.folder))} ({size_text(ready.bytes)}).")
    return 0


def _info(arguments: argparse.Namespace, registry: Registry) -> int:
    from chatapp.engine.blas import use_fast_blas
    from chatapp.settings import load_settings

    entry = catalog.look(registry.find(arguments.model or load_settings().model))
    available = fit.available_bytes()
    facts = {**_facts(entry, available), "machine": _machine(), "blas": use_fast_blas(), "memory_available": available}
    if arguments.json:
        _print_json(facts)
        return 0
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        if value not in ("", None, 0, {}, []):
            table.add_row(key.replace("_", " "), visible(_shown(key, value)))
    _console().print(table)
    return 0


def _remove(arguments: argparse.Namespace, registry: Registry) -> int:
    entry = catalog.look(registry.find(arguments.model))
    if entry.paths and not arguments.yes:
        _confirm(entry)
    freed = catalog.remove(entry)
    if arguments.json:
        _print_json({"model": entry.spec.name, "freed": freed})
    else:
        print(f"{visible(entry.spec.name)} is removed, {size_text(freed)} are free again.")
    return 0


def _confirm(entry: Entry) -> None:
    name = visible(entry.spec.name)
    if not sys.stdin.isatty():
        raise UsageError(f"Removing {name} frees {size_text(entry.bytes)}: say --yes, as nobody can be asked here.")
    for path in entry.paths:
        print(visible(str(path)), file=sys.stderr)
    print(f"Remove {name} and free {size_text(entry.bytes)}? [y/N] ", end="", file=sys.stderr, flush=True)
    with contextlib.suppress(EOFError):
        if input().strip().lower() in ("y", "yes"):
            return
    raise ChatappError("Nothing was removed.", "cancelled")


def _facts(entry: Entry, available: int) -> dict[str, object]:
    spec = entry.spec
    return {
        "model": spec.name,
        "title": spec.title,
        "source": spec.source,
        "state": entry.state,
        "folder": str(entry.folder) if entry.folder else None,
        "bytes": entry.bytes,
        "download_bytes": spec.download_bytes,
        "memory_bytes": spec.memory_bytes,
        "fits": entry.fits(available),
        "context": spec.context,
        "parameters": spec.parameters,
        "license": spec.license,
        "sampling": msgspec.to_builtins(spec.sampling, str_keys=True),
        "stop": list(spec.stop),
        "draft": spec.draft,
        "adapter": spec.adapter,
        "note": spec.note,
    }


def _shown(key: str, value: object) -> str:
    if key.endswith("bytes") or key == "memory_available":
        return size_text(int(str(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(repr, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}"


def _console() -> Console:
    # Names and notes are text, never markup. As wide as it needs when its output is read by a program.
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 200)


def _print_json(value: object) -> None:
    # As in `chatapp.commands.conversations.print_json`: a terminal gets no C1 and bidi controls.
    print(json.dumps(value, ensure_ascii=sys.stdout.isatty()))
