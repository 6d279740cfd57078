"""The main looks as pictures. After a wanted change: ``pytest … --snapshot-update``, and look at them."""

from __future__ import annotations

import re
import zlib

import pytest

from chatapp import paths
from chatapp.tokens import Token
from chatapp.ui.heat import Heat
from chatapp.ui.themes import load_themes, register
from chatapp.ui.transcript import Memory, MessageView

from .host import Host, user

SOURCE = """\
## Rotating caches

A **rotating** cache keeps the *first* `K` tokens; see [docs](https://a.example). It ~~grows~~ stays — 永遠に 👨‍👩‍👧.

1. Fill the buffer until it is full of keys and values from all the layers
2. Overwrite the oldest slot
   - but never the first

> A quote that is long enough to wrap over the end of the row, as quotes do.

| Method | Reads again |
|:-------|------------:|
| trim | 0 |
| cold | 4,096 |

```python
def rewind(cache, ids):
    return cache.trim(len(ids) - 1)  # exact
```
"""


def records(source: str) -> list[Token]:
    """Tokens whose doubt follows from their text, the same in every run."""
    result: list[Token] = []
    for index, piece in enumerate(re.findall(r" ?\w+|\s|[^\w\s]+", source)):
        chance = zlib.crc32(f"{index}{piece}".encode()) % 1000 / 1000
        entropy = 4 * (chance - 0.75) * 4 if chance > 0.75 else 0.1
        varentropy = 8 * (0.25 - chance) * 4 if chance < 0.25 else 0.2
        result.append(Token(index, index, piece, entropy, varentropy, entropy * 1.5, entropy))
    assert "".join(token.text for token in result) == source
    return result


class Themed(Host):
    def __init__(self, theme: str, heat: Heat) -> None:
        reply = MessageView("a", "assistant", SOURCE, records(SOURCE), "tiny", "stop", 2, 3)
        super().__init__(MessageView("s", "system", "Be exact."), user("u", "How do I *rotate* it?"), reply, heat=heat)
        register(self, load_themes((paths.shipped("themes"),)))
        self.theme = theme

    def on_mount(self) -> None:
        super().on_mount()
        self.transcript.set_memory(Memory(("a", 0), frozenset({"s"})))


@pytest.mark.parametrize(
    ("theme", "heat", "size"),
    [
        ("dusk", Heat.OFF, (80, 40)),
        ("dusk", Heat.BOTH, (80, 40)),
        ("daylight", Heat.ENTROPY, (80, 24)),
        ("terminal", Heat.SURPRISAL, (40, 15)),
    ],
)
def test_looks(snap_compare, theme: str, heat: Heat, size: tuple[int, int]) -> None:
    assert snap_compare(Themed(theme, heat), terminal_size=size)
