"""A hostfile of mlx.launch, and whether its hosts can run chatapp: said in a sentence before much time has passed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import shlex
import socket
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import psutil

from chatapp.errors import UsageError
from chatapp.text import visible

#: mlx.launch starts this one without ssh.
HERE = "127.0.0.1"

_BACKENDS = ("", "ring", "mpi", "nccl", "jaccl", "jaccl-ring")
_VARIABLE = re.compile(r"\w+=.*", re.DOTALL)

#: What has to be alike on all hosts.
_PACKAGES = ("chatapp", "mlx", "mlx-lm")
_ASK = (
    "import chatapp.engine.keeper; from importlib.metadata import version; "
    f"print('versions', *map(version, {_PACKAGES!r}))"
)
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 30.0
_SSH_FAILED = 255
_NOT_FOUND = (126, 127)


class _Host(msgspec.Struct):
    ssh: str
    ips: list[str] = []
    rdma: list[Any] = []


class _Hostfile(msgspec.Struct):
    hosts: list[_Host]
    backend: str = ""
    envs: list[str] = []


def read_hosts(path: Path) -> tuple[str, ...]:
    """The names of the hosts in a hostfile, by rank.

    Raises:
        UsageError: mlx.launch could not use it, or it does not begin with this machine.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    try:
        content = msgspec.json.decode(data, type=_Hostfile | list[_Host])
    except msgspec.ValidationError as error:
        raise _unusable(path, str(error)) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not JSON ({error}): make it with `mlx.distributed_config`.") from error
    file = content if isinstance(content, _Hostfile) else _Hostfile(content)
    if problem := _problem(file):
        raise _unusable(path, problem)
    names = tuple(host.ssh for host in file.hosts)
    if not _is_this_machine(names[0]):
        raise UsageError(f"{path} begins with {names[0]}: put this machine first, because chatapp runs rank 0 here.")
    if len(names) == 1:
        raise UsageError(f"{path} names one host only: add the others, or leave out --hosts.")
    return names


async def unreachable(names: Sequence[str]) -> str:
    """Asks each host by ssh, as mlx.launch is about to do, whether chatapp is there.

    mlx.launch waits as long as ssh does, and keeps what ssh says to itself.

    Returns:
        Why the first of them that cannot take part does not, as a sentence; empty if all can.
    """
    others = [name for name in dict.fromkeys(names) if name != HERE]
    answers = await asyncio.gather(*(_ask(name) for name in others))
    return next(filter(None, answers), "")


async def _ask(name: str) -> str:
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}")
    try:
        process = await asyncio.create_subprocess_exec(
            *("ssh", *options, name, shlex.join([sys.executable, "-c", _ASK])),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"ssh cannot be started ({error.strerror or error}): install it, for the ranks on {name}."
    try:
        out, err = await asyncio.wait_for(process.communicate(), _ANSWER_SECONDS)
    except TimeoutError:
        return f"{name} does not answer by ssh within {_ANSWER_SECONDS:.0f} seconds: try `ssh {name} true`."
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    return _complaint(name, process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _complaint(name: str, code: int | None, out: str, err: str) -> str:
    words = next(
        (visible(line.strip()[:300]) for line in reversed(err.splitlines()) if line.strip()), "no reason given"
    )
    if code == _SSH_FAILED:
        return f"{name} cannot be reached by ssh ({words}): see that `ssh {name} true` works without a password."
    if code in _NOT_FOUND:
        return f"{name} has no {sys.executable}: install chatapp there at the same path as here."
    if code != 0:
        return f"chatapp cannot be started on {name} ({words}): install it there at the same path as here."
    theirs = next((line.split()[1:] for line in out.splitlines() if line.startswith("versions ")), [])
    for package, version in zip(_PACKAGES, theirs, strict=False):
        if version != (own := metadata.version(package)):
            return f"{name} has {package} {version}, this machine {own}: install the same version on both."
    return ""


def _unusable(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path} is not a hostfile that mlx.launch can use: {problem}; make it with `mlx.distributed_config`."
    )


def _problem(file: _Hostfile) -> str:
    """What mlx.launch or MLX would stumble over; empty if nothing."""
    hosts = file.hosts
    if not hosts:
        return "it names no hosts"
    if file.backend not in _BACKENDS:
        return f"it asks for the backend “{file.backend}”, and there are {', '.join(_BACKENDS[1:])}"
    if wrong := next((text for text in file.envs if not _VARIABLE.fullmatch(text)), None):
        return f"“{wrong}” in its envs is not of the form NAME=value"
    for host in hosts:
        if not host.ssh:
            return "a host has no name"
        if wrong := next((ip for ip in host.ips if not _is_address(ip)), None):
            return f"“{wrong}” of {host.ssh} is no address"
        if not host.ips and file.backend == "ring":
            return f"{host.ssh} has no “ips”, which the ring needs"
        if file.backend.startswith("jaccl") and len(host.rdma) != len(hosts):
            return f"{host.ssh} has {len(host.rdma)} entries in “rdma”, and there are {len(hosts)} hosts"
    if not hosts[0].ips and file.backend in ("nccl", "jaccl", "jaccl-ring"):
        return f"{hosts[0].ssh} has no “ips”, by which the others find it"
    return ""


def _is_address(text: str) -> bool:
    """An IP address; names are let through, which every host resolves for itself."""
    if not re.fullmatch(r"[\d.]+", text):
        return bool(text)
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_this_machine(name: str) -> bool:
    own = socket.gethostname()
    names = {"localhost", own, own.split(".")[0], f"{own.split('.')[0]}.local"}
    addresses = {address.address for found in psutil.net_if_addrs().values() for address in found}
    return name.rpartition("@")[2] in names | addresses
