"""Turns a GGUF file into an mlx-lm folder, once for each content. It needs NumPy, not MLX."""

from __future__ import annotations

import contextlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Literal

from chatapp.engine.gguf import GgufFile
from chatapp.models import parallel, store
from chatapp.models.conversions import Conversion, write_conversion
from chatapp.models.progress import Report, Step
from chatapp.models.space import require_space

WeightType = Literal["float16", "float32"]

#: Raised whenever conversions come out differently, so that old ones are made anew.
RECIPE = 1


def best_weight_type() -> WeightType:
    """What this machine computes fastest: 16 bits on a GPU, float32 where a BLAS library does the work."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "float16"
    return "float16" if _has_cuda() else "float32"


def convert_gguf(
    gguf: Path, digest: str, report: Report, weight_type: WeightType | None = None, ranks: int = 1
) -> Path:
    """Converts a file, unless that was done before.

    Args:
        gguf: The file.
        digest: Its sha256.
        report: Progress in tensors; may raise Interrupted.
        weight_type: Of the result; by default `best_weight_type`.
        ranks: How many processes are to share the model.

    Returns:
        The mlx-lm folder.

    Raises:
        Interrupted: ``report`` raised it.
        UsageError: The ranks cannot share it; nothing is converted then.
        ChatappError: It is no GGUF file, its architecture is unknown, or the disk is full.
    """
    kind = weight_type or best_weight_type()
    target = converted_path(digest, kind)
    with store.staging(target, report) as folder:
        if folder is None:
            return target
        report(Step("convert", 0, 0, "steps", gguf.name))
        file = GgufFile(gguf)
        if ranks > 1:
            parallel.choose(file.config(), gguf.name, ranks)
        # The result, and the file that it is collected in before its table is known.
        require_space(folder, 2 * file.elements * (2 if kind == "float16" else 4))
        result = folder / "model"
        note = file.convert(result, kind, report)
        facts = gguf.stat()
        record = Conversion(str(gguf), digest, size=facts.st_size, mtime_ns=facts.st_mtime_ns, note=note)
        write_conversion(result, record)
        _make_private(result)
        result.replace(target)
    return target


def converted_path(digest: str, kind: WeightType) -> Path:
    """Where the conversion of a content is kept, made or not."""
    return store.converted_dir() / f"{digest[:32]}-{kind}-{RECIPE}"


def _has_cuda() -> bool:
    for name in ("mlx-cuda-12", "mlx-cuda-13", "mlx-cuda"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version(name)
            return True
    return False


def _make_private(folder: Path) -> None:
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(0o600)
