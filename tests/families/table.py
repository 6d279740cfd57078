"""docs/families.md: made by running every check on every family.

A model that ends the process (MLX has no exceptions for some faults) must not end the run, so the rows are computed in
a child process, which is started again behind a family that killed it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chatapp.models.caveats import CAVEATS
from tests.families.configs import build, families

PATH = Path(__file__).parents[2] / "docs" / "families.md"

#: The page around the table.
_PAGE = Path(__file__).with_name("page.md")

_ROOT = Path(__file__).parents[2]

_COLUMNS = ("chats", "metrics", "attention", "rotates", "rewinds", "candidates", "speculates")

#: Why a family cannot be built or run here, for those whose own error says it badly.
_REASONS = {
    "bitnet": "its kernel needs Metal",
    "muse_spark": "its kernel needs Metal",
    "olmo": "needs the package ai2-olmo",
    "prism_hadamard_qwen35": "comes packed in 2 bits only, which random weights cannot stand for",
    "deepseek_v41": "attention without mlx-lm's common function",
    "gemma2": "attention without mlx-lm's common function",
    "plamo2": "attention without mlx-lm's common function",
    "mamba": "has no attention",
    "mamba2": "has no attention",
    "rwkv7": "has no attention",
    **CAVEATS,
}


@dataclass
class Row:
    """What works with one family.

    Attributes:
        family: Module name in mlx-lm.
        loads: A model could be built.
        cells: Column to "yes", another short word, or "no".
        reason: Why not all is "yes".
    """

    family: str
    loads: bool
    cells: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    def markdown(self) -> str:
        cells = [self.cells.get(column, "") for column in _COLUMNS]
        return f"| {self.family} | {'yes' if self.loads else 'no'} | {' | '.join(cells)} | {self.reason} |"


def compute(family: str) -> Row:
    """Builds a family and runs all checks on it, in this process."""
    from tests.families.checks import CHECKS, No, Subject

    try:
        subject = Subject(build(family))
    except (Exception, SystemExit) as error:
        return Row(family, False, reason=_reason(family, str(error)))
    row = Row(family, True)
    for column, check in CHECKS.items():
        try:
            row.cells[column] = check(subject)
        except No as answer:
            row.cells[column] = "no"
            row.reason = row.reason or _reason(family, str(answer))
        except RuntimeError as error:
            row.cells[column] = "no"
            row.reason = row.reason or _reason(family, str(error))
    return row


def rows(names: Iterable[str]) -> list[Row]:
    """Computes rows in child processes, in order."""
    left, done = list(names), []
    while left:
        child = subprocess.run(
            [sys.executable, "-m", "tests.families", "--rows", *left], cwd=_ROOT, capture_output=True, text=True
        )
        found = [Row(**json.loads(line)) for line in child.stdout.splitlines() if line.startswith("{")]
        done += found
        left = left[len(found) :]
        if left and child.returncode >= 0:
            raise RuntimeError(f"{left[0]}: {child.stderr[-2000:]}")
        if left:
            crashed = left.pop(0)
            done.append(Row(crashed, True, dict.fromkeys(_COLUMNS, "no"), _reason(crashed, "ends the process")))
    return done


def print_rows(names: Iterable[str]) -> None:
    """What the child process does: a JSON line for each row as soon as it is known."""
    for name in names:
        print(json.dumps(asdict(compute(name))), flush=True)


def markdown(table: Iterable[Row]) -> str:
    """The whole page."""
    head = ("family", "loads", *_COLUMNS, "why not")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(row.markdown() for row in table)]
    page = _PAGE.read_text("utf-8")
    return page.replace("COUNT", str(len(families()))).replace("TABLE", "\n".join(lines))


def committed() -> dict[str, str]:
    """The rows of the committed page, by family."""
    lines = PATH.read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith("| ") and line.count("|") == len(_COLUMNS) + 4]
    return {line.split("|")[1].strip(): line for line in found[1:]}


def _reason(family: str, words: str) -> str:
    return _REASONS.get(family) or words.splitlines()[0].replace("|", "/")
