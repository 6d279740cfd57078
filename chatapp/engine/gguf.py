"""How chatapp drives the package gguf2mlx, and what it mends of its results.

Everything that relies on the inside of gguf2mlx is here: which names of its module are replaced while it runs, that it
prints its reasons after "❌", and what its tokenizers and configurations leave undone. It needs NumPy, not MLX.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from chatapp.errors import ChatappError, Interrupted
from chatapp.models.progress import Report, Step

#: Pre-tokenizers that gguf2mlx does not know, named as llama.cpp names them: digits one by one, then GPT-2's splitting.
_DIGITS_THEN_GPT2 = ("smollm", "starcoder", "refact", "command-r")

#: Architectures with and without a picture encoder, and what the encoder's tensors are called.
_PICTURES_OPTIONAL = ("gemma3",)
_PICTURE_TENSORS = ("v.", "mm.")

_QUERY_OR_KEY_NORM = re.compile(r"blk\.\d+\.attn_[qk]_norm\.weight")

_ODD_TOKENIZER = (
    "This GGUF names a way of splitting words that is not known here, so that rare texts may be tokenized oddly."
)


class GgufFile:
    """An opened GGUF file: its table is read once, which takes seconds for a large vocabulary."""

    def __init__(self, path: Path) -> None:
        """Reads the table.

        Raises:
            ChatappError: It cannot be read or is no GGUF file.
        """
        from gguf import GGUFReader

        self.path = path
        try:
            self._reader = GGUFReader(path)
        except OSError as error:
            raise ChatappError(f"{path} cannot be read: {error.strerror}.", "model") from None
        except (ValueError, IndexError, KeyError) as error:
            raise ChatappError(f"{path} is not a usable GGUF file ({error}): fetch it again.", "model") from None

    @property
    def elements(self) -> int:
        """Number of weights."""
        return sum(int(tensor.n_elements) for tensor in self._reader.tensors)

    def config(self) -> dict[str, Any]:
        """What config.json will hold.

        Raises:
            ChatappError: The architecture is unknown.
        """
        from gguf2mlx.gguf2mlx import build_config, detect_architecture

        try:
            return _mended(build_config(self._reader, detect_architecture(self._reader), strict=True))
        except (ValueError, KeyError) as error:
            raise self._refused(str(error)) from None

    def convert(self, target: Path, weight_type: str, report: Report) -> str:
        """Writes an mlx-lm folder.

        Args:
            target: It must not exist.
            weight_type: "float16" or "float32".
            report: Progress in tensors; raises Interrupted to stop.

        Returns:
            What the person should know of the result, as a sentence; usually empty.

        Raises:
            Interrupted: ``report`` raised it.
            ChatappError: The architecture is unknown or the file is damaged.
        """
        said = io.StringIO()
        bar = _progress_bar(report, self.path.name)
        with (
            _replaced(tqdm=bar, GGUFReader=lambda *_: self._reader, _restore_architecture_tensor=_restore_norms()),
            contextlib.redirect_stdout(said),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", UserWarning)
            done = self._converter()(str(self.path), str(target), dtype=weight_type)
        if bar.interrupted is not None:
            raise bar.interrupted  # gguf2mlx swallows what its tensor loop raises
        if not done:
            raise self._failure(said.getvalue())
        _mend_config(target)
        odd = any("tokenizer" in str(warning.message) for warning in caught)
        return "" if _mend_tokenizer(target) or not odd else _ODD_TOKENIZER

    def _failure(self, said: str) -> ChatappError:
        reasons = [line.partition("❌")[2].strip() for line in said.splitlines() if "❌" in line]
        reason = reasons[0] if reasons else "no reason given"
        if os.strerror(errno.ENOSPC) in reason:
            return ChatappError("The disk became full during the conversion: make room and try again.", "space")
        return self._refused(reason)

    def _refused(self, reason: str) -> ChatappError:
        return ChatappError(
            f"{self.path.name} cannot be converted ({reason}): try an MLX or safetensors version.", "model"
        )

    def _converter(self) -> Callable[..., bool]:
        """gguf2mlx's conversion; its public one takes every Gemma 3 for a model with a picture encoder."""
        from gguf2mlx import convert
        from gguf2mlx import gguf2mlx as module

        pictures = any(tensor.name.startswith(_PICTURE_TENSORS) for tensor in self._reader.tensors)
        if module.detect_architecture(self._reader) in _PICTURES_OPTIONAL and not pictures:
            return module._convert  # pyright: ignore[reportPrivateUsage]
        return functools.partial(convert, model_type="llm")


@contextlib.contextmanager
def _replaced(**attributes: object) -> Generator[None]:
    """Gives names of gguf2mlx's module other values for a while."""
    from gguf2mlx import gguf2mlx as module

    originals = {name: getattr(module, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(module, name, value)
        yield
    finally:
        for name, value in originals.items():
            setattr(module, name, value)


def _progress_bar(report: Report, file: str) -> Any:
    """A class to stand in for ``tqdm``; ``interrupted`` is what ``report`` raised."""

    class Bar(contextlib.AbstractContextManager["Bar"]):
        interrupted: Interrupted | None = None

        def __init__(self, *_: object, total: int = 0, **__: object) -> None:
            self.done, self.total = 0, total

        def update(self, count: int = 1) -> None:
            self.done += count
            try:
                report(Step("convert", self.done, self.total, "steps", file))
            except Interrupted as error:
                Bar.interrupted = error
                raise

        def __exit__(self, *_: object) -> None:
            return None

    return Bar


def _restore_norms() -> Callable[[str, Any, str], Any]:
    """Takes the 1 that GGUF adds to Gemma's norms from those of Gemma 3's queries and keys too.

    gguf2mlx does so for the other norms only; with 1 too much, every attention score of the model is wrong.
    """
    from gguf2mlx import gguf2mlx as module

    original: Callable[[str, Any, str], Any] = module._restore_architecture_tensor  # pyright: ignore[reportPrivateUsage]

    def restore(name: str, array: Any, arch: str) -> Any:
        restored = original(name, array, arch)
        if arch == "gemma3" and restored is array and _QUERY_OR_KEY_NORM.fullmatch(name):
            return array - array.dtype.type(1)
        return restored

    return restore


def _mend_config(folder: Path) -> None:
    """Makes the configuration one for mlx-lm's own model of the family, without the converter's code."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    if name := config.get("model_file"):  # Gemma 1: code that would have to be run from the folder
        (folder / name).unlink(missing_ok=True)
    path.write_text(json.dumps(_mended(config), indent=2), "utf-8")


def _mended(config: dict[str, Any]) -> dict[str, Any]:
    mended = {key: value for key, value in config.items() if key != "model_file"}
    if mended["model_type"] in _PICTURES_OPTIONAL and "text_config" not in mended:
        mended["model_type"] += "_text"
    return mended


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
