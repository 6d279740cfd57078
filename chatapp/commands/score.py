"""``chatapp score``: entropy, varentropy and surprisal of given text under a model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from chatapp.commands import arguments as common
from chatapp.commands.heat import Painter
from chatapp.commands.running import Running, run_until_done, running
from chatapp.commands.writers import JsonWriter, standard_output, token_fields, write
from chatapp.errors import UsageError
from chatapp.protocol import Score, Scored, ScoreEnded
from chatapp.settings import Settings, load_settings
from chatapp.text import visible
from chatapp.tokens import Token


def run(argv: list[str]) -> int:
    """Runs the command; ``argv`` begins with its name.

    Raises:
        ChatappError: What went wrong, as a sentence.
    """
    arguments = _parser().parse_args(argv[1:])
    settings = load_settings()
    text = _text(arguments.file)
    return run_until_done(_score(arguments, settings, text))


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="chatapp score",
        description="Entropy H, varentropy V and surprisal S of each token of a text, and its perplexity.",
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="text file; standard input if none is given")
    output = parser.add_argument_group("output")
    output.add_argument("--heat", action="store_true", help="the text, each token coloured by its entropy")
    output.add_argument("--json", action="store_true", help="one JSON object a line: tokens, end")
    output.add_argument(
        "--alternatives", type=common.natural, default=0, metavar="N", help="likeliest tokens, for --json"
    )
    common.add_model_options(parser)
    return parser


def _text(file: str | None) -> str:
    if file and file != "-":
        return common.file_text(Path(file))
    if sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("There is nothing to score: name a file, or give a text through a pipe.")
    return common.piped_text()


async def _score(arguments: argparse.Namespace, settings: Settings, text: str) -> int:
    if not text:
        raise UsageError("There is nothing to score: the text is empty.")
    writer = _Json() if arguments.json else _Heat() if arguments.heat else _Table()
    hosts = common.hosts(arguments)
    async with running(lambda number: common.load_request(arguments, settings, number), hosts) as run:
        await _write(run, text, arguments.alternatives, writer)
    return 130 if run.interrupted else 0


async def _write(run: Running, text: str, alternatives: int, writer: _Writer) -> None:
    async for event in run.events(lambda number: Score(number, text, alternatives)):
        match event:
            case Scored():
                writer.tokens(event.tokens)
            case ScoreEnded():
                writer.end(event)
            case _:
                pass


class _Writer(Protocol):
    def tokens(self, tokens: Sequence[Token]) -> None: ...

    def end(self, event: ScoreEnded) -> None: ...


class _Json:
    def __init__(self) -> None:
        self._lines = JsonWriter()

    def tokens(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            fields = token_fields(token)
            del fields["sampled_entropy"], fields["state"]  # nothing was sampled
            self._lines.line(**fields)

    def end(self, event: ScoreEnded) -> None:
        self._lines.line(
            type="end",
            finish=event.finish,
            tokens=event.tokens,
            perplexity=event.perplexity,
            mean_entropy=event.mean_entropy,
            mean_varentropy=event.mean_varentropy,
        )


class _Table:
    """A line for each token, with its text in quotes and its control characters made visible."""

    def __init__(self) -> None:
        self._out = standard_output()
        write(self._out, f"{'H nats':>8} {'V nats²':>8} {'S nats':>8}  token\n")

    def tokens(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            text = visible(token.text.replace("\n", "↵").replace("\t", "⇥"))
            numbers = f"{token.entropy:8.3f} {token.varentropy:8.3f} {token.surprisal:8.3f}"
            self._out.write(f"{numbers if token.index else ' ' * 26}  “{text}”\n")
        self._out.flush()

    def end(self, event: ScoreEnded) -> None:
        write(self._out, _summary(event))


class _Heat:
    def __init__(self) -> None:
        self._out = standard_output()
        self._painter = Painter()
        self._text = ""

    def tokens(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self._text = token.text or self._text
            self._out.write(self._painter.paint(token))
        self._out.flush()

    def end(self, event: ScoreEnded) -> None:
        write(self._out, f"{'' if self._text.endswith(chr(10)) else chr(10)}{self._painter.legend}\n{_summary(event)}")


def _summary(event: ScoreEnded) -> str:
    stopped = ", stopped before the end" if event.finish == "cancelled" else ""
    return (
        f"{event.tokens} tokens{stopped}: perplexity {event.perplexity:.2f}, mean H {event.mean_entropy:.3f} nats, "
        f"mean V {event.mean_varentropy:.3f} nats²\n"
    )
