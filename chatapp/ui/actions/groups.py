"""All groups of actions, and how an action finds its method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from chatapp.ui.actions.app import AppActions
from chatapp.ui.actions.branch import BranchActions
from chatapp.ui.actions.chat import ChatActions
from chatapp.ui.actions.edit import EditActions
from chatapp.ui.actions.listing import ListActions
from chatapp.ui.actions.message import MessageActions
from chatapp.ui.actions.prompt import PromptActions
from chatapp.ui.actions.token import TokenActions

if TYPE_CHECKING:
    from chatapp.ui.actions.base import Group
    from chatapp.ui.screens.chat import ChatScreen

Method = Callable[[str], Awaitable[None] | None]


class Groups:
    """The groups of one screen, by the first part of an action's id."""

    def __init__(self, screen: ChatScreen) -> None:
        self.app = AppActions(screen)
        self.branch = BranchActions(screen)
        self.chat = ChatActions(screen)
        self.edit = EditActions(screen)
        self.list = ListActions(screen)
        self.message = MessageActions(screen)
        self.prompt = PromptActions(screen)
        self.token = TokenActions(screen)

    def method(self, id: str) -> tuple[Method, str]:
        """The method of an action, and the argument that its id brings along (``token.pick_3``: pick, 3)."""
        group_name, _, name = id.partition(".")
        group: Group = getattr(self, group_name)
        stem, _, number = name.rpartition("_")
        if number.isdigit():
            return getattr(group, stem), number
        return getattr(group, name), ""
