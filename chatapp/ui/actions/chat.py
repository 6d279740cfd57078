"""Actions on the conversation as a whole."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from chatapp.models.ranges import SAMPLING, out_of_range, unknown_sampler
from chatapp.protocol import Sampling
from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.requests import SYSTEM

if TYPE_CHECKING:
    from chatapp.conversation.session import ConversationSession


#: Kinds of values as msgspec names them, in words.
_WANTED = {"float": "a number", "int": "a whole number", "object": "a JSON object"}


class ChatActions(Group):
    def stop(self, argument: str) -> None:
        if not self.halt():
            raise Refused("Nothing is being written or downloaded.")

    def system(self, argument: str) -> None:
        if argument:
            self.chat.set_system(argument)
            self.screen.tick()
        else:
            self.screen.groups.edit.open(SYSTEM)

    def sampling(self, argument: str) -> None:
        from chatapp.ui.screens.sampling import SamplingScreen

        self._writable()
        screen = SamplingScreen(self.chat.option("sampling", {}), self.chat.sampling, self._model_sampling())
        self.screen.ask(screen, self._take_sampling)

    def _model_sampling(self) -> Sampling:
        loaded = self.workspace.link.status.loaded
        return loaded.sampling if loaded is not None else Sampling()

    def _take_sampling(self, options: dict[str, Any] | None) -> None:
        if options is not None:
            self.chat.set_option("sampling", options or None)

    def set(self, argument: str) -> None:
        name, _, value = argument.replace("=", " ", 1).partition(" ")
        if name not in Sampling.__struct_fields__:
            raise Refused(f"/set takes one of {', '.join(Sampling.__struct_fields__)} and a value.")
        self._writable()
        options = {**self.chat.option("sampling", {}), **parsed(name, value.strip())}
        self.chat.set_option("sampling", {key: kept for key, kept in options.items() if kept is not None} or None)
        self.say(f"{name} is {value.strip() or 'the default'} from the next reply on.")

    def pause(self, argument: str) -> None:
        self._writable()
        if argument in ("off", ""):
            self.chat.set_option("pause_above", None)
            self.say("Replies are not paused; /pause 3 stops before a token with more than 3 nats.")
            return
        self.chat.set_option("pause_above", positive(argument))
        self.say(f"Replies stop before a token with more than {argument} nats.")

    def thinking(self, argument: str) -> None:
        self._writable()
        loaded = self.workspace.link.status.loaded
        if loaded is not None and not loaded.thinking:
            raise Refused(f"{loaded.title} has no switch for reasoning.")
        if argument not in ("", "on", "off"):
            raise Refused("/thinking takes on or off; without one of them the model's default holds again.")
        self.chat.set_option("thinking", {"on": True, "off": False}.get(argument))
        self.say(f"Reasoning is {argument or 'as the model has it'} from the next reply on.")

    def rename(self, argument: str) -> None:
        self._writable()
        if argument:
            self._rename(argument)
            return
        from chatapp.ui.screens.ask import AskScreen

        title = self.chat.session.conversation.title
        self.screen.ask(AskScreen("Title of this conversation", title), self._rename)

    def _rename(self, title: str | None) -> None:
        if title and title.strip():
            self.chat.session.rename(title)
            self.screen.rebuild()

    def export(self, argument: str) -> None:
        from chatapp.conversation.exchange.registry import exporter, format_of
        from chatapp.conversation.exchange.transcript import transcript_of

        session = self.chat.session
        if not session.conversation.messages:
            raise Refused("There is nothing to export yet.")
        path = Path(argument or f"{file_name(session.conversation.title)}.html").expanduser().absolute()
        write, transcript = exporter(format_of(path.suffix)).write, transcript_of(session)

        async def export() -> None:  # a page of a long conversation takes seconds
            text = await asyncio.to_thread(write, transcript, tree=False)
            try:
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise Refused(f"{path} cannot be written: {error.strerror}.") from error
            self.say(f"Written to {path}.")

        self.screen.work(export)

    def retry_save(self, argument: str) -> None:
        if self.chat.session.trouble is None:
            self.say("Everything is saved.")
        elif self.chat.session.retry():
            self.say("Saved.")
        else:
            raise Refused(self.chat.session.trouble or "It could not be saved.")

    def save_elsewhere(self, argument: str) -> None:
        if not argument:
            raise Refused("Name a folder on another disk: /save-to FOLDER.")
        self.say(f"Written to {save_copy(self.chat.session, argument)}.")

    def score(self, argument: str) -> None:
        self._writable()
        if argument not in ("", "on", "off"):
            raise Refused("/score takes on or off; without one of them it changes over.")
        wanted = argument == "on" if argument else not self.chat.scores_prompts
        self.chat.set_option("score", wanted)
        self.screen.views.forget()
        self.screen.rebuild()
        self.say(
            "From the next reply on, messages that the model reads get their heat; they are read a little slower."
            if wanted
            else "Only what the model wrote has heat."
        )

    def _writable(self) -> None:
        if self.chat.session.read_only:
            raise Refused(f"{self.chat.session.read_only} b in the transcript goes on in a copy.")


def save_copy(session: ConversationSession, folder: str) -> Path:
    """Writes a conversation's file, what waits in memory included, to another folder; `chatapp import` takes it in.

    Raises:
        Refused: It cannot be written there.
    """
    path = Path(folder).expanduser().absolute() / f"{session.id}.jsonl"
    try:
        content = session.content()
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise Refused(f"{path} is there already; name another folder.") from None
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}.") from error
    return path


def parsed(name: str, value: str) -> dict[str, Any]:
    """A sampling option from its text; None in its place where the text is empty.

    Raises:
        Refused: The value does not fit the option.
    """
    if not value or value == "default":
        return {name: None}
    given: Any = value
    if name == "stop":
        given = [value]
    elif name in ("logit_bias", "options"):
        try:
            given = msgspec.json.decode(value)
        except msgspec.DecodeError as error:
            raise Refused(f"{name} takes a JSON object: {error}.") from error
    try:
        read = msgspec.convert({name: given}, Sampling, strict=False)
    except msgspec.ValidationError as error:
        wanted = next((words for kind, words in _WANTED.items() if f"`{kind}" in str(error)), "another kind of value")
        raise Refused(f"{value!r} does not fit {name}, which takes {wanted}.") from error
    held = getattr(read, name)
    words = unknown_sampler(held) if name == "sampler" else out_of_range(name, held) if name in SAMPLING else ""
    if words:
        raise Refused(f"{value!r} does not fit {name}: {words}")
    return {name: msgspec.to_builtins(read, str_keys=True)[name]}


def positive(text: str) -> float:
    """A number of nats from its text.

    Raises:
        Refused: It is no number above zero.
    """
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < 1000:
        raise Refused(f"A number of nats above 0 is wanted here, not {text!r}.")
    return number


def file_name(title: str) -> str:
    """A title as the name of a file: letters, digits and dashes."""
    kept = "".join(character if character.isalnum() else "-" for character in title.lower())
    return "-".join(part for part in kept.split("-") if part)[:60] or "conversation"
