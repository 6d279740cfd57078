"""Turns a GGUF file into an mlx-lm folder, once for each content, with the package gguf2mlx.

Everything that relies on gguf2mlx is here: that its module's ``tqdm`` counts the tensors, that it prints its reasons
after "❌", and what its tokenizer conversion leaves undone. It needs NumPy, not MLX.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import platform
import re
import warnings
from collections.abc import Callable, Generator
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from chatapp.errors import ChatappError, Interrupted
from chatapp.models import store
from chatapp.models.conversions import Conversion, write_conversion
from chatapp.models.progress import Report, Step
from chatapp.models.space import require_space

WeightType = Literal["float16", "float32"]

#: Raised whenever conversions come out differently, so that old ones are made anew.
RECIPE = 1

#: Pre-tokenizers that gguf2mlx does not know, named as llama.cpp names them: digits one by one, then GPT-2's splitting.
_DIGITS_THEN_GPT2 = ("smollm", "starcoder", "refact", "command-r")

#: Architectures with and without a picture encoder, and what the encoder's tensors are called.
_PICTURES_OPTIONAL = ("gemma3",)
_PICTURE_TENSORS = ("v.", "mm.")
_QUERY_OR_KEY_NORM = re.compile(r"blk\.\d+\.attn_[qk]_norm\.weight")


def best_weight_type() -> WeightType:
    """What this machine computes fastest: 16 bits on a GPU, float32 where a BLAS library does the work."""
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "float16"
    return "float16" if _has_cuda() else "float32"


def convert_gguf(gguf: Path, digest: str, report: Report, weight_type: WeightType | None = None) -> Path:
    """Converts a file, unless that was done before.

    Args:
        gguf: The file.
        digest: Its sha256.
        report: Progress in tensors; may raise Interrupted.
        weight_type: Of the result; by default `best_weight_type`.

    Returns:
        The mlx-lm folder.

    Raises:
        Interrupted: ``report`` raised it.
        ChatappError: It is no GGUF file, its architecture is unknown, or the disk is full.
    """
    kind = weight_type or best_weight_type()
    target = converted_path(digest, kind)
    with store.staging(target, report) as folder:
        if folder is None:
            return target
        require_space(folder, _estimate(gguf, kind))
        note = _run(gguf, folder / "model", kind, report)
        write_conversion(folder / "model", Conversion(source=str(gguf), sha256=digest, note=note))
        _make_private(folder / "model")
        (folder / "model").replace(target)
    return target


def converted_path(digest: str, kind: WeightType) -> Path:
    """Where the conversion of a content is kept, made or not."""
    return store.converted_dir() / f"{digest[:32]}-{kind}-{RECIPE}"


def _has_cuda() -> bool:
    names = ("mlx-cuda-12", "mlx-cuda-13", "mlx-cuda")
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version(name)
            return True
    return False


def _estimate(gguf: Path, kind: WeightType) -> int:
    """Bytes that the result and the conversion's spool file take together."""
    reader = _open(gguf)
    elements = sum(int(tensor.n_elements) for tensor in reader.tensors)
    return 2 * elements * (2 if kind == "float16" else 4)


def _open(gguf: Path) -> Any:
    from gguf import GGUFReader

    try:
        return GGUFReader(gguf)
    except OSError as error:
        raise ChatappError(f"{gguf} cannot be read: {error.strerror}.", "model") from None
    except (ValueError, IndexError, KeyError) as error:
        raise ChatappError(f"{gguf} is not a usable GGUF file ({error}): fetch it again.", "model") from None


def _run(gguf: Path, target: Path, kind: WeightType, report: Report) -> str:
    """Runs the conversion and returns its note."""
    said = io.StringIO()
    with (
        _counted(report, gguf.name) as watch,
        _all_norms_restored(),
        contextlib.redirect_stdout(said),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UserWarning)
        done = _converter(gguf)(str(gguf), str(target), dtype=kind)
    if watch.interrupted is not None:
        raise watch.interrupted  # gguf2mlx catches what its tensor loop raises
    if not done:
        reasons = [line.partition("❌")[2].strip() for line in said.getvalue().splitlines() if "❌" in line]
        reason = reasons[0] if reasons else "no reason given"
        raise ChatappError(f"{gguf.name} cannot be converted ({reason}): try an MLX or safetensors version.", "model")
    _mend_config(target)
    if _mend_tokenizer(target) or not any("tokenizer" in str(warning.message) for warning in caught):
        return ""
    return "This GGUF names a way of splitting words that is not known here, so that rare texts may be tokenized oddly."


def _converter(gguf: Path) -> Callable[..., bool]:
    """gguf2mlx's conversion; its public one takes every Gemma 3 for a model with a picture encoder."""
    from gguf2mlx import convert
    from gguf2mlx import gguf2mlx as module

    reader = _open(gguf)
    pictures = any(tensor.name.startswith(_PICTURE_TENSORS) for tensor in reader.tensors)
    if module.detect_architecture(reader) in _PICTURES_OPTIONAL and not pictures:
        return module._convert  # pyright: ignore[reportPrivateUsage]
    return functools.partial(convert, model_type="llm")


class _Watch:
    """What became of a conversion's progress reports."""

    interrupted: Interrupted | None = None


@contextlib.contextmanager
def _counted(report: Report, file: str) -> Generator[_Watch]:
    """Puts our progress in the place of gguf2mlx's progress bar."""
    from gguf2mlx import gguf2mlx as module

    watch = _Watch()

    class Bar(contextlib.AbstractContextManager["Bar"]):
        def __init__(self, *_: object, total: int = 0, **__: object) -> None:
            self.done, self.total = 0, total

        def update(self, count: int = 1) -> None:
            self.done += count
            try:
                report(Step("convert", self.done, self.total, "steps", file))
            except Interrupted as error:
                watch.interrupted = error
                raise

        def __exit__(self, *_: object) -> None:
            return None

    original = module.tqdm
    module.tqdm = Bar  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield watch
    finally:
        module.tqdm = original


@contextlib.contextmanager
def _all_norms_restored() -> Generator[None]:
    """Takes the 1 that GGUF adds to Gemma's norms from those of Gemma 3's queries and keys too.

    gguf2mlx does so for the other norms only; with 1 too much, every attention score of the model is wrong.
    """
    from gguf2mlx import gguf2mlx as module

    original = module._restore_architecture_tensor  # pyright: ignore[reportPrivateUsage]

    def restore(name: str, array: Any, arch: str) -> Any:
        restored = original(name, array, arch)
        if arch == "gemma3" and restored is array and _QUERY_OR_KEY_NORM.fullmatch(name):
            return array - array.dtype.type(1)
        return restored

    module._restore_architecture_tensor = restore  # pyright: ignore[reportPrivateUsage]
    try:
        yield
    finally:
        module._restore_architecture_tensor = original  # pyright: ignore[reportPrivateUsage]


def _mend_config(folder: Path) -> None:
    """Makes the configuration one for mlx-lm's own model of the family, without the converter's code."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    if name := config.pop("model_file", None):  # Gemma 1: code that would have to be run from the folder
        (folder / name).unlink(missing_ok=True)
    if config["model_type"] in _PICTURES_OPTIONAL and "text_config" not in config:
        config["model_type"] += "_text"
    path.write_text(json.dumps(config, indent=2), "utf-8")


def _mend_tokenizer(folder: Path) -> bool:
    """Gives the tokenizer the splitting that its model was trained with, where gguf2mlx falls back to another one.

    Returns:
        Whether there was something to mend.
    """
    kind = json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get("gguf_tokenizer_pre")
    if kind not in _DIGITS_THEN_GPT2:
        return False
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    tokenizer["normalizer"] = None
    tokenizer["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Digits", "individual_digits": True},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        ],
    }
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    return True


def _make_private(folder: Path) -> None:
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(0o600)
