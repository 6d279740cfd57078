"""A saved conversation for a one-shot command: its turns, a place in one of its replies, a new reply."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from chatapp.conversation.events import Message
from chatapp.conversation.reply import LOADED_WITH, ReplyWriter, setup_of
from chatapp.conversation.session import ConversationSession
from chatapp.conversation.store import OPEN_ELSEWHERE, Store
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Ended, Generate, Load, Loaded, Sampling, Started, Turn
from chatapp.text import visible
from chatapp.tokens import Token


@dataclass(frozen=True)
class Place:
    """A token of a saved reply.

    Attributes:
        conversation: Name of the conversation.
        message: Number of the message in the shown branch, from 1 (or -1 for the last), or its id.
        index: Number of the token in the reply, from 0.
    """

    conversation: str
    message: str
    index: int

    @classmethod
    def parse(cls, text: str) -> Place:
        """Reads ``NAME:MESSAGE:INDEX``; for argparse."""
        parts = text.rsplit(":", 2)
        if len(parts) != 3 or not all(parts) or not parts[2].isdigit():
            raise argparse.ArgumentTypeError(f"{text!r} is not NAME:MESSAGE:INDEX, as in holiday:2:17")
        return cls(parts[0], parts[1], int(parts[2]))


class Saved:
    """An open conversation."""

    def __init__(self, session: ConversationSession) -> None:
        self._session = session

    @classmethod
    def open(cls, name: str, *, read_only: bool = False) -> Saved:
        """Opens a conversation by its name.

        Raises:
            ChatappError: There is none, it cannot be read, or it cannot be written although it should be.
        """
        store = Store()
        id = store.find(name)
        saved = cls(store.look(id) if read_only else store.open(id))
        if not read_only and saved._session.read_only:
            reason = saved._session.read_only
            saved.close()
            advice = "Close it there, or ask" if reason == OPEN_ELSEWHERE else "Ask"
            raise ChatappError(f"{reason} {advice} without -C.")
        return saved

    def close(self) -> None:
        """Gives the file back; says where lines are that the disk did not take."""
        told = self._session.close()
        if told:
            print(f"chatapp: {visible(told)}", file=sys.stderr)

    @property
    def model(self) -> str:
        """The model of the latest reply, else the one that the conversation began with."""
        replies = [message.model for message in self._session.conversation.path() if message.model]
        return replies[-1] if replies else self._session.conversation.model

    @property
    def id(self) -> str:
        """The conversation's id."""
        return self._session.id

    def set_system(self, text: str) -> None:
        """Changes the system message, if it is another one."""
        if text != self._session.conversation.system:
            self._session.set_system(text)

    def turns(self, model: str) -> tuple[Turn, ...]:
        """The shown branch, with the ids that ``model`` sampled."""
        return self._session.turns(model)

    def ask(self, prompt: str) -> str:
        """Writes the user's message down and returns its id."""
        return self._session.add_message("user", prompt).id

    def take_back(self, message: str) -> None:
        """Hides a message that could not be answered."""
        self._session.delete(message)

    def recorder(self, load: Load, loaded: Loaded, request: Generate) -> Recorder:
        """Writes the reply to the latest message down while it grows."""
        given = {name: getattr(load, name) for name in LOADED_WITH}
        return Recorder(
            self._session,
            loaded.model,
            request.sampling.over(loaded.sampling),
            setup_of(loaded, request, given),
        )

    # A place in a reply ------------------------------------------------------------------------------------------

    def model_at(self, place: Place) -> str:
        """The model that wrote the reply."""
        return self._message(place).model

    def sampling_at(self, place: Place, picked: Token | None) -> Sampling:
        """How the reply was drawn, for what is left of it: with the same seed it comes out the same."""
        try:
            sampling = msgspec.convert(self._message(place).sampling, Sampling, strict=False)
        except msgspec.ValidationError:
            return Sampling()
        if sampling.max_tokens is None:
            return sampling
        return msgspec.structs.replace(
            sampling, max_tokens=max(1, sampling.max_tokens - place.index - (picked is not None))
        )

    def turns_to(self, place: Place, picked: Token | None, model: str) -> tuple[Turn, ...]:
        """The prompt of the reply, and the reply up to the place as its last turn; the picked token ends it."""
        message = self._message(place)
        recorded = self._session.tokens(message.id)
        if place.index > len(recorded):
            raise _beyond(recorded)
        tokens = recorded[: place.index]
        if picked is not None:
            tokens.append(picked)
        ids = tuple(token.id for token in tokens)
        if message.model != model or any(token < 0 for token in ids):
            ids = ()
        content = "".join(token.text for token in tokens)
        return (*self._session.prompt_of(message.id, model), Turn("assistant", content, ids))

    def alternative(self, place: Place, number: int) -> Token:
        """The record of the ``number``-th likeliest token (from 1) at a place, as if it had been drawn there."""
        token = self._token(place)
        if not 1 <= number <= len(token.top):
            raise UsageError(f"That token has {len(token.top)} recorded alternatives: --pick takes 1 to that.")
        other = token.top[number - 1]
        return msgspec.structs.replace(token, id=other.id, text=other.text, surprisal=-other.logprob, attention=None)

    def _token(self, place: Place) -> Token:
        message = self._message(place)
        tokens = self._session.tokens(message.id)
        if place.index >= len(tokens):
            raise _beyond(tokens)
        return tokens[place.index]

    def _message(self, place: Place) -> Message:
        conversation = self._session.conversation
        message = conversation.messages.get(place.message)
        if message is None:
            path = conversation.path()
            try:
                number = int(place.message)
                message = path[number - 1 if number > 0 else number]
            except (ValueError, IndexError):
                raise UsageError(
                    f"There is no message {place.message!r}: it has {len(path)}, counted from 1."
                ) from None
        if message.role != "assistant":
            raise UsageError(f"Message {place.message} is not a reply of a model.")
        return message


def _beyond(tokens: Sequence[Token]) -> UsageError:
    if not tokens:
        return UsageError("That reply has no recorded tokens: choose another one.")
    return UsageError(f"That reply has {len(tokens)} recorded tokens; the last is number {len(tokens) - 1}.")


class Recorder:
    """A reply that is being written down; one that got no token leaves nothing behind.

    Attributes:
        empty: Nothing was decoded yet.
    """

    def __init__(
        self, session: ConversationSession, model: str, sampling: Sampling, setup: Mapping[str, object]
    ) -> None:
        self._begin = partial(session.begin_reply, model=model, setup=setup)
        self._sampling = sampling
        self._writer: ReplyWriter | None = None
        self.empty = True

    def start(self, started: Started) -> None:
        """The prompt was read: the reply begins."""
        self._writer = self._begin(sampling=msgspec.structs.replace(self._sampling, seed=started.seed))

    def tokens(self, tokens: tuple[Token, ...]) -> None:
        """Takes records as they come."""
        assert self._writer is not None, "records come after Started"
        self._writer.append(tokens)
        self.empty = False

    def end(self, ended: Ended | None) -> None:
        """Writes the reply down; None where its engine failed, and there is no more of it."""
        if self._writer is None:
            return
        if self.empty:
            self._writer.discard()
        elif ended is None:
            self._writer.finish("error")
        else:
            self._writer.finish(ended.finish, text=ended.text, seed=ended.seed)
