"""What a conversation asks of the engine: its turns, with its own settings over the person's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chatapp import paths
from chatapp.conversation.events import Message
from chatapp.conversation.session import ConversationSession
from chatapp.protocol import Forecast, Generate, Leave, Loaded, Role, Sampling, Turn
from chatapp.settings import Settings
from chatapp.ui.reply import Job

#: Id under which the system message is shown and edited; it is no message of the tree.
SYSTEM = "system"


class Requests:
    """Makes the requests of one conversation."""

    def __init__(self, session: ConversationSession, settings: Settings) -> None:
        self._session = session
        self._settings = settings

    # -- settings

    def option(self, name: str, default: Any) -> Any:
        """A setting of this conversation."""
        return self._session.conversation.settings.get(name, default)

    @property
    def sampling(self) -> Sampling:
        """The sampling options in force: the person's defaults with this conversation's over them."""
        own = msgspec.to_builtins(self._settings.sampling)
        return msgspec.convert({**own, **self.option("sampling", {})}, Sampling, strict=False)

    @property
    def scores_prompts(self) -> bool:
        """Whether messages that are read get their heat too."""
        return bool(self.option("score", self._settings.heat.prompt))

    @property
    def _thinking(self) -> bool | None:
        return self.option("thinking", self._settings.thinking)

    @property
    def _cache_file(self) -> str | None:
        """Where the engine keeps this conversation's prompt cache over restarts; None if there shall or can be none."""
        if not self._settings.cache.disk:
            return None
        try:
            return str(paths.prompt_cache(self._session.id))
        except paths.FolderError:
            return None

    # -- requests

    async def generate(
        self, number: int, loaded: Loaded, job: Job, expect: Callable[[Sequence[str | None]], None]
    ) -> Generate:
        """Asks for a reply.

        Args:
            number: Of the request.
            loaded: The model that is to write it.
            job: The reply.
            expect: Is told which message each turn is; None for one that is no message.
        """
        last = job.continues or job.parent
        turns = await self._turns(loaded, last)
        path = [message.id for message in self._session.conversation.path(last)] if last is not None else []
        expect([*(None for _ in range(len(turns) - len(path))), *path])
        if job.given:
            text = "".join(token.text for token in job.given)
            turns += (Turn("assistant", text, tuple(token.id for token in job.given)),)
        return Generate(
            number,
            conversation=self._session.id,
            turns=turns,
            sampling=self.sampling,
            continue_last=job.continues is not None or bool(job.given),
            candidates=job.candidates,
            alternatives=self._settings.alternatives,
            attention=self.option("attention", self._settings.attention),
            pause_above=self.option("pause_above", None),
            cache_file=self._cache_file,
            score_prompt=self.scores_prompts,
            thinking=self._thinking,
        )

    async def forecast(
        self, number: int, loaded: Loaded, id: str, content: str, keep_following: bool
    ) -> Forecast | None:
        """Asks what an edit would read again; None where nothing would be left to answer or to go on with."""
        turns = await self._edited(loaded, id, content, keep_following)
        if not turns:
            return None
        return Forecast(
            number,
            self._session.id,
            turns,
            continue_last=turns[-1].role == "assistant",
            cache_file=self._cache_file,
            thinking=self._thinking,
        )

    def leave(self, number: int, removed: bool = False) -> Leave:
        """Says that the conversation is not shown any more, or that it was removed."""
        return Leave(number, self._session.id, self._cache_file, removed)

    async def _edited(self, loaded: Loaded, id: str, content: str, keep_following: bool) -> tuple[Turn, ...]:
        shown = await self._turns(loaded, self._session.conversation.head)
        if id == SYSTEM:
            system = (Turn("system", content.strip()),) if content.strip() else ()
            rest = tuple(turn for turn in shown if turn.role != "system")
            return (*system, *rest) if rest else ()
        message = self._session.conversation.messages.get(id)
        if message is None:
            return ()
        turns = (*await self._turns(loaded, message.parent), Turn(_role(message), content))
        return (*turns, *shown[len(turns) :]) if keep_following else turns

    async def _turns(self, loaded: Loaded, to: str | None) -> tuple[Turn, ...]:
        if to is None:
            system = self._session.conversation.system
            return (Turn("system", system),) if system else ()
        for _ in self._session.reading(loaded.model, to=to):
            await asyncio.sleep(0)  # keys are served while a long conversation is read
        return self._session.turns(loaded.model, to=to)


def _role(message: Message) -> Role:
    return msgspec.convert(message.role, Role)
