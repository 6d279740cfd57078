"""A conversation that is open: every change is written to its file first and then folded into its tree."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chatapp.conversation import events, prompts, records, steps
from chatapp.conversation.events import Message
from chatapp.conversation.records import Records
from chatapp.conversation.reply import ReplyWriter
from chatapp.conversation.storage import Storage
from chatapp.conversation.tree import Conversation, fold
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Sampling, Turn
from chatapp.tokens import Token

if TYPE_CHECKING:
    from chatapp.conversation.store import Store

#: Parent of a conversation's first messages, where None means "after the shown leaf".
ROOT = ""


class ConversationSession:
    """One open conversation. Call it from one thread; each change is on disk when the call returns.

    Where the disk refuses, the change is kept in memory, shown all the same, and ``trouble`` says so; the next change
    or `retry` writes it.

    Attributes:
        conversation: The tree as it is now; do not change it.
        storage: Its files.
        clock: Seconds, for the pace of recovery lines.
    """

    def __init__(
        self,
        store: Store,
        conversation: Conversation,
        storage: Storage,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.conversation = conversation
        self.clock = clock
        self._store = store
        self.storage = storage

    @property
    def id(self) -> str:
        """Names the conversation in its store: the file's name without its ending."""
        return self.path.name.removesuffix(".jsonl")

    @property
    def path(self) -> Path:
        """Where the file is, or will be once something is written."""
        return self.storage.path

    @property
    def read_only(self) -> str | None:
        """Why nothing may be changed here (another process writes it, the folder is read-only, a newer version of the
        program wrote it); None where changes are allowed. `poll` follows what another process writes.
        """
        return self.storage.read_only

    @property
    def trouble(self) -> str | None:
        """Why changes wait in memory, as a sentence; None when everything is on disk."""
        return self.storage.trouble

    @property
    def unsaved(self) -> int:
        """How many lines wait in memory because of `trouble`."""
        return self.storage.unsaved

    @property
    def notices(self) -> list[str]:
        """What the person should be told (damage set aside, a moved file), as sentences; clear it when shown."""
        return self.storage.gather()

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def growing(self) -> Message | None:
        """In a read-only session: the reply that another process is writing, as far as it is on disk."""
        partials = self.conversation.partials.values() if self.read_only else ()
        return next((partial for partial in partials if partial.parent in (None, *self.conversation.messages)), None)

    def tokens(self, id: str) -> list[Token]:
        """Token records of a message, whose texts joined are its content; empty where there are none.

        Text that a person typed into the reply is one record with the id `records.TYPED` and no numbers.
        """
        found = self._records.get(id)
        message = self.conversation.messages.get(id) or self.conversation.partials[id]
        content = message.content
        return found if "".join(token.text for token in found) == content else records.fit(found, content)

    def turns(self, model: str, *, to: str | None = None) -> tuple[Turn, ...]:
        """The shown branch as the engine takes it, the system message first.

        Args:
            model: Replies of this model carry the ids that were sampled, so that they need not be tokenized again.
            to: Ends at this message instead of at the head.

        Raises:
            ChatappError: A message has a role that no model knows.
        """
        return prompts.turns(self.conversation.system, self.conversation.path(to), self._records, model)

    def reading(self, model: str, *, to: str | None = None) -> Iterator[None]:
        """Reads from the file what `turns` needs, a reply at each step, for whoever has to do something in between."""
        for message in self.conversation.path(to):
            if message.model == model and not self._records.knows_ids(message.id):
                self._records.ids(message.id, message.content)
                yield

    def prompt_of(self, id: str, model: str) -> tuple[Turn, ...]:
        """What a message was written after: the branch and the system message as they were then.

        Args:
            id: The message.
            model: As for `turns`.

        Raises:
            ChatappError: The file cannot be read, or a message has a role that no model knows.
        """
        try:
            then = prompts.before(self.storage.content(), id)
        except OSError as error:
            raise ChatappError(f"{self.path.name} cannot be read ({error.strerror or error}).") from error
        parent = self.conversation.messages[id].parent
        path = then.path(parent) if parent in then.messages else []
        return prompts.turns(then.system, path, self._records, model)

    # Changing --------------------------------------------------------------------------------------------------

    def add_message(
        self, role: str, content: str, parent: str | None = None, *, extra: Mapping[str, Any] | None = None
    ) -> Message:
        """Adds a message and shows it.

        Args:
            role: "user", "assistant", "tool" or "system".
            content: The text; lone surrogates become U+FFFD.
            parent: What it follows; None for the shown leaf, `ROOT` for nothing.
            extra: Further fields of another program's format.
        """
        message = self._new_message(role, content, self._parent(parent), extra=dict(extra or {}))
        title = steps.first_title(self.conversation, role, content)
        self._write(message, *steps.shown(self.conversation, message), *title, sync=True)
        return message

    def begin_reply(
        self,
        parent: str | None = None,
        model: str = "",
        sampling: Sampling | Mapping[str, Any] | None = None,
        continues: str | None = None,
        *,
        given: Sequence[Token] = (),
        setup: Mapping[str, Any] | None = None,
    ) -> ReplyWriter:
        """Begins a reply; nothing is written before its first text.

        Args:
            parent: The message it answers; None for the shown leaf. For a regeneration: the parent of the old reply.
            model: Who writes it.
            sampling: In force, its sampler included; the seed may follow in `ReplyWriter.finish`.
            continues: A reply to go on from. Its parent is taken over, its text and records come first in the new one.
            given: Tokens that the reply begins with without being drawn (a picked one and what is before it).
            setup: What else shapes the reply (``thinking``, ``max_kv_size``…), for `chatapp show --replay`.
        """
        self._must_be_writable()
        options: dict[str, Any] = msgspec.to_builtins(sampling or {})
        if continues:
            self._must_know(continues)
        base = self.conversation.messages[continues] if continues else None
        above = base.parent if base else self._parent(parent)
        begun = Message(
            self.new_id(), above, "assistant", "", events.now(), model, options,
            continues=continues, setup=dict(setup or {}),
        )  # fmt: skip
        return ReplyWriter(self, begun, base, given)

    def edit(
        self, id: str, content: str, keep_following: bool = False, *, tokens: Sequence[Token] | None = None
    ) -> Message:
        """Puts an edited version beside a message and shows it; the old one stays as an alternative.

        Args:
            id: The message.
            content: Its new text.
            keep_following: What follows the message goes on to follow its new version (both share it), and stays shown.
            tokens: Records of the new text; None keeps those at the beginning that still agree with it. To pick another
                token and go on from there: the tokens before it, then the picked one.
        """
        self._must_be_writable()
        self._must_know(id)
        old = self.conversation.messages[id]
        content = events.storable(content)
        kept = records.fit(self.tokens(id) if tokens is None else tokens, content)
        shared = keep_following and bool(self.conversation.children(id))
        mean, peak = records.doubt(kept)
        message = self._new_message(
            old.role, content, old.parent, model=old.model, edits=id, in_place=shared, extra=old.extra,
            mean_entropy=mean, peak_entropy=peak,
        )  # fmt: skip
        if kept:
            self._records.append(message.id, kept)
        self._write(message, steps.edited(self.conversation, message), sync=True)
        return message

    def set_head(self, id: str | None, *, exact: bool = False) -> None:
        """Shows the branch through a message, down to the leaf that was shown there last.

        Args:
            id: The message: an alternative, a leaf, a branch's. None shows the empty beginning.
            exact: End the shown branch at this very message, even if others follow it.
        """
        if id is not None:
            self._must_know(id)
        if id is None or exact:
            self._write(events.Head(id))
        else:
            self._write(steps.shown_through(self.conversation, id))

    def delete(self, id: str, *, following: bool = False) -> None:
        """Hides a message; ``following`` hides everything below it too. `undo` shows it again.

        Where the shown leaf goes, its neighbouring alternative is shown, else what came before.
        """
        self._must_be_writable()
        self._must_know(id)
        self._write(steps.hidden(self.conversation, id, following=following), sync=True)

    def undo(self) -> bool:
        """Takes back the last edit, regeneration, deletion, change of branch or of system message.

        Returns:
            False if there is none.
        """
        if not self.conversation.can_undo:
            return False
        self._write(events.Undo())
        return True

    def redo(self) -> bool:
        """Takes the last `undo` back. False: there is none."""
        if not self.conversation.can_redo:
            return False
        self._write(events.Redo())
        return True

    def rename(self, title: str) -> None:
        """Gives the conversation a title."""
        self._write(events.Title(events.storable(" ".join(title.split()))), sync=True)

    def set_system(self, content: str) -> None:
        """Changes the system message; empty for none."""
        self._write(events.System(events.storable(content)), sync=True)

    def set_settings(self, settings: Mapping[str, Any]) -> None:
        """Replaces what is set for this conversation. Plain JSON values only."""
        self._write(events.Settings(dict(settings)))

    def name_branch(self, name: str, id: str | None = None) -> None:
        """Names a leaf (None: the shown one), so that it can be listed and gone back to with `set_head`."""
        leaf = id or self.conversation.head
        if leaf is None:
            raise UsageError("There is nothing to name yet; write a message first.")
        self._must_know(leaf)
        self._write(events.Branch(events.storable(name), leaf))

    def remove_branch(self, name: str, *, messages: bool = False) -> None:
        """Takes a branch's name away; ``messages`` also deletes those that no other branch shares."""
        if name not in self.conversation.branches:
            raise UsageError(f"There is no branch named {name!r}.")
        leaf = self.conversation.branches[name]
        if messages:
            self.delete(steps.own_part(self.conversation, leaf), following=True)
        self._write(events.Branch(name))

    def branch(self, id: str | None = None) -> ConversationSession:
        """A new conversation that begins with the shown branch up to a message (None: all of it), heat included."""
        return self._store.branch(self, id)

    def fork(self) -> ConversationSession:
        """A new conversation with everything that this one holds: what to do when it is read-only."""
        return self._store.fork(self)

    # Files -----------------------------------------------------------------------------------------------------

    def retry(self) -> bool:
        """Writes what waits in memory; True when everything is on disk."""
        return self.storage.retry()

    def poll(self) -> bool:
        """In a read-only session: takes in what another process has written. True if anything changed."""
        if self.read_only is None:
            return False
        reading, replaced = self.storage.poll()
        if replaced:
            self.conversation = fold(reading.events)
        else:
            for event in reading.events:
                self.conversation.apply(event)
        return replaced or bool(reading.events)

    def content(self) -> bytes:
        """The file's lines, those that wait in memory included.

        Raises:
            OSError: The file cannot be read.
        """
        return self.storage.content()

    def close(self) -> str | None:
        """Writes what waits and gives the file free.

        Returns:
            None; where the disk does not take everything, what the person should be told: where the rest is kept until
            the conversation is opened again.
        """
        return self.storage.close(self.conversation.title or self.id)

    def begin_file(self, first: events.Opened) -> None:
        """For the store: the file's first line, written with the first change."""
        self.storage.begin(first)
        self.conversation.apply(first)

    def fill(
        self, messages: Sequence[Message], head: str | None, title: str, tokens: Mapping[str, Sequence[Token]]
    ) -> None:
        """For the store: begins with given messages, parents first, in one go.

        Args:
            messages: With ids of their own.
            head: The leaf to show; None for the last message.
            title: Empty: the beginning of the first message of the person.
            tokens: Records by message id.
        """
        for id, found in tokens.items():
            if found:
                self._records.append(id, found)
        self._write(*steps.filled(messages, head, title), sync=True)

    def write_partial(self, partial: events.Partial, tokens: Sequence[Token], start: int) -> None:
        """For `ReplyWriter`: a recovery line, after the records of its text, which begin at ``start``."""
        if tokens:
            self._records.append(partial.id, tokens, start)
        self._write(partial, remember=False)

    def finish_reply(
        self, message: Message, tokens: Sequence[Token], *, recorded: int | None = None, show: bool = True
    ) -> Message:
        """For `ReplyWriter`: the reply, after its records.

        Args:
            message: The reply.
            tokens: All its records.
            recorded: How many of them are written and still right; None where none were written yet.
            show: Show it.
        """
        if recorded is not None or tokens:
            self._records.append(message.id, tokens[recorded or 0 :], recorded or 0)
        if not show:
            message = msgspec.structs.replace(message, aside=True)
        self._write(message, *(steps.shown(self.conversation, message) if show else ()), sync=True)
        return message

    def new_id(self) -> str:
        """An id that no message here has."""
        while (id := secrets.token_hex(4)) in self.conversation.messages:
            pass
        return id

    @property
    def _records(self) -> Records:
        return self.storage.records

    def _new_message(self, role: str, content: str, parent: str | None, **fields: Any) -> Message:
        return Message(self.new_id(), parent, role, events.storable(content), events.now(), **fields)

    def _parent(self, parent: str | None) -> str | None:
        if parent is None:
            return self.conversation.head
        if parent != ROOT:
            self._must_know(parent)
        return parent or None

    def _write(self, *lines: events.KnownEvent, sync: bool = False, remember: bool = True) -> None:
        self._must_be_writable()
        self.storage.write(lines, sync=sync)
        if remember:
            for event in lines:
                self.conversation.apply(event)

    def _must_be_writable(self) -> None:
        if self.read_only:
            raise ChatappError(f"{self.read_only} Fork it to go on in a copy.", "usage")

    def _must_know(self, id: str) -> None:
        if id not in self.conversation.messages:
            raise UsageError(f"There is no message {id!r} in this conversation.")
