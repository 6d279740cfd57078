"""What the arguments of slash commands complete to, here and now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from chatapp.errors import ChatappError
from chatapp.protocol import Sampling
from chatapp.ui.heat import Heat

if TYPE_CHECKING:
    from chatapp.ui.app import ChatApp
    from chatapp.ui.screens.chat import ChatScreen

_SWITCH = ("on", "off")


class Values(Mapping[str, Iterable[str]]):
    """Values by the command's name; each is looked up when it is asked for."""

    def __init__(self, screen: ChatScreen) -> None:
        def branches() -> Iterable[str]:
            return sorted(screen.workspace.chat.session.conversation.branches)

        def themes() -> Iterable[str]:
            return cast("ChatApp", screen.app).looks.names

        self._of: dict[str, Callable[[], Iterable[str]]] = {
            **dict.fromkeys(("branches", "unname-branch", "delete-branch"), branches),
            **dict.fromkeys(("thinking", "score", "attention"), lambda: _SWITCH),
            "heat": lambda: list(Heat),
            "model": _models,
            "pause": lambda: ("off",),
            "set": lambda: [f"{name} " for name in Sampling.__struct_fields__],
            "theme": themes,
        }

    def __getitem__(self, name: str) -> Iterable[str]:
        return self._of[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


@lru_cache(1)
def _models() -> Iterable[str]:
    from chatapp.models.registry import load_registry

    try:
        return [spec.name for spec in load_registry()]
    except ChatappError:
        return ()  # F4 tells what is wrong with models.toml
