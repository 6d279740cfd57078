"""Puts a fast matrix library under MLX on Linux CPUs: Intel MKL, else a system OpenBLAS, else what MLX brings.

MLX's Linux wheel calls ``cblas_sgemm`` of the reference BLAS that it ships. The dynamic linker takes a symbol from
the first library that offers it globally, so a library opened with RTLD_GLOBAL before `mlx.core` is imported takes
the reference one's place. macOS uses Accelerate or Metal and needs none of this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal

Blas = Literal["mkl", "openblas", "stock", "accelerate"]

#: Says which library to try alone, for comparisons: "mkl", "openblas" or "stock".
VARIABLE = "CHATAPP_BLAS"

_MKL_LP64 = 0  # MKL_INTERFACE_LP64: 32-bit integers, which is how MLX calls it
_MKL_NAMES = ("libmkl_rt.so.3", "libmkl_rt.so.2", "libmkl_rt.so")
_OPENBLAS_NAMES = ("libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0", "libopenblaso.so.0")

_loaded: Blas | None = None


def use_fast_blas() -> Blas:
    """Loads the fastest library there is, once, and says which it is.

    Call it before the first import of `mlx.core`; afterwards it could change nothing and reports ``stock``.
    A library that is missing or broken is passed over: this never raises.
    """
    global _loaded
    if _loaded is None:
        _loaded = _choose()
    return _loaded


def _choose() -> Blas:
    if platform.system() != "Linux":
        return "accelerate"
    if "mlx.core" in sys.modules:
        return "stock"
    wanted = os.environ.get(VARIABLE, "").lower()
    if wanted in ("", "mkl") and _load_mkl():
        return "mkl"
    if wanted in ("", "openblas") and _load_openblas():
        return "openblas"
    return "stock"


def _load_mkl() -> bool:
    for candidate in (*_packaged_mkl(), *_MKL_NAMES):
        library = _open(candidate)
        if library is None or not hasattr(library, "cblas_sgemm"):
            continue
        with contextlib.suppress(AttributeError):
            # An environment set up for 64-bit integers would make every call read past its arguments.
            library.MKL_Set_Interface_Layer(_MKL_LP64)
        return True
    return False


def _packaged_mkl() -> list[str]:
    """Where pip put the runtime of the package ``mkl``, if it is installed."""
    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        return []
    return [str(Path(str(file.locate()))) for file in files if file.name.startswith("libmkl_rt.so")]


def _load_openblas() -> bool:
    return any(_is_lp64(name) and _open(name) is not None for name in _OPENBLAS_NAMES)


def _is_lp64(name: str) -> bool:
    """Whether an OpenBLAS takes 32-bit integers, looked at without offering its symbols to anybody."""
    library = _open(name, ctypes.RTLD_LOCAL)
    if library is None or not hasattr(library, "cblas_sgemm"):
        return False  # builds with 64-bit integers often carry a suffix: cblas_sgemm64_
    try:
        configuration = library.openblas_get_config
    except AttributeError:
        return False
    configuration.restype = ctypes.c_char_p
    return b"USE64BITINT" not in (configuration() or b"")


def _open(name: str, mode: int = ctypes.RTLD_GLOBAL) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(name, mode=mode)
    except OSError:
        return None
