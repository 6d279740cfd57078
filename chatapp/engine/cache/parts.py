"""A conversation's saved cache, one file for each rank: all of them, of one moment, or none."""

from __future__ import annotations

import glob
import secrets
import zlib
from pathlib import Path

from chatapp import paths
from chatapp.engine.cache import disk
from chatapp.engine.cache.session import SessionCache
from chatapp.engine.ranks import Ranks


def save(cache: SessionCache, path: Path, fingerprint: str, budget: int, ranks: Ranks) -> str | None:
    """As `disk.save`; where one rank cannot save its part, no rank keeps one."""
    if ranks.size == 1:
        return disk.save(cache, path, fingerprint, budget)
    own = _part(path, ranks)
    stamp = ranks.share(secrets.token_hex(8).encode()).decode()
    reason = disk.save(cache, own, fingerprint, budget, stamp)
    if ranks.least(reason is None):
        return None
    own.unlink(missing_ok=True)
    return reason or _ELSEWHERE.format("could not save its part of the prompt cache")


def load(cache: SessionCache, path: Path, fingerprint: str, ranks: Ranks) -> str | None:
    """As `disk.load`; parts that were not saved together, or that one rank cannot read, are ignored by all."""
    if ranks.size == 1:
        return disk.load(cache, path, fingerprint)
    own = _part(path, ranks)
    stamp = disk.stamp(own)
    if not ranks.alike([zlib.crc32(stamp.encode())]):
        return "The saved prompt cache was ignored: the ranks' parts are not of the same moment."
    reason = disk.load(cache, own, fingerprint) if stamp else None
    if ranks.least(reason is None):
        return None
    cache.forget()
    return reason or _ELSEWHERE.format("could not read its part of the saved prompt cache, which was ignored")


def remove(path: Path, ranks: Ranks) -> None:
    """Removes on this machine what `save` wrote, also the parts of other numbers of ranks."""
    folder = path.parent if ranks.size == 1 else _part(path, ranks).parent
    name = path.name.removesuffix(disk.SUFFIX)
    for file in folder.glob(f"{glob.escape(name)}.*"):
        file.unlink(missing_ok=True)


_ELSEWHERE = "Another rank {}; its log says why."


def _part(path: Path, ranks: Ranks) -> Path:
    """This rank's file, on this machine."""
    name = path.name.removesuffix(disk.SUFFIX)
    folder = path.parent if ranks.rank == 0 or path.parent.is_dir() else paths.prompt_cache(name).parent
    return folder / f"{name}.rank{ranks.rank}of{ranks.size}{disk.SUFFIX}"
