"""Which matrix library MLX really calls."""

import importlib.metadata
import os
import platform
import subprocess
import sys

import pytest

from chatapp.engine import blas

PROGRAM = """
from chatapp.engine.blas import use_fast_blas
print("library", use_fast_blas())
import mlx.core as mx
import numpy as np
a, b = np.random.rand(64, 96).astype(np.float32), np.random.rand(96, 32).astype(np.float32)
print("right", bool(np.allclose(np.array(mx.array(a) @ mx.array(b)), a @ b, atol=1e-4)))
"""


def has_mkl():
    try:
        return platform.system() == "Linux" and bool(importlib.metadata.version("mkl"))
    except importlib.metadata.PackageNotFoundError:
        return False


def run(**environment):

    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return result.stdout


@pytest.mark.skipif(not has_mkl(), reason="MKL is used on x86-64 Linux only")
def test_mlx_multiplies_with_mkl():
    """MKL itself reports each call that it gets."""
    output = run(MKL_VERBOSE="1")
    assert "library mkl" in output
    assert "MKL_VERBOSE SGEMM(" in output
    assert "right True" in output


@pytest.mark.skipif(not has_mkl(), reason="MKL is used on x86-64 Linux only")
def test_an_environment_for_64_bit_integers_does_not_matter():
    assert "right True" in run(MKL_INTERFACE_LAYER="ILP64")


@pytest.mark.skipif(platform.system() != "Linux", reason="only Linux has a choice")
def test_the_stock_library_serves_where_nothing_else_is():
    output = run(CHATAPP_BLAS="stock", MKL_VERBOSE="1")
    assert "library stock" in output
    assert "MKL_VERBOSE" not in output
    assert "right True" in output


@pytest.mark.skipif(platform.system() != "Linux", reason="only Linux has a choice")
def test_missing_and_broken_libraries_are_passed_over(monkeypatch, tmp_path):
    broken = tmp_path / "libmkl_rt.so.2"
    broken.write_bytes(b"no library")
    monkeypatch.delitem(sys.modules, "mlx.core", raising=False)
    monkeypatch.setattr(blas, "_packaged_mkl", lambda: [str(broken)])
    monkeypatch.setattr(blas, "_MKL_NAMES", ("libmissing.so",))
    monkeypatch.setattr(blas, "_OPENBLAS_NAMES", (str(broken), "libc.so.6"))  # opens, but is no BLAS
    assert blas._choose() == "stock"


def test_after_mlx_nothing_is_changed(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlx.core", sys)
    assert blas._choose() in ("stock", "accelerate")
