"""Writes docs/families.md: ``python -m tests.families``."""

from __future__ import annotations

import sys

from chatapp.engine.blas import use_fast_blas

use_fast_blas()  # before MLX

from tests.families import table  # noqa: E402
from tests.families.configs import families  # noqa: E402

if __name__ == "__main__":
    if sys.argv[1:2] == ["--rows"]:
        table.print_rows(sys.argv[2:])
    else:
        table.PATH.write_text(table.markdown(table.rows(families())), "utf-8")
