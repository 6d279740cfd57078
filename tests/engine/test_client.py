"""The client's own part: what it says of engines that do not come up, and what it leaves behind."""

from __future__ import annotations

import errno
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from chatapp import client, paths, protocol
from chatapp.client import Engine, EngineLost
from chatapp.protocol import Leave

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[-1]);"


def pretend(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Has the client start a script in place of the engine."""
    monkeypatch.setattr(client, "_command", lambda path: [sys.executable, "-c", script, path])


async def test_an_engine_that_ends_at_once_gives_its_last_words(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch, "import sys; print('first\\n\\x1b[2Jboom', file=sys.stderr); sys.exit(3)")
    engine = await Engine.start()
    with pytest.raises(EngineLost, match="ended with code 3") as lost:
        await engine.hello()
    assert "␛[2Jboom" in str(lost.value)
    assert not engine.alive
    with pytest.raises(EngineLost):
        await engine.ask(Leave(engine.next_request(), "c"))
    await engine.close()


async def test_an_engine_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch):
    hello = protocol.frame(protocol.Hello(0, protocol.VERSION + 1, 1, "", "", "", ""))
    pretend(monkeypatch, f"{CONNECT} s.sendall({hello!r}); s.recv(1)")
    engine = await Engine.start()
    with pytest.raises(EngineLost, match="reinstall"):
        await engine.hello()
    await engine.close()


async def test_an_engine_that_sends_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch):
    pretend(monkeypatch, f"{CONNECT} s.sendall(b'\\0\\0\\0\\2xx'); s.recv(1)")
    engine = await Engine.start()
    with pytest.raises(EngineLost, match="cannot read"):
        await engine.ask(Leave(engine.next_request(), "c"))
    await engine.close()


async def test_nonsense_from_the_client_ends_the_engine():
    engine = await Engine.start()
    await engine.hello()
    assert engine._writer is not None
    engine._writer.write(b"\xff\xff\xff\xff")
    with pytest.raises(EngineLost):
        await engine.ask(Leave(engine.next_request(), "c"))
    assert "too large" in engine.log.read_text()
    await engine.close()


async def test_closing_before_the_engine_is_up_and_closing_twice():
    engine = await Engine.start()
    await engine.close()
    await engine.close()
    assert not engine.alive
    assert engine._process is not None
    assert engine._process.returncode is not None


async def test_an_engine_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client, "_CLOSE_SECONDS", 0.2)
    hello = protocol.frame(protocol.Hello(0, protocol.VERSION, 1, "", "", "", ""))
    pretend(monkeypatch, f"{CONNECT} s.sendall({hello!r}); import time; time.sleep(600)")
    engine = await Engine.start()
    await engine.hello()
    await engine.close()
    assert engine._process is not None
    assert engine._process.returncode == -9


async def test_socket_and_logs_are_private_and_tidied(monkeypatch: pytest.MonkeyPatch):
    old = [paths.log_dir() / f"engine-2020010{n % 10}-{n:02}.log" for n in range(15)]
    for path in old:
        path.write_text("")
    engine = await Engine.start()
    folder = engine._folder
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    await engine.hello()
    assert not folder.exists()
    logs = list(paths.log_dir().glob("engine-*.log"))
    assert len(logs) == 10
    assert engine.log in logs
    assert stat.S_IMODE(engine.log.stat().st_mode) == 0o600
    await engine.close()


async def test_a_log_that_cannot_be_written_among_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CHATAPP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    engine = await Engine.start()
    assert (await engine.hello()).pid == engine.pid
    assert engine.log.parent == tmp_path
    await engine.close()


async def test_an_engine_for_which_there_is_no_room_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def no_room(**options: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", no_room)
    with pytest.raises(EngineLost, match="No space left"):
        await Engine.start(tmp_path / "log")


async def test_a_long_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    engine = await Engine.start()
    assert (await engine.hello()).pid == engine.pid
    assert not list(deep.iterdir())
    await engine.close()
