"""The chat on two ranks in a real terminal: a rank dies, one key starts the engine again, nothing is lost."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.distributed.processes import family, ranks_of
from tests.terminal.terminal import F5, Terminal
from tests.terminal.test_real import ask, saved

pytestmark = [pytest.mark.terminal, pytest.mark.timeout(600)]


def test_a_rank_dies_and_one_key_starts_the_engine_again(divisible_model: Path, private_folders: Path) -> None:
    config = private_folders / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text(f'model = "{divisible_model}"\n[sampling]\ntemperature = 0\nmax_tokens = 6\n')
    terminal = Terminal("-n", "2", columns=140)
    try:
        terminal.until("tensor ×2")
        ask(terminal, "The first question")
        first = saved()
        processes = family(terminal.child.pid)[1:]
        ranks_of(processes)[1].kill()
        terminal.until("engine ended · F5")
        assert saved() == first
        terminal.keys(F5)
        terminal.until("· ready")
        ask(terminal, "The second question")
        assert saved()[:2] == first
        assert len(saved()) == 4
        processes += family(terminal.child.pid)[1:]
        assert terminal.leave() == 0
    finally:
        if terminal.child.isalive():
            terminal.kill()
    _, alive = psutil.wait_procs(processes, 60)
    assert not alive
