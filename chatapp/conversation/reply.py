"""A reply while it grows: what was streamed so far, and the recovery lines that a crash leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from chatapp.conversation import events, records
from chatapp.conversation.events import Message
from chatapp.protocol import Generate, Loaded
from chatapp.tokens import Finish, Token

if TYPE_CHECKING:
    from chatapp.conversation.session import ConversationSession

#: At most this often a growing reply is written down, in seconds.
RECOVERY_INTERVAL = 1.0

#: Options of `chatapp.protocol.Load` that shape a reply.
LOADED_WITH = ("keep", "kv_bits", "adapter")


class ReplyWriter:
    """A reply that is being written. End it with `finish`, or with `discard` where nothing came.

    Attributes:
        id: Of the message that it will be.
        tokens: Records so far, those of the reply that it continues first.
    """

    def __init__(
        self, session: ConversationSession, message: Message, base: Message | None, given: Sequence[Token]
    ) -> None:
        self.id = message.id
        self.tokens: list[Token] = []
        self._session = session
        self._message = message
        self._base = base.content if base else ""
        self._parts: list[str] = []
        self._saved = 0
        self._recorded = 0
        self._begun = False
        self._next_save = session.clock() + RECOVERY_INTERVAL
        if base and base.content:
            self.tokens += session.tokens(base.id) or [records.typed(base.content, 0)]
        self._given = len(self.tokens) + len(given)
        self.append(given)

    @property
    def text(self) -> str:
        """The whole reply so far, the one that it continues included."""
        return self._base + "".join(self._parts)

    def append(self, tokens: Sequence[Token]) -> None:
        """Takes records as the engine reports them. At most every second, what came in is written down."""
        for token in tokens:
            place = len(self.tokens)
            self.tokens.append(token if token.index == place else msgspec.structs.replace(token, index=place))
            self._parts.append(token.text)
        if self._session.clock() >= self._next_save:
            self._save()

    def _save(self) -> None:
        added = "".join(self._parts[self._saved :])
        message = self._message
        if self._begun:
            line = events.Partial(self.id, events.storable(added))
        else:
            line = events.Partial(
                self.id, events.storable(self._base + added), message.parent, message.created, message.model,
                message.sampling, message.continues, self._given, message.setup,
            )  # fmt: skip
        self._session.write_partial(line, self.tokens[self._recorded :], self._recorded)
        self._begun = True
        self._saved = len(self._parts)
        self._recorded = len(self.tokens)
        self._next_save = self._session.clock() + RECOVERY_INTERVAL

    def finish(self, finish: Finish, *, text: str | None = None, seed: int | None = None, show: bool = True) -> Message:
        """Writes the reply down; it is on disk when this returns.

        Args:
            finish: Why it ended.
            text: What was added, given tokens included, where that is not the texts of the tokens joined
                (`chatapp.protocol.Ended.text`).
            seed: The seed that was used (`Ended.seed`), kept with the sampling options.
            show: Show it; False for candidates that wait to be chosen by `set_head`.
        """
        content = events.storable(self.text if text is None else self._base + text)
        sampling = self._message.sampling if seed is None else {**self._message.sampling, "seed": seed}
        whole = msgspec.structs.replace(self._message, content=content, sampling=sampling, given=self._given)
        message, tokens = ended(whole, self.tokens, finish)
        recorded = records.alike(self.tokens[: self._recorded], tokens) if self._begun else None
        return self._session.finish_reply(message, tokens, recorded=recorded, show=show)

    def discard(self) -> None:
        """Ends it without a message. Recovery lines already written are taken back."""
        if self._begun:
            self._session.write_partial(events.Partial(self.id, "", dropped=True), (), 0)


def recover(session: ConversationSession) -> None:
    """Makes replies that were cut off by the end of the process into messages, with as many records as were written.

    Of several candidates for one message the first is shown.
    """
    answered: set[str | None] = set()
    for partial in list(session.conversation.partials.values()):
        found = session.storage.records.get(partial.id)
        message, tokens = ended(partial, found, "error")
        recorded = records.alike(found, tokens)
        session.finish_reply(message, tokens, recorded=recorded, show=partial.parent not in answered)
        session.storage.notices.append(
            "A reply was cut off when the program ended; what had been saved of it is shown."
        )
        answered.add(partial.parent)


def setup_of(loaded: Loaded, request: Generate, given: Mapping[str, object]) -> dict[str, object]:
    """What must be as it was for `chatapp show --replay`, whatever the settings are then.

    Args:
        loaded: The model.
        request: That asked for the reply.
        given: Values of `LOADED_WITH`.
    """
    setup = {"thinking": request.thinking, "max_kv_size": loaded.max_kv_size, **given}
    return {name: value for name, value in setup.items() if value is not None}


def ended(reply: Message, tokens: Sequence[Token], finish: Finish) -> tuple[Message, list[Token]]:
    """A reply at its end, with as many of its records as agree with its text."""
    kept = records.fit(tokens, reply.content)
    mean, peak = records.doubt(kept)
    given = min(reply.given, len(kept))
    changes = {"finish": finish, "given": given, "mean_entropy": mean, "peak_entropy": peak}
    return msgspec.structs.replace(reply, **changes), kept
