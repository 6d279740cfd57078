"""``chatapp ask``: one answer to standard output, from arguments, a pipe, a saved conversation or a token of one."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import msgspec

from chatapp import paths
from chatapp.commands import arguments as common
from chatapp.commands.heat import Painter
from chatapp.commands.running import Running, run_until_done, running
from chatapp.commands.saved import Place, Recorder, Saved
from chatapp.commands.writers import JsonWriter, TextWriter, Writer
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Ended, Generate, Leave, Note, Sampling, Started, Tokens, Turn
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
    prompt = _prompt(arguments)
    saved = _saved(arguments)
    try:
        return run_until_done(_ask(arguments, settings, prompt, saved))
    finally:
        if saved:
            saved.close()


def _parser() -> argparse.ArgumentParser:
    parser = common.Parser(
        prog="chatapp ask",
        description="One answer to standard output. What comes through a pipe is added below PROMPT.",
    )
    parser.add_argument("prompt", nargs="*", metavar="PROMPT")
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("-C", "--conversation", metavar="NAME", help="continue a saved conversation (and save it)")
    parser.add_argument(
        "--from-token",
        metavar="NAME:MESSAGE:INDEX",
        type=Place.parse,
        help="go on from a token of a saved reply: conversation, message (number or id), token number from 0",
    )
    parser.add_argument(
        "--pick", type=common.count, metavar="N", help="with --from-token: take its N-th likeliest token first"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--heat", action="store_true", help="colour each token by its entropy")
    output.add_argument("--json", action="store_true", help="one JSON object a line: start, tokens, end")
    output.add_argument("--alternatives", type=common.natural, metavar="N", help="likeliest tokens in each JSON line")
    output.add_argument("--attention", action="store_true", help="attention statistics in each JSON line")
    output.add_argument("--candidates", type=common.count, default=1, metavar="N", help="several answers at once")
    output.add_argument("--pause-above", type=common.nats, metavar="NATS", help="stop before a token of higher entropy")
    output.add_argument("--thinking", action=argparse.BooleanOptionalAction, help="reasoning, where the model has it")
    common.add_sampling_options(parser)
    common.add_model_options(parser)
    return parser


def _prompt(arguments: argparse.Namespace) -> str:
    # What echo and editors put at the end is not part of the question: small models answer differently to it.
    parts = [" ".join(arguments.prompt), common.piped_text().rstrip()]
    prompt = "\n\n".join(part for part in parts if part.strip())
    if not prompt and not arguments.from_token:
        raise UsageError('There is nothing to ask: give it as an argument or through a pipe, as in chatapp ask "Hi".')
    if prompt and arguments.from_token:
        raise UsageError("--from-token goes on with a saved reply and takes no prompt.")
    return prompt


def _saved(arguments: argparse.Namespace) -> Saved | None:
    if arguments.pick is not None and not arguments.from_token:
        raise UsageError("--pick belongs to --from-token.")
    if arguments.conversation and arguments.from_token:
        raise UsageError("Give -C or --from-token, not both.")
    if arguments.candidates > 1 and arguments.conversation:
        raise UsageError("Several candidates cannot be saved in a conversation: leave out -C or --candidates.")
    if arguments.from_token:
        return Saved.open(arguments.from_token.conversation, read_only=True)
    return Saved.open(arguments.conversation) if arguments.conversation else None


@dataclass(frozen=True)
class _Question:
    """What is asked.

    Attributes:
        turns: The prompt.
        sampling: Options over those of the settings, or of the saved reply that is gone on with.
        conversation: Id of the conversation that it continues, if it does.
        message: Id of the user's message there.
        picked: The token that was chosen in place of a saved one; the last of the prompt.
    """

    turns: tuple[Turn, ...]
    sampling: Sampling
    conversation: str = ""
    message: str = ""
    picked: Token | None = None


async def _ask(arguments: argparse.Namespace, settings: Settings, prompt: str, saved: Saved | None) -> int:
    place: Place | None = arguments.from_token
    model = (saved.model_at(place) if place else saved.model) if saved else ""
    hosts = common.hosts(arguments)
    async with running(lambda number: common.load_request(arguments, settings, number, model), hosts) as run:
        question = _question(arguments, settings, prompt, saved, run.loaded.model)
        request = _generate(arguments, settings, question)
        ended = await _answer(request, _writer(arguments), question, run, saved)
        if request.cache_file and ended.finish != "error":
            # What was read need not be read again by the next call.
            leave = Leave(run.engine.next_request(), request.conversation, request.cache_file)
            async for event in run.engine.request(leave):
                if isinstance(event, Note):
                    _tell(event)
    if ended.finish == "error":
        raise ChatappError(ended.message)
    if ended.pending is not None and not arguments.json:
        print(_pause(ended.pending), file=sys.stderr)
    return 130 if run.interrupted else 0


def _question(
    arguments: argparse.Namespace, settings: Settings, prompt: str, saved: Saved | None, model: str
) -> _Question:
    asked = common.sampling_of(arguments)
    place: Place | None = arguments.from_token
    if saved and place:
        picked = None if arguments.pick is None else saved.alternative(place, arguments.pick)
        return _Question(
            saved.turns_to(place, picked, model), asked.over(saved.sampling_at(place, picked)), picked=picked
        )
    sampling = asked.over(settings.sampling)
    if saved:
        if arguments.system is not None:
            saved.set_system(arguments.system)
        message = saved.ask(prompt)
        return _Question(saved.turns(model), sampling, saved.id, message)
    system = settings.system if arguments.system is None else arguments.system
    turns = (Turn("system", system),) if system else ()
    return _Question((*turns, Turn("user", prompt)), sampling)


def _generate(arguments: argparse.Namespace, settings: Settings, question: _Question) -> Generate:
    return Generate(
        0,
        conversation=question.conversation or "ask",
        turns=question.turns,
        sampling=question.sampling,
        continue_last=arguments.from_token is not None,
        candidates=arguments.candidates,
        alternatives=settings.alternatives if arguments.alternatives is None else arguments.alternatives,
        attention=arguments.attention or settings.attention,
        pause_above=arguments.pause_above,
        cache_file=str(paths.prompt_cache(question.conversation))
        if question.conversation and settings.cache.disk
        else None,
        thinking=settings.thinking if arguments.thinking is None else arguments.thinking,
    )


def _writer(arguments: argparse.Namespace) -> Writer:
    if arguments.json:
        return JsonWriter(arguments.candidates)
    return TextWriter(arguments.candidates, Painter() if arguments.heat else None)


def _tell(note: Note) -> None:
    print(f"chatapp: {visible(note.message)}", file=sys.stderr)


async def _answer(request: Generate, writer: Writer, question: _Question, run: Running, saved: Saved | None) -> Ended:
    """Prints the answer as it comes, and saves it where its question was saved."""
    recorder = saved.recorder(run.load, run.loaded, request) if saved and question.message else None
    ended: Ended | None = None
    try:
        async for event in run.events(lambda number: msgspec.structs.replace(request, request=number)):
            match event:
                case Started():
                    if recorder:
                        recorder.start(event)
                    writer.start(run.loaded.model, event)
                    writer.tokens([question.picked] if question.picked else [], 0)
                case Tokens():
                    if recorder:
                        recorder.tokens(event.tokens)
                    writer.tokens(event.tokens, event.candidate)
                case Ended():
                    ended = event
                    writer.end(event)
                case Note():
                    _tell(event)
                case _:
                    pass
    finally:
        if saved and recorder:
            _keep(saved, recorder, question.message, ended)
    assert ended is not None, "a generation that has not failed ends with Ended"
    return ended


def _keep(saved: Saved, recorder: Recorder, message: str, ended: Ended | None) -> None:
    """Writes the reply down, whole or as far as it came; a question that got none is taken back."""
    recorder.end(ended)
    if recorder.empty and (ended is None or ended.finish != "stop"):
        saved.take_back(message)


def _pause(token: Token) -> str:
    others = ", ".join(f"“{visible(other.text)}” {math.exp(other.logprob):.0%}" for other in token.top[:5])
    return f"chatapp: paused before a token of {token.entropy:.2f} nats; the likeliest: {others}."
