"""Options that several commands share, and how wrong ones are reported: one sentence, exit code 2."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import NoReturn

from chatapp.errors import UsageError
from chatapp.launch import Hosts
from chatapp.protocol import Load, Sampling
from chatapp.settings import Settings


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and end the program; ``--help`` still prints and ends."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. `{self.prog} --help` lists what it takes.")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of `Load`."""
    group = parser.add_argument_group("model and cache")
    group.add_argument("-m", "--model", metavar="MODEL", help="registry name, owner/repo, folder or .gguf file")
    group.add_argument("--max-kv-size", type=count, metavar="C", help="capacity of the KV cache in tokens")
    group.add_argument("--keep", type=natural, metavar="K", help="first tokens that are always kept")
    group.add_argument("--kv-bits", type=count, metavar="N", help="quantize the KV cache to N bits")
    group.add_argument("--adapter", metavar="FOLDER", help="LoRA adapter")
    group.add_argument("--draft", metavar="MODEL", help="model for speculative decoding, or “lookup”")
    several = parser.add_argument_group("several machines")
    several.add_argument(
        "--hosts", metavar="FILE", type=Path, help="run the model on the hosts of an mlx.launch hostfile"
    )
    several.add_argument("-n", "--ranks", metavar="N", type=count, default=1, help="run N ranks on this machine")


def hosts(arguments: argparse.Namespace) -> Hosts | None:
    """The machines that the options name; None for one process here.

    Raises:
        UsageError: The hostfile cannot be used.
    """
    if arguments.hosts and arguments.ranks > 1:
        raise UsageError("Give --hosts or -n, not both: a hostfile says how many ranks there are.")
    if arguments.hosts:
        return Hosts.from_file(arguments.hosts)
    return Hosts.here(arguments.ranks) if arguments.ranks > 1 else None


def load_request(arguments: argparse.Namespace, settings: Settings, request: int, model: str = "") -> Load:
    """The `Load` that the options and the settings ask for; ``model`` is the one where no option names one."""
    cache = settings.cache
    return Load(
        request,
        arguments.model or model or settings.model,
        max_kv_size=_first(arguments.max_kv_size, cache.max_kv_size),
        keep=_first(arguments.keep, cache.keep),
        kv_bits=_first(arguments.kv_bits, cache.kv_bits),
        adapter=arguments.adapter,
        draft=arguments.draft,
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Options of `Sampling`."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--sampler", metavar="NAME", help="standard, adaptive or another registered one")
    group.add_argument("--temperature", type=float, metavar="T", help="0 takes the likeliest token")
    group.add_argument("--top-k", type=natural, metavar="N")
    group.add_argument("--top-p", type=float, metavar="P")
    group.add_argument("--min-p", type=float, metavar="P")
    group.add_argument("--xtc-probability", type=float, metavar="P")
    group.add_argument("--xtc-threshold", type=float, metavar="P")
    group.add_argument("--repetition-penalty", type=float, metavar="X")
    group.add_argument("--presence-penalty", type=float, metavar="X")
    group.add_argument("--frequency-penalty", type=float, metavar="X")
    group.add_argument(
        "--logit-bias", type=_bias, action="append", metavar="ID=BIAS", help="may be given several times"
    )
    group.add_argument("--seed", type=natural, metavar="N", help="the same seed and options draw the same reply")
    group.add_argument("--stop", action="append", metavar="TEXT", help="ends the reply; may be given several times")
    group.add_argument("--max-tokens", type=count, metavar="N")
    group.add_argument("--option", type=_option, action="append", metavar="NAME=VALUE", help="setting of the sampler")


def sampling_of(arguments: argparse.Namespace) -> Sampling:
    """What the options say; None where they say nothing."""
    return Sampling(
        sampler=arguments.sampler,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        min_p=arguments.min_p,
        xtc_probability=arguments.xtc_probability,
        xtc_threshold=arguments.xtc_threshold,
        repetition_penalty=arguments.repetition_penalty,
        presence_penalty=arguments.presence_penalty,
        frequency_penalty=arguments.frequency_penalty,
        logit_bias=dict(arguments.logit_bias) if arguments.logit_bias else None,
        seed=arguments.seed,
        stop=tuple(arguments.stop) if arguments.stop else None,
        max_tokens=arguments.max_tokens,
        options=dict(arguments.option or ()),
    )


def piped_text() -> str:
    """Everything on standard input; empty if that is a terminal or closed.

    Raises:
        UsageError: It is not UTF-8.
    """
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ""
    return decoded(sys.stdin.buffer.read(), "standard input")


def file_text(path: Path) -> str:
    """A text file's content.

    Raises:
        UsageError: It cannot be read or is not UTF-8.
    """
    try:
        return decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def decoded(data: bytes, name: str) -> str:
    """UTF-8 text, a byte-order mark left out.

    Raises:
        UsageError: It is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02X}): "
            "convert it first, for example with iconv."
        ) from error


def _first(given: int | None, otherwise: int | None) -> int | None:
    return otherwise if given is None else given


def natural(text: str) -> int:
    """A whole number from 0; for argparse."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def count(text: str) -> int:
    """A whole number from 1; for argparse."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def nats(text: str) -> float:
    """An entropy, a finite number from 0; for argparse."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of nats from 0")
    return value


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    return int(token), float(bias)


def _option(text: str) -> tuple[str, bool | int | float | str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


# argparse names the type in "invalid … value: 'x'".
natural.__name__ = count.__name__ = "whole number"
_bias.__name__ = "ID=BIAS"
