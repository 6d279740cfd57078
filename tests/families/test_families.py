"""docs/families.md is what the installed mlx-lm and chatapp do now."""

from __future__ import annotations

import mlx.core as mx
import pytest

from chatapp.models import caveats
from tests.families import table
from tests.families.configs import families

#: Shares of the families, so that two workers can divide the work.
_SHARES = 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(mx.metal.is_available(), reason="the table says what works on a CPU")
@pytest.mark.parametrize("share", range(_SHARES))
def test_the_table_is_up_to_date(share: int) -> None:
    names = families()[share::_SHARES]
    committed = table.committed()
    made = {row.family: row.markdown() for row in table.rows(names)}
    stale = {name: (committed.get(name), line) for name, line in made.items() if committed.get(name) != line}
    assert not stale, "run `python -m tests.families` and look at what changed"


def test_every_family_has_a_row_and_the_page_nothing_else() -> None:
    assert sorted(table.committed()) == families()
    around = table.markdown([]).split("|---|---|---|---|---|---|---|---|---|---|")
    page = table.PATH.read_text("utf-8")
    assert page.startswith(around[0])
    assert page.endswith(around[1])


def test_most_families_do_everything() -> None:
    works = [line for line in table.committed().values() if "| no |" not in line]
    assert len(works) >= 110


def test_the_person_is_told_exactly_where_a_model_that_runs_is_not_exact() -> None:
    chatting = {name: line for name, line in table.committed().items() if "needs Metal" not in line}
    inexact = {name for name, line in chatting.items() if line.split("|")[2].strip() == "yes" and _inexact(line)}
    assert set(caveats.CAVEATS) == inexact
    assert caveats.note({"model_type": "llama"}) == ""
    assert "window" in caveats.note({"model_type": "plamo3"})


def _inexact(line: str) -> bool:
    cells = [cell.strip() for cell in line.split("|")[3:-2]]
    return "no" in cells[:2] + cells[3:]
