"""Which parts of the program may load which libraries, looked up in `sys.modules` of a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MLX = {"mlx", "mlx.core", "mlx_lm", "transformers", "chatapp.engine"}
SCREEN = {"textual", "chatapp.ui"}
HEAVY = {
    "mlx",
    "mlx.core",
    "mlx_lm",
    "transformers",
    "textual",
    "rich",
    "huggingface_hub",
    "numpy",
    "asyncio",
    "httpx2",
}


def loaded_by(*modules: str) -> set[str]:
    program = "".join(f"import {module}\n" for module in modules) + "import sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(result.stdout.split())


def modules_under(package: str) -> list[str]:
    """All modules of a package, but those that run something when they are imported."""
    folder = ROOT / "chatapp" / package
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted(folder.rglob("*.py")))
    return [".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__"]


@pytest.mark.parametrize("package", ["conversation", "models"])
def test_files_and_models_need_neither_mlx_nor_a_screen(package: str) -> None:
    assert loaded_by(*modules_under(package)) & (MLX | SCREEN) == set()


def test_the_client_and_the_settings_need_neither_mlx_nor_a_screen() -> None:
    assert loaded_by("chatapp.client", "chatapp.protocol", "chatapp.settings") & (MLX | SCREEN) == set()


def test_the_ui_never_loads_mlx() -> None:
    assert loaded_by(*modules_under("ui")) & MLX == set()


def test_the_engine_never_loads_a_screen() -> None:
    assert loaded_by(*modules_under("engine")) & SCREEN == set()


def test_the_command_line_loads_nothing_heavy() -> None:
    assert loaded_by("chatapp.cli") & HEAVY == set()


def test_the_list_of_models_needs_no_mlx() -> None:
    assert loaded_by("chatapp.commands.models") & MLX == set()
