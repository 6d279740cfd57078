"""The client's side of an engine: starts the process, sends requests, hands out its events (asyncio).

    engine = await Engine.start()                        # returns once the process is spawned; importing goes on in it
    loaded = await engine.ask(Load(engine.next_request(), "smollm2-135m"))
    async for event in engine.request(Generate(engine.next_request(), ...)):
        ...                                              # ends after the request's last event
    engine.post(Cancel(engine.next_request(), target=n))  # no answer; the request it names ends as usual
    await engine.close()

A `Failed` event is never handed out: `request` and `ask` raise it as `RequestFailed`. An engine that ended raises
`EngineLost` from every request in flight and from every later one; start another one then.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

import msgspec

from chatapp import paths, protocol
from chatapp.errors import ChatappError
from chatapp.launch import Hosts, Leash, watch
from chatapp.protocol import (
    AnyEvent,
    AnyRequest,
    Cancel,
    Done,
    Ended,
    Failed,
    Fetched,
    Forecasted,
    Generate,
    Hello,
    Loaded,
    ScoreEnded,
    Shutdown,
)
from chatapp.text import visible

#: Longest socket path that every platform takes, in bytes (macOS has room for 104 with the closing zero).
_LONGEST_SOCKET_PATH = 103
_LAST_EVENTS = (Loaded, Fetched, Forecasted, Done, ScoreEnded, Ended)
_CLOSE_SECONDS = 3.0
_KEPT_LOGS = 10
_log_numbers = itertools.count(1)


class EngineLost(ChatappError):  # noqa: N818 - it is what happened
    """The engine ended without being asked to; what is saved is safe, and another engine can be started."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "engine")


class RequestFailed(ChatappError):  # noqa: N818 - it is what happened
    """The engine answered `Failed`: its sentence, its ``kind``, and whether the loaded model was ``kept``."""

    def __init__(self, message: str, kind: str, kept: bool = False) -> None:
        super().__init__(message, kind)
        self.kept = kept
        self.exit_code = {"usage": 2, "cancelled": 130}.get(kind, 1)


class EngineClient(Protocol):
    """What the UI and the commands need of an engine; tests bring a fake one."""

    @property
    def alive(self) -> bool:
        """False once the engine has ended or was closed."""
        ...

    async def hello(self) -> Hello:
        """Waits until the engine has finished its imports; `EngineLost` if it ends before that."""
        ...

    def next_request(self) -> int:
        """A fresh number for a request's ``request`` field."""
        ...

    def request(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        """Sends a request and yields its events; the last one ends the iteration.

        Last events are `Loaded`, `Fetched`, `Forecasted`, `Done`, `ScoreEnded`, and `Ended` (one for each candidate of
        a `Generate`). Leaving the loop early cancels the request.

        Raises:
            RequestFailed: The engine answered `Failed`.
            EngineLost: The engine ended.
        """
        ...

    async def ask(self, request: AnyRequest) -> AnyEvent:
        """Sends a request and returns its last event; raises as `request` does."""
        ...

    def post(self, request: AnyRequest) -> None:
        """Sends a request that has no answer (`Cancel`, `Shutdown`); does nothing on an engine that ended."""
        ...

    async def close(self) -> None:
        """Ends the engine and waits for it; safe to call twice."""
        ...


class Engine:
    """An engine: one process on this machine, or several ranks; see `EngineClient` for what each method does."""

    def __init__(self, log: Path, hosts: Hosts | None = None) -> None:
        self.log = log
        self.hosts = hosts
        self._numbers = itertools.count(1)
        self._routes: dict[int, asyncio.Queue[AnyEvent | EngineLost]] = {}
        self._unsent: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._server: asyncio.Server | None = None
        self._folder: Path | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._hello: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._leash: Leash | None = None
        self._lost: EngineLost | None = None
        self._closed = False
        self._watching: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, log: Path | None = None, hosts: Hosts | None = None) -> Engine:
        """Spawns an engine and returns at once; it connects, imports MLX and says hello in its own time.

        Args:
            log: File for the engine's stdout and stderr; by default a new one in `paths.log_dir`.
            hosts: Machines that run it together; None is one process here.

        Raises:
            EngineLost: The process could not be started.
        """
        try:
            engine = cls(log or _new_log(), hosts)
            try:
                await engine._spawn()
            except (OSError, asyncio.CancelledError):
                await engine.close()
                raise
        except OSError as error:
            raise EngineLost(f"The engine could not be started: {error.strerror or error}.") from error
        engine._watching = asyncio.create_task(engine._watch())
        return engine

    async def _spawn(self) -> None:
        hosts = self.hosts
        self._folder, path = _socket_path()
        self._server = await asyncio.start_unix_server(self._connected, path)
        environment = dict(os.environ)
        if hosts:  # mlx.launch leaves temporary files behind
            self._scratch = tempfile.TemporaryDirectory(prefix="chatapp-", ignore_cleanup_errors=True)
            environment["TMPDIR"] = self._scratch.name
        self._leash = Leash() if hosts else None
        stdin = self._leash.theirs if self._leash else os.open(os.devnull, os.O_RDONLY)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # In a session of its own: Ctrl+C in the terminal is for the client, which then cancels what it wants to.
            self._process = await asyncio.create_subprocess_exec(
                *(hosts.command(path) if hosts else _command(path)),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE if hosts else descriptor,
                stderr=asyncio.subprocess.STDOUT if hosts else descriptor,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
            os.close(stdin)

    @property
    def alive(self) -> bool:
        return self._lost is None and not self._closed

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid if self._process else 0

    async def hello(self) -> Hello:
        return await asyncio.shield(self._hello)

    def next_request(self) -> int:
        return next(self._numbers)

    async def request(self, request: AnyRequest) -> AsyncGenerator[AnyEvent, None]:
        queue: asyncio.Queue[AnyEvent | EngineLost] = asyncio.Queue()
        if self._lost:
            raise self._lost
        self._routes[request.request] = queue
        self.post(request)
        endings = max(1, request.candidates) if isinstance(request, Generate) else 1
        try:
            while endings:
                event = await queue.get()
                if isinstance(event, EngineLost):
                    endings = 0
                    raise event
                if isinstance(event, Failed):
                    endings = 0
                    raise RequestFailed(event.message, event.kind, event.kept)
                endings -= isinstance(event, _LAST_EVENTS)
                yield event
        finally:
            del self._routes[request.request]
            if endings:
                self.post(Cancel(self.next_request(), target=request.request))

    async def ask(self, request: AnyRequest) -> AnyEvent:
        last: AnyEvent | None = None
        async with contextlib.aclosing(self.request(request)) as events:
            async for event in events:
                last = event
        assert last is not None, "a request always has a last event"
        return last

    def post(self, request: AnyRequest) -> None:
        if not self.alive:
            return
        data = protocol.frame(request)
        if self._writer is None:
            self._unsent.append(data)
        else:
            self._writer.write(data)

    async def close(self) -> None:
        if self._closed:
            return
        self.post(Shutdown(self.next_request()))
        self._lose("The engine was closed.")
        self._closed = True
        if self._writer:
            self._writer.close()
        if self._server:
            self._server.close()
        if self._process:
            await self._end_process(self._process)
        else:
            self._release()
        if self._watching:
            self._watching.cancel()

    async def _end_process(self, process: asyncio.subprocess.Process) -> None:
        if self._hello.exception():
            _kill(process)  # it never said hello: there is nothing that it could save
        try:
            await asyncio.wait_for(process.wait(), _CLOSE_SECONDS)
        except TimeoutError:
            _kill(process)
            await process.wait()
        if self.hosts:
            _kill(process)  # under MPI, what a killed mlx.launch left behind
        self._release()

    def _release(self) -> None:
        leash, self._leash = self._leash, None
        if leash:
            leash.let_go()
        if self._scratch:
            self._scratch.cleanup()

    async def _watch(self) -> None:
        """Waits for the process to end, then for what it still sent, and tells every request in flight."""
        process = self._process
        assert process is not None
        if self.hosts and self._leash:
            words = await watch(process, self.hosts, self.log, self._leash.begin)
            self._lose(words)
            await self._end_process(process)
            return
        code = await process.wait()
        if self._reading:
            await asyncio.wait([self._reading], timeout=1.0)
        self._lose(_last_words(code, self.log))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reading = asyncio.current_task()
        self._writer = writer
        self._remove_socket()
        for data in self._unsent:
            writer.write(data)
        self._unsent.clear()
        try:
            while True:
                length = protocol.body_length(await reader.readexactly(4))
                self._route(protocol.decode_event(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            # The socket closes when the process ends: _watch says why. Cancelled: asyncio itself is being closed.
            return
        except (ValueError, msgspec.DecodeError) as error:
            self._lose(f"The engine sent what this version cannot read ({error}): reinstall chatapp.")
            writer.close()

    def _route(self, event: AnyEvent) -> None:
        if isinstance(event, Hello):
            if event.version != protocol.VERSION:
                raise ValueError(f"protocol {event.version} instead of {protocol.VERSION}")
            if not self._hello.done():
                self._hello.set_result(event)
            return
        if queue := self._routes.get(event.request):
            queue.put_nowait(event)

    def _lose(self, sentence: str) -> None:
        if not self.alive:
            return
        self._lost = EngineLost(sentence)
        if not self._hello.done():
            self._hello.set_exception(self._lost)
            self._hello.exception()  # nobody need have asked
        for queue in self._routes.values():
            queue.put_nowait(self._lost)
        self._remove_socket()

    def _remove_socket(self) -> None:
        """Removes the socket's folder: one engine has connected, or none will."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _kill(process: asyncio.subprocess.Process) -> None:
    """Ends the engine at once, all that mlx.launch started on this machine included."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _command(socket_path: str) -> list[str]:
    return [sys.executable, "-m", "chatapp.engine", "--connect", socket_path]


def _socket_path() -> tuple[Path, str]:
    """Makes a private folder for a socket, somewhere that keeps its path short enough."""
    for parent in (None, "/tmp"):
        folder = Path(tempfile.mkdtemp(prefix="chatapp-", dir=parent))
        path = str(folder / "engine")
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return folder, path
        folder.rmdir()
    raise EngineLost(
        "The path of the folder for temporary files is too long for a socket: set TMPDIR to a shorter one."
    )


def _new_log() -> Path:
    """A new log among the others, the oldest of which go; among temporary files where it cannot be written there."""
    name = f"engine-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_log_numbers)}.log"
    try:
        folder = paths.log_dir()
        old = sorted(folder.glob("engine-*.log"))
        for path in old[: len(old) - _KEPT_LOGS + 1]:
            path.unlink(missing_ok=True)
        (folder / name).touch(0o600)
    except OSError:
        folder = Path(tempfile.gettempdir())
    return folder / name


def _last_words(code: int, log: Path) -> str:
    if code == -signal.SIGKILL:
        how = "was killed (by a person, or by the system for want of memory)"
    elif code < 0:
        how = f"was ended by {signal.Signals(-code).name}"
    else:
        how = f"ended with code {code}"
    return f"The engine {how}; start it again. {_log_tail(log)}"


def _log_tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        lines = []
    words = [line.strip() for line in lines if line.strip()]
    if not words:
        return f"Its log {log} is empty."
    return f"Its log {log} ends: {visible(words[-1][:300])}"
