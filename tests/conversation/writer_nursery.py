"""Run as a program by test_kill.py: forks a writer for each line on stdin, which writes until it is killed.

A line is ``folder id ack-file``. The writer's pid is printed, and "dead" once it has ended. What a writer was told to
be on disk it notes in the ack file: ``M <message id>`` or ``P <message id> <length of the text so far>``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from chatapp.conversation.store import Store

from .helpers import token

#: Entropy of every token that is written, in nats.
HEAT = 1.25


def write_until_killed(folder: Path, id: str, ack_file: Path) -> None:
    session = Store(folder).open(id)
    assert session.read_only is None, session.read_only
    acks = os.open(ack_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    time = 0.0
    session.clock = lambda: time
    number = 0
    while True:
        number += 1
        question = session.add_message("user", f"question {number} " + "x" * (number * 37 % 300))
        os.write(acks, f"M {question.id}\n".encode())
        writer = session.begin_reply(model="tiny", sampling={"temperature": 0.5})
        for piece in range(5):
            time += 1.5
            writer.append([token(f"piece {piece} ", entropy=HEAT), token("and ", entropy=HEAT)])
            os.write(acks, f"P {writer.id} {len(writer.text)}\n".encode())
        os.write(acks, f"M {writer.finish('stop').id}\n".encode())
        if number % 3 == 0:
            edited = session.edit(question.id, "edited", keep_following=number % 2 == 0)
            os.write(acks, f"M {edited.id}\n".encode())


def main() -> None:
    for line in sys.stdin:
        folder, id, ack_file = line.split()
        pid = os.fork()
        if pid == 0:
            write_until_killed(Path(folder), id, Path(ack_file))
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("dead", flush=True)


if __name__ == "__main__":
    main()
