"""One open conversation: what a person does to it.

No Textual here. A method changes the conversation at once and starts the reply as a task; what the screen has to show
is put in `Chat.changes`, which the screen empties on its clock. `Refused` says why something cannot be done now.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from chatapp.conversation.events import Message
from chatapp.conversation.session import ConversationSession
from chatapp.errors import ChatappError
from chatapp.protocol import (
    Choose,
    Ended,
    Forecasted,
    Generate,
    Loaded,
    Sampling,
    Started,
)
from chatapp.settings import Settings
from chatapp.tokens import Alternative, Token
from chatapp.ui.asking import Asking
from chatapp.ui.changes import Change, Rebuilt, Refused
from chatapp.ui.link import EngineLink
from chatapp.ui.reply import Job, Reply
from chatapp.ui.requests import Requests
from chatapp.ui.scores import PromptScores


class Chat:
    """See the module's docstring.

    Attributes:
        session: The conversation's file and tree. While the chat is open nobody else writes to it.
        changes: What happened since the screen looked last, oldest first.
        reply: The reply in flight, if there is one.
        ended: What the engine said at the end of the last reply here.
        scores: What it said about the tokens of messages that it read.
    """

    def __init__(self, session: ConversationSession, link: EngineLink, settings: Settings) -> None:
        self.session = session
        self.changes: deque[Change] = deque()
        self.reply: Reply | None = None
        self._started: Started | None = None
        self.ended: Ended | None = None
        self.scores = PromptScores()
        self._link = link
        self._requests = Requests(session, settings)
        self._task: asyncio.Task[None] | None = None
        self._generation = 0
        self._candidates: dict[str, Ended] = {}
        self._asking = Asking(link, self.changes.append)

    # -- what is there

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def busy(self) -> bool:
        """Whether a reply is in flight."""
        return self.reply is not None

    @property
    def branch_name(self) -> str:
        """The name of the shown branch: of its last message that has one; empty if none has."""
        names = {id: name for name, id in self.session.conversation.branches.items()}
        path = self.session.conversation.path() if names else []
        return next((names[message.id] for message in reversed(path) if message.id in names), "")

    @property
    def started(self) -> Started | None:
        """What the engine said when it had read the prompt of the reply in flight, else of the last one."""
        in_flight = self.reply.started if self.reply is not None else None
        return in_flight or self._started

    def path(self) -> list[Message]:
        """The messages shown, those before a reply in flight (here or in another process) while there is one."""
        conversation, growing = self.session.conversation, self.session.growing
        if self.reply is not None and self.reply.written:
            parent = self._parent_in_flight(self.reply)
        elif growing is not None:
            parent = growing.parent
        else:
            return conversation.path()
        return conversation.path(parent) if parent else []

    def _parent_in_flight(self, reply: Reply) -> str | None:
        if reply.job.continues is None:
            return reply.job.parent
        return self.session.conversation.messages[reply.job.continues].parent

    def message(self, id: str) -> Message:
        """A message of the conversation.

        Raises:
            Refused: It is still being written.
        """
        found = self.session.conversation.messages.get(id)
        if found is None:
            raise Refused("This reply is still being written; Esc stops it.")
        return found

    @property
    def sampling(self) -> Sampling:
        """The sampling options in force; see `Requests`."""
        return self._requests.sampling

    @property
    def scores_prompts(self) -> bool:
        """Whether messages that are read get their heat too."""
        return self._requests.scores_prompts

    def option(self, name: str, default: Any) -> Any:
        """A setting of this conversation."""
        return self._requests.option(name, default)

    def set_option(self, name: str, value: Any) -> None:
        """Changes a setting of this conversation; None takes it away."""
        settings = {**self.session.conversation.settings, name: value}
        self.session.set_settings({key: kept for key, kept in settings.items() if kept is not None})

    # -- replies

    def send(self, text: str) -> None:
        """Writes the person's message down and asks for a reply."""
        self.must_be_free()
        message = self.session.add_message("user", text)
        self._answer(Job(message.id, prompt=message.id))

    def edit(self, id: str, content: str, keep_following: bool) -> None:
        """Puts an edited version in a message's place; an edited prompt that does not keep what follows is answered."""
        self.must_be_free()
        message = self.message(id)
        if content == message.content:
            return
        edited = self.session.edit(id, content, keep_following)
        if message.role == "user" and not keep_following:
            self._answer(Job(edited.id))
        else:
            self.changes.append(Rebuilt())

    def regenerate(self, id: str, candidates: int = 1) -> None:
        """Makes another reply beside this one, or several at once; for a message of the person, a reply to it."""
        self.must_be_free()
        message = self.message(id)
        parent = message.id if message.role != "assistant" else message.parent
        self._answer(Job(parent, candidates=candidates))

    def extend(self, id: str) -> None:
        """Goes on from the end of a reply."""
        self.must_be_free()
        self._answer(Job(self._reply_message(id).parent, continues=id))

    def pick(self, id: str, index: int, alternative: Alternative) -> None:
        """Takes another token at a place of a reply and goes on from there, as a new reply beside it."""
        self.must_be_free()
        message = self._reply_message(id)
        tokens = self._sampled(message, index)
        self._answer(Job(message.parent, given=(*tokens[:index], picked(tokens[index], alternative))))

    def sample(self, id: str, index: int, candidates: int) -> None:
        """Makes several continuations from before a token of a reply."""
        self.must_be_free()
        message = self._reply_message(id)
        tokens = self._sampled(message, index)
        self._answer(Job(message.parent, given=tuple(tokens[:index]), candidates=candidates))

    def resume(self, id: str, pending: Token, alternative: Alternative) -> None:
        """Goes on from a pause with one of the tokens that might have come."""
        self.must_be_free()
        message = self._reply_message(id)
        tokens = self.session.tokens(id)
        self._answer(Job(message.parent, given=(*tokens, picked(pending, alternative))))

    def stop(self, *, leaving: bool = False) -> bool:
        """Stops the reply in flight (see `Reply.stop`); False where there is none."""
        if self.reply is None:
            return False
        self.reply.stop(leaving=leaving)
        return True

    async def settled(self) -> None:
        """Waits until no reply is in flight."""
        while self._task is not None:
            await asyncio.wait([self._task])

    # -- the tree

    def choose(self, id: str) -> None:
        """Shows one of several replies made at once, and makes it the cache's."""
        self.show(id)
        number, ended = self._asking.number(), self._candidates.get(id)
        if number is not None and ended is not None:
            self._asking.have_soon(Choose(number, generation=self._generation, candidate=ended.candidate))
            # Until now the cache held the prompt only.
            read = self._started.prompt_tokens if self._started is not None else 0
            self.ended = msgspec.structs.replace(ended, cached=max(ended.cached, read + ended.tokens))
        self._candidates = {}

    def show(self, id: str) -> None:
        """Shows the branch through a message."""
        self.must_be_free()
        self.session.set_head(id)
        self.changes.append(Rebuilt())

    def sibling(self, id: str, step: int) -> str | None:
        """Shows an alternative of a message and returns its id; None at the end of the row."""
        self.must_be_free()
        siblings = [message.id for message in self.session.conversation.siblings(self.message(id).id)]
        place = siblings.index(id) + step
        if not 0 <= place < len(siblings):
            return None
        self.show(siblings[place])
        return siblings[place]

    def delete(self, id: str) -> None:
        """Hides a message and what follows it."""
        self.must_be_free()
        self.session.delete(self.message(id).id, following=True)
        self.changes.append(Rebuilt())

    def undo(self) -> None:
        """Takes the last change of the conversation back."""
        self._step(self.session.undo, "There is nothing to undo.")

    def redo(self) -> None:
        """Does again what was undone."""
        self._step(self.session.redo, "There is nothing to redo.")

    def _step(self, step: Callable[[], bool], nothing: str) -> None:
        self.must_be_free()
        if not step():
            raise Refused(nothing)
        self.changes.append(Rebuilt())

    def set_system(self, content: str) -> None:
        """Changes the system message; what follows is read again at the next reply."""
        self.must_be_free()
        self.session.set_system(content)
        self.changes.append(Rebuilt())

    # -- the engine

    async def forecast(self, id: str, content: str, keep_following: bool) -> Forecasted | str | None:
        """What would be read again if a message, or the system message, were edited so.

        Returns:
            The engine's forecast; a sentence where it would refuse the edited conversation; None where it cannot say
            now.
        """
        number, loaded = self._asking.number(), self._link.status.loaded
        if number is None or loaded is None or self.busy:
            return None
        request = await self._requests.forecast(number, loaded, id, content, keep_following)
        if request is None:
            return None
        try:
            answer = await self._asking.ask(request)
        except ChatappError as error:
            return str(error)
        return answer if isinstance(answer, Forecasted) else None

    async def leave(self) -> None:
        """Tells the engine that the conversation is not shown any more; it saves what it has read of it."""
        number = self._asking.number()
        if number is not None and self.started is not None:
            await self._asking.have(self._requests.leave(number))

    def leave_soon(self, removed: bool = False) -> None:
        """As `leave`, without waiting; `at_rest` when it is done.

        Args:
            removed: It went to the trash: what was saved is removed instead.
        """
        number = self._asking.number()
        if number is not None and (self.started is not None or removed):
            self._asking.have_soon(self._requests.leave(number, removed))

    @property
    def at_rest(self) -> bool:
        """Nothing was asked of the engine that it has not answered."""
        return self._asking.at_rest

    def _answer(self, job: Job) -> None:
        """Starts a reply."""
        self.changes.append(Rebuilt())
        self.reply = Reply(self.session, self._link, job, self.changes.append, self.scores.take)
        self._task = asyncio.create_task(self._run(self.reply), name=f"reply in {self.id}")

    async def _run(self, reply: Reply) -> None:
        try:
            await reply.run(lambda number, loaded: self._request(number, loaded, reply.job))
        finally:
            self._started = self.started
            self.ended = reply.ended or self.ended
            self._candidates = reply.endings if reply.job.candidates > 1 else {}
            self.reply = None
            self._task = None
            self.changes.append(Rebuilt())

    async def _request(self, number: int, loaded: Loaded, job: Job) -> Generate:
        self._generation = number
        return await self._requests.generate(number, loaded, job, self.scores.expect)

    def tokens(self, message: Message) -> Sequence[Token]:
        """What is known about the tokens of a message."""
        sampled = self.session.tokens(message.id) if message.role == "assistant" else ()
        return self.scores.over(message.id, message.content, sampled) if self.scores_prompts else sampled

    # -- checks

    def must_be_free(self) -> None:
        """The conversation can be changed now.

        Raises:
            Refused: Another process writes it, or a reply is being written.
        """
        if self.session.read_only:
            raise Refused(f"{self.session.read_only} It can be read here; b goes on in a copy.")
        if self.busy:
            raise Refused("A reply is being written; Esc stops it.")

    def _reply_message(self, id: str) -> Message:
        message = self.message(id)
        if message.role != "assistant":
            raise Refused("This works on a reply of the model; go to one with j and k.")
        return message

    def _sampled(self, message: Message, index: int) -> Sequence[Token]:
        """The tokens of a reply up to an index, if the loaded model sampled them."""
        loaded = self._link.status.loaded
        tokens = self.session.tokens(message.id)
        if loaded is None:
            raise Refused("The model is not loaded yet.")
        if message.model != loaded.model:
            raise Refused(f"These tokens are of {message.model}; F4 loads it.")
        if not 0 <= index < len(tokens) or any(token.id < 0 for token in tokens[: index + 1]):
            raise Refused("There is no sampled token here; it was typed by a person.")
        return tokens


def picked(instead_of: Token, alternative: Alternative) -> Token:
    """The record of an alternative taken at a token's place: the same distribution, another choice."""
    return msgspec.structs.replace(
        instead_of,
        id=alternative.id,
        # The head of a code point that is not complete yet: its text comes with the next token.
        text=alternative.text.rstrip("\ufffd"),
        surprisal=-alternative.logprob,
        state="picked",
    )
