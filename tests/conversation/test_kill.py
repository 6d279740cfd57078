"""kill −9 at random moments of a process that writes: every acknowledged message is there, its heat too."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chatapp.conversation.store import Store

from .writer_nursery import HEAT

#: Kills of one test: a thousand in all, in parts that run side by side.
KILLS = 250

#: Kills before a new conversation is begun, so that files are recovered again and again but stay small.
KILLS_PER_FILE = 10


@pytest.mark.parametrize("seed", range(4))
def test_no_acknowledged_message_is_lost_by_kill_9(store, tmp_path, seed):
    chance = random.Random(seed)
    nursery = subprocess.Popen(
        [sys.executable, "-m", "tests.conversation.writer_nursery"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    with nursery:
        for number in range(KILLS):
            if number % KILLS_PER_FILE == 0:
                id, ack_file = begun(store), tmp_path / f"acks-{number}"
            pid = int(ask(nursery, f"{store.folder} {id} {ack_file}"))
            wait_for_lines(ack_file, lines(ack_file) + chance.randint(0, 8))
            time.sleep(chance.uniform(0, 0.005))
            os.kill(pid, signal.SIGKILL)
            assert nursery.stdout is not None
            assert nursery.stdout.readline() == "dead\n"
            check(store, id, ack_file)
        assert nursery.stdin is not None
        nursery.stdin.close()
    assert nursery.returncode == 0
    acknowledged = sum(map(lines, tmp_path.glob("acks-*")))
    assert acknowledged > KILLS  # the writers did get to write


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for_lines(path: Path, count: int) -> None:
    """However slow the machine is, the kill comes after so much was written."""
    while lines(path) < count:
        time.sleep(0.0005)


def begun(store: Store) -> str:
    session = store.new("tiny")
    session.add_message("user", "first")
    session.close()
    return session.id


def ask(nursery: subprocess.Popen[str], line: str) -> str:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(line + "\n")
    nursery.stdin.flush()
    return nursery.stdout.readline()


def check(store: Store, id: str, ack_file: Path) -> None:
    """Opens the file as the program would, and looks for everything that was acknowledged so far."""
    session = store.open(id)
    assert session.read_only is None
    messages = session.conversation.messages
    acks = ack_file.read_text().split("\n")[:-1] if ack_file.exists() else []
    for ack in acks:
        kind, message_id, *length = ack.split()
        assert message_id in messages, (ack, session.path.read_text())
        if kind == "P":
            assert len(messages[message_id].content) >= int(length[0])
    for message in messages.values():
        if message.role == "assistant" and not message.edits:
            # What is there of a reply has all of its heat.
            records = session.tokens(message.id)
            assert "".join(record.text for record in records) == message.content
            assert {record.entropy for record in records} == {HEAT}
    for message in messages.values():
        assert message.parent is None or message.parent in messages
    session.conversation.path()
    session.close()
