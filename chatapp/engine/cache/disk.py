"""A conversation's cache as a file, so that reopening it reads nothing again.

The file is what mlx-lm's ``save_prompt_cache`` writes, with its SHA-256 behind it: the live layers, then those of the
checkpoints and those columns put by that are worth their room. What it was made from stands in the metadata; a file
that differs in any of it, or is damaged, is ignored with a reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import msgspec
from mlx_lm.models import cache as stock

from chatapp import paths
from chatapp.engine.cache import layers as kv
from chatapp.engine.cache.ladder import Checkpoint, Kind
from chatapp.engine.cache.saved import Saved
from chatapp.engine.cache.session import SessionCache

#: How the files' names end.
SUFFIX = paths.PROMPT_CACHE

#: Bytes that all saved caches of a folder may take, unless told otherwise.
DISK_BUDGET = 4 * 1024**3

#: A file's checkpoints weigh no more than its live layers, or than this part of the budget of all files.
_CHECKPOINTS = 32

#: A file that was begun so long ago is not being written any more.
_WRITING_SECONDS = 3600.0

_FORMAT = "2"
_MAGIC = b"chatapp-sha256:"
_DIGEST = 32


class _Rung(msgspec.Struct, frozen=True):
    """A saved checkpoint: how many tokens it has read, and which of its layers are in the file."""

    kind: Kind
    length: int
    present: tuple[int, ...]


class _Contents(msgspec.Struct, frozen=True):
    """What a file holds and what it was made from."""

    format: str
    fingerprint: str
    mlx_lm: str
    max_kv_size: int
    kv_bits: int | None
    keep: int
    system_end: int
    tokens: tuple[int, ...]
    rungs: tuple[_Rung, ...]
    past: kv.Places
    stamp: str = ""


def save(cache: SessionCache, path: Path, fingerprint: str, budget: int = DISK_BUDGET, stamp: str = "") -> str | None:
    """Writes a conversation's cache, atomically and readable by the user only; the oldest others go if need be.

    Args:
        cache: The conversation's cache.
        path: The file; its name ends in `SUFFIX`.
        fingerprint: Identifies the model, its weights and adapter.
        budget: Bytes that all saved caches of the folder may take; 0 saves nothing.
        stamp: Marks files that belong together (`chatapp.engine.cache.parts`).

    Returns:
        None; or, when nothing was saved, the reason as a sentence.
    """
    if not cache.tokens or budget <= 0:
        return None
    if not kv.savable(cache.layers):
        return "This model's cache is of a kind that cannot be saved."
    room = max(kv.size_in_bytes(cache.layers), budget // _CHECKPOINTS)
    rungs = cache.ladder.worth_saving(cache.tokens, room)
    pasts = kv.worth_saving(cache.layers)
    size = kv.size_in_bytes(cache.layers) + sum(part.nbytes for part in [*rungs, *itertools.chain(*pasts)])
    if size > budget:
        return f"The prompt cache was not saved: its {size} bytes are more than all saved caches may take ({budget})."
    places, past = kv.past_to_stock(pasts)
    contents = _Contents(
        format=_FORMAT,
        fingerprint=fingerprint,
        mlx_lm=mlx_lm.__version__,
        max_kv_size=cache.limits.max_kv_size,
        kv_bits=cache.limits.kv_bits,
        keep=cache.keep,
        system_end=cache.system_end,
        tokens=tuple(cache.tokens),
        rungs=tuple(_Rung(rung.kind, rung.length, _present(rung)) for rung in rungs),
        past=places,
        stamp=stamp,
    )
    saved = [layer for rung in rungs for layer in rung.saved.layers if layer is not None]
    try:
        _write(path, [*kv.to_stock([*cache.layers, *saved]), *past], contents)
        _make_room(path, budget)
    except (OSError, RuntimeError) as error:
        return f"The prompt cache could not be saved ({error}); the conversation will be read again."
    return None


def load(cache: SessionCache, path: Path, fingerprint: str) -> str | None:
    """Fills an empty cache from a file.

    Args:
        cache: A new cache of the conversation.
        path: As `save` wrote it; need not exist.
        fingerprint: Of the model that will read on.

    Returns:
        None when the cache was filled or there is no file; else why the file was ignored, as a sentence.
    """
    if not path.exists():
        return None
    try:
        if not _intact(path):
            return "The saved prompt cache is damaged and was ignored."
        saved, metadata = stock.load_prompt_cache(str(path), return_metadata=True)
        mx.eval(kv.arrays(saved))
        contents = msgspec.json.decode(metadata["chatapp"], type=_Contents)
        reason = _mismatch(contents, cache, fingerprint)
        if reason is not None:
            return f"The saved prompt cache was ignored: {reason}."
        _fill(cache, contents, saved)
        path.touch()
    except (OSError, RuntimeError, ValueError, KeyError, AttributeError, TypeError, msgspec.MsgspecError) as error:
        cache.forget()
        return f"The saved prompt cache could not be read and was ignored ({error})."
    return None


def stamp(path: Path) -> str:
    """The stamp of a saved cache; empty where there is none, or no readable file."""
    try:
        with path.open("rb") as file:
            header = msgspec.json.decode(file.read(int.from_bytes(file.read(8), "little")))
        # mlx-lm puts the place in its tree in front of a name.
        found = (text for name, text in header["__metadata__"].items() if name.rpartition(".")[2] == "chatapp")
        return msgspec.json.decode(next(found), type=_Contents).stamp
    except (
        OSError,
        ValueError,
        LookupError,
        StopIteration,
        AttributeError,
        TypeError,
        OverflowError,
        MemoryError,
        msgspec.MsgspecError,
    ):
        return ""


def _present(rung: Checkpoint) -> tuple[int, ...]:
    return tuple(at for at, layer in enumerate(rung.saved.layers) if layer is not None)


def _mismatch(contents: _Contents, cache: SessionCache, fingerprint: str) -> str | None:
    if contents.fingerprint != fingerprint:
        return "it is of another model"
    if (contents.format, contents.mlx_lm) != (_FORMAT, mlx_lm.__version__):
        return "it was made by another version"
    limits = cache.limits
    if (contents.max_kv_size, contents.kv_bits) != (limits.max_kv_size, limits.kv_bits):
        return "it was made with another max-kv-size or kv-bits"
    if contents.keep != limits.kept(contents.system_end):
        return "it was made with another keep"
    return None


def _fill(cache: SessionCache, contents: _Contents, saved: Sequence[Any]) -> None:
    """Puts what a file holds into a cache."""
    cache.keep = contents.keep
    template = cache.fresh()
    count = len(template)
    live = kv.from_stock(template, saved[:count])
    rest = iter(saved[count:])
    for rung in contents.rungs:
        part = kv.from_stock(
            [template[index] for index in rung.present], list(itertools.islice(rest, len(rung.present)))
        )
        found = dict(zip(rung.present, part, strict=True))
        state = Saved.of([found.get(index) for index in range(count)], rung.length)
        cache.ladder.add(rung.kind, contents.tokens[: rung.length], state)
    kv.past_from_stock(live, contents.past, list(rest))
    cache.loaded(live, contents.tokens, contents.system_end)


def _write(path: Path, layers: Sequence[Any], contents: _Contents) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        metadata = {"chatapp": msgspec.json.encode(contents).decode()}
        stock.save_prompt_cache(str(temporary), list(layers), metadata)
        with temporary.open("r+b") as file:
            digest = _digest(file, temporary.stat().st_size)
            file.write(_MAGIC + digest)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _intact(path: Path) -> bool:
    with path.open("rb") as file:
        size = path.stat().st_size - len(_MAGIC) - _DIGEST
        return size > 0 and _digest(file, size) == file.read()[len(_MAGIC) :]


def _digest(file: Any, size: int) -> bytes:
    """SHA-256 of the first ``size`` bytes; the file is left behind them."""
    sha = hashlib.sha256()
    while size > 0 and (block := file.read(min(size, 1 << 20))):
        sha.update(block)
        size -= len(block)
    return sha.digest()


def _make_room(path: Path, budget: int) -> None:
    """Removes the oldest saved caches of a folder until the rest fits, and what killed processes left half written.

    Args:
        path: The one just written; it stays.
        budget: Bytes of all.
    """
    total = path.stat().st_size
    for age, size, file in sorted((time.time() - stat.st_mtime, stat.st_size, file) for stat, file in _others(path)):
        half_written = file.name.startswith(".")
        if half_written and age < _WRITING_SECONDS:
            continue
        total += size
        if half_written or total > budget:
            total -= size
            file.unlink(missing_ok=True)


def _others(path: Path) -> Iterator[tuple[os.stat_result, Path]]:
    """The other files of the folder that `save` made; another process may be removing some."""
    for file in path.parent.iterdir():
        if file.name.endswith(SUFFIX) and file != path:
            with contextlib.suppress(FileNotFoundError):
                yield file.stat(), file
