"""What is here of each known model: whether it can be loaded at once, where, how large; and removing it.

Looks at the disk only, never at the network.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

import msgspec

from chatapp.errors import ChatappError, UsageError
from chatapp.models import fit, hub, pypi, transfer
from chatapp.models.conversions import conversions_of
from chatapp.models.registry import ModelSpec, Registry
from chatapp.models.sources import Source

#: ``ready`` can be loaded without network; ``partial`` has a part of its files here; ``absent`` has none.
State = Literal["ready", "partial", "absent"]


class Entry(msgspec.Struct, frozen=True):
    """A model and what is here of it.

    Attributes:
        spec: What the registry says of it.
        folder: The mlx-lm folder of a ``ready`` one.
        paths: Everything that `remove` would delete; empty for a person's own folder.
        bytes: Size of ``paths``, or of a person's own folder.
        known: It is in the registry (the others were found in the Hub's cache).
    """

    spec: ModelSpec
    state: State
    folder: Path | None = None
    paths: tuple[Path, ...] = ()
    bytes: int = 0
    known: bool = True

    def fits(self, available: int) -> bool | None:
        """Whether the weights fit into so many bytes of memory; None where their size is unknown."""
        weights = self.spec.memory_bytes or (self.bytes if self.state == "ready" else self.spec.download_bytes)
        return weights + fit.OVERHEAD <= available if weights else None


def look(spec: ModelSpec, *, known: bool = True) -> Entry:
    """What is here of one model."""
    place = spec.place
    if place.kind == "path":
        folder = Path(place.location)
        ready = (folder / "config.json").is_file()
        return Entry(spec, "ready" if ready else "absent", folder if ready else None, (), _size((folder,)), known)
    if place.kind == "hf":
        return _look_hub(spec, place, known)
    gguf = Path(place.location) if place.kind == "gguf" else pypi.gguf_path(spec)
    made = conversions_of(spec.sha256, source=str(gguf))
    parts = list(made)
    if place.kind == "pypi" and gguf.parent.exists():
        parts.append(gguf.parent)
    paths = tuple(parts)
    state: State = "ready" if made else "partial" if paths else "absent"
    return Entry(spec, state, made[0] if made else None, paths, _size(paths), known)


def look_at_all(registry: Registry) -> list[Entry]:
    """All models of the registry, then those in the Hub's cache that are complete or that chatapp began to download."""
    entries = [look(spec) for spec in registry]
    repositories = {entry.spec.place.location for entry in entries if entry.spec.place.kind == "hf"}
    for place in hub.cached_repositories():
        if place.location not in repositories:
            spec = ModelSpec(name=place.location, title=place.location.partition("/")[2], source=str(place))
            entry = look(spec, known=False)
            if entry.state == "ready" or transfer.interrupted(hub.storage(place) / "blobs"):
                entries.append(entry)
    return entries


def remove(entry: Entry) -> int:
    """Deletes what was fetched and made for a model; returns the bytes that were freed.

    Raises:
        UsageError: It is a person's own folder.
        ChatappError: Nothing is here, or something cannot be deleted.
    """
    name = entry.spec.name
    if entry.spec.place.kind == "path":
        raise UsageError(f"{name} is a folder of your own, {entry.spec.place.location}: delete it yourself.")
    if not entry.paths:
        raise ChatappError(f"Nothing of {name} is here.", "model")
    for path in entry.paths:
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise ChatappError(f"{error.filename or path} cannot be deleted ({error.strerror}).", "space") from None
    return entry.bytes


def _look_hub(spec: ModelSpec, place: Source, known: bool) -> Entry:
    storage = hub.storage(place)
    if not storage.exists():
        return Entry(spec, "absent", known=known)
    folder = hub.cached_snapshot(place)
    return Entry(spec, "ready" if folder else "partial", folder, (storage,), _size((storage,)), known)


def _size(paths: tuple[Path, ...]) -> int:
    files = (file for path in paths if path.is_dir() for file in path.rglob("*"))
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())
