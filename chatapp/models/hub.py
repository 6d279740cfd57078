"""Fetches the files that a model needs from the Hugging Face Hub, into the cache that all its clients share.

The official client resolves, authenticates and retries, but forgets a partial file when its process ends. So each file
is read into a partial file that a later run takes up again, its hash is checked, and it takes its place among the
cache's blobs; the client then links the snapshot and finds nothing left to download.
"""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chatapp.errors import ChatappError, UsageError
from chatapp.models import parallel, transfer
from chatapp.models.families import check_config
from chatapp.models.folder import check_files, needed_weights, read_config
from chatapp.models.progress import Report, Step
from chatapp.models.sources import Source
from chatapp.models.space import require_space

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

#: What an mlx-lm folder consists of. No code: nothing from a repository is run.
PATTERNS = ("*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")

_WEIGHTS = ".safetensors"

_API_TIMEOUT = 20.0

#: What is not more than this is downloaded without asking for space, in bytes.
_SMALL = 1_000_000


class RemoteFile(msgspec.Struct, frozen=True):
    """A file of a repository at one commit.

    Attributes:
        size: In bytes.
        blob: Its name among the cache's blobs: a sha256, or for small files a git blob id (sha1).
    """

    name: str
    size: int
    blob: str


def cached_snapshot(place: Source, rank: int = 0, ranks: int = 1) -> Path | None:
    """The folder of a repository that was fetched before and is complete (for a rank), found without network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                place.location,
                revision=place.revision or None,
                allow_patterns=list(PATTERNS),
                ignore_patterns=["*/*"],  # subfolders hold other formats
                local_files_only=True,
            )
        )
        config = read_config(folder, place.location)
        check_files(folder, place.location, parallel.own_layers(config, rank, ranks))
    except (LocalEntryNotFoundError, HFValidationError, ChatappError, OSError):
        return None
    return folder


def storage(place: Source) -> Path:
    """The folder of a repository in the shared cache, with all its revisions; it need not exist."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{place.location.replace('/', '--')}"


def cached_repositories() -> list[Source]:
    """All model repositories of which something is in the shared cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    names = (path.name.split("--") for path in sorted(Path(HF_HUB_CACHE).glob("models--*--*")))
    return [Source("hf", f"{owner}/{'--'.join(repo)}") for _, owner, *repo in names]


def fetch_snapshot(place: Source, report: Report, *, refresh: bool = False, rank: int = 0, ranks: int = 1) -> Path:
    """Downloads what is missing of a repository's revision, for a rank of a pipeline the files of its layers.

    Args:
        place: A source of kind ``hf``.
        report: Progress per file, and overall (``file`` empty); raises Interrupted to stop.
        refresh: Ask for newer files, even if some are cached. A revision that is a commit never has any.
        rank: This process among those that are to share the model.
        ranks: How many they are.

    Returns:
        The snapshot's folder in the shared cache; its name is the commit.

    Raises:
        Interrupted: ``report`` raised it. What was downloaded is kept and taken up next time.
        ChatappError: There is no such repository, it is gated, cannot be run, or the network or the disk failed.
    """
    cached = cached_snapshot(place, rank, ranks)
    if cached is not None and not refresh:
        return cached
    report(Step("resolve", 0, 0, file=place.location))
    try:
        return _fetch(place, report, rank, ranks)
    except ChatappError:
        raise
    except transfer.errors() as error:
        problem = _explain(place, error)
        if cached is not None and problem.kind == "network":
            return cached  # no newer one can be had, so this one serves
        raise problem from error


def _fetch(place: Source, report: Report, rank: int, ranks: int) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    info = HfApi().model_info(
        place.location, revision=place.revision or None, files_metadata=True, timeout=_API_TIMEOUT
    )
    commit = info.sha or place.revision
    files = _needed(info)
    _refuse_unusable(place, info, files)

    def fetch(wanted: list[RemoteFile], revision: str | None) -> Path:
        _download(place, commit, wanted, report)
        names = [file.name for file in wanted]
        return Path(snapshot_download(place.location, revision=revision, allow_patterns=names))

    folder = fetch([file for file in files if file.name == "config.json"], commit)
    config = read_config(folder, place.location)
    check_config(config, place.location)
    if ranks > 1:
        parallel.choose(config, place.location, ranks)
    own = parallel.own_layers(config, rank, ranks)
    if own is not None:
        fetch([file for file in files if not file.name.endswith(_WEIGHTS)], commit)
        needed = needed_weights(folder, own)
        files = [file for file in files if not needed or not file.name.endswith(_WEIGHTS) or file.name in needed]
    return fetch(files, place.revision or None)


def _needed(info: ModelInfo) -> list[RemoteFile]:
    """The files to download, small ones first so that what is wrong shows early."""
    files = [
        RemoteFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id or "")
        for file in info.siblings or []
        if "/" not in file.rfilename and any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in PATTERNS)
    ]
    return sorted(files, key=lambda file: file.size)


def _refuse_unusable(place: Source, info: ModelInfo, files: list[RemoteFile]) -> None:
    names = {file.name for file in files}
    if "config.json" not in names:
        raise ChatappError(f"{place.location} has no config.json: it is not a language model in MLX's form.", "model")
    if any(name.endswith(".safetensors") for name in names):
        return
    others = [file.rfilename for file in info.siblings or []]
    hint = "choose a repository with safetensors, for example of mlx-community."
    if any(name.endswith(".gguf") for name in others):
        hint = "it holds GGUF files: download one and give its path to -m, or " + hint
    raise ChatappError(f"{place.location} has no model*.safetensors: {hint}", "model")


def _download(place: Source, commit: str, files: list[RemoteFile], report: Report) -> None:
    blobs = storage(place) / "blobs"
    missing = [file for file in files if file.blob and not (blobs / file.blob).exists()]
    if not missing:
        return
    if sum(file.size for file in missing) > _SMALL:  # a configuration alone shows first whether it is worth making room
        require_space(blobs, sum(file.size for file in missing) - transfer.partial_bytes(blobs, missing))
    transfer.download(place.location, commit, missing, blobs, report)


def _explain(place: Source, error: Exception) -> ChatappError:
    from huggingface_hub import errors
    from huggingface_hub.constants import ENDPOINT

    repo = place.location
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return ChatappError(
            f"{repo} is gated: accept its terms at {ENDPOINT}/{repo}, log in with `hf auth login`, and try again.",
            "network" if status is None else "model",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ChatappError(f"{repo} has no revision “{place.revision}”: correct what stands after @.", "model")
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return ChatappError(
            f"There is no public repository {repo}: correct its name, or log in with `hf auth login` if it is private.",
            "model",
        )
    if isinstance(error, errors.HFValidationError):
        return UsageError(f"“{repo}” cannot be a repository's name: write owner/repo.")
    if isinstance(error, errors.OfflineModeIsEnabled):
        return ChatappError(
            f"{repo} is not complete on this machine and HF_HUB_OFFLINE forbids downloads: unset it and try again.",
            "network",
        )
    if status == 429:
        return ChatappError("The Hub answers too many requests from here: wait a few minutes and try again.", "network")
    if status is not None and status >= 500:
        return ChatappError(f"The Hub has trouble (HTTP {status}): try again later.", "network")
    if isinstance(error, OSError) and error.errno is not None and status is None and error.filename:
        return ChatappError(f"{error.filename} cannot be written ({error.strerror}): see to its folder.", "space")
    return ChatappError(
        f"{repo} could not be downloaded ({transfer.reason(error)}): check the network or proxy and try again; "
        "what is here is kept.",
        "network",
    )
