"""Chat template to token ids: the prompt of a conversation, with the ids of sampled replies in their places.

A reply that is continued is appended to the prompt that opened it, without the template's closing marks, so that its
ids stand where they stood when they were sampled.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import jinja2

from chatapp.engine.decode.text import decode, hidden_ids
from chatapp.engine.encoding import Encoded, Encoder, Piece
from chatapp.engine.layout import lay_out
from chatapp.errors import ChatappError
from chatapp.models.registry import TemplateOptions
from chatapp.protocol import Turn
from chatapp.text import visible

#: Ends a reply of a model without a chat template, which would otherwise go on with the next question itself.
PLAIN_STOPS = ("\nUser:",)

Message = dict[str, str]

#: What a decoder gives for bytes that are no whole code point; a reply that was cut there ends without them.
_INCOMPLETE = "\ufffd"

#: What a template's code may raise: it is a program by somebody else.
_TEMPLATE_ERRORS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Rendered:
    """A prompt.

    Attributes:
        ids: Token ids.
        spans: For each turn the first and one-past-last position of its content; (0, 0) where the template left it
            out or rewrote it beyond recognition.
        system_end: How many of the first ids are the system message with the marks around it; where no turn is one,
            what stands before the first message (a default system text of the template's own, opening marks).
    """

    ids: list[int]
    spans: tuple[tuple[int, int], ...]
    system_end: int


class Template:
    """The chat template of one loaded model."""

    def __init__(self, tokenizer: Any, options: TemplateOptions | None = None) -> None:
        self._tokenizer = tokenizer
        self._options = options or TemplateOptions()
        self._encoder = Encoder(tokenizer)
        self._hidden = hidden_ids(tokenizer)
        self._cached_fitting = lru_cache(4096)(self._fitting)

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a reply because of how prompts are built."""
        return () if self._tokenizer.has_chat_template else PLAIN_STOPS

    @cached_property
    def thinking_key(self) -> str:
        """The template variable that switches reasoning; empty if there is none."""
        if self._options.thinking_key:
            return self._options.thinking_key
        source = str(getattr(self._tokenizer, "chat_template", None) or "")
        return next((key for key in ("enable_thinking", "thinking") if re.search(rf"\b{key}\b", source)), "")

    def render(self, turns: Sequence[Turn], continue_last: bool = False, thinking: bool | None = None) -> Rendered:
        """Builds the prompt.

        Args:
            turns: Oldest first, the system message included.
            continue_last: The last turn is a reply that goes on; otherwise a new reply is opened.
            thinking: Reasoning on or off; None leaves the registry's or the template's default.

        Raises:
            ChatappError: The template failed on these turns.
        """
        if continue_last and (not turns or turns[-1].role != "assistant"):
            raise ChatappError("Only a reply can be continued, and the last message is not one.", "usage")
        closed = turns[:-1] if continue_last else turns
        text, shape = self._text(closed, thinking)
        pieces = lay_out(closed, text, lambda contents: self._apply(shape(closed, contents), thinking))
        system = self._system_text(closed, pieces, thinking)
        if continue_last and (turns[-1].content or turns[-1].tokens):
            pieces.append(Piece(turns[-1].content, len(closed), "assistant"))
        return self._assemble(turns, pieces, len(system))

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text on its own, begun as this tokenizer begins texts; nothing in it becomes a control token."""
        return self._encoder.encode([Piece(self._opening), Piece(text, 0, "user")], first=True).ids

    def _text(self, turns: Sequence[Turn], thinking: bool | None) -> tuple[str, Shape]:
        """The prompt's text, in the first shape that the template takes and that keeps the system message."""
        shapes: list[Shape] = [_as_given, _system_in_user, _alternating]
        if not self._options.system:
            shapes.remove(_as_given)
        failure: ChatappError | None = None
        contents = [turn.content for turn in turns]
        for shape in shapes:
            try:
                text = self._apply(shape(turns, contents), thinking)
            except ChatappError as error:
                failure = failure or error
                continue
            if not turns or turns[0].role != "system" or turns[0].content.strip() in text or shape is shapes[-1]:
                return text, shape
        assert failure is not None, "the last shape renders or fails"
        raise failure

    def _apply(self, messages: list[Message], thinking: bool | None, opened: bool = True) -> str:
        """Runs the template; ``opened`` ends the text where the reply begins."""
        if not self._tokenizer.has_chat_template:
            return self._plain(messages, opened)
        variables: dict[str, Any] = dict(self._options.variables)
        switch = thinking if thinking is not None else self._options.thinking
        if switch is not None and self.thinking_key:
            variables[self.thinking_key] = switch
        try:
            return str(
                self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opened, **variables)
            )
        except _TEMPLATE_ERRORS as error:
            reason = visible(str(error).strip().split("\n")[0][:200]).rstrip(".")
            raise ChatappError(
                f"The model's chat template does not take this conversation ({reason}): "
                "change the messages that it names, or choose another model.",
                "template",
            ) from error

    def _plain(self, messages: list[Message], opened: bool) -> str:
        """The layout for models without a template: labelled paragraphs, as base models have read often."""
        labels = {"user": "User:\n", "assistant": "Assistant:\n", "tool": "Tool:\n", "system": ""}
        text = "".join(f"{labels[message['role']]}{message['content']}\n\n" for message in messages)
        return self._opening + text + (labels["assistant"] if opened else "")

    @cached_property
    def _opening(self) -> str:
        """The begin-of-text token's text, where this tokenizer starts every text with it."""
        first = next(iter(self._tokenizer.encode("a")))
        return str(self._tokenizer.bos_token) if first == self._tokenizer.bos_token_id else ""

    def _system_text(self, turns: Sequence[Turn], pieces: Sequence[Piece], thinking: bool | None) -> str:
        whole = "".join(piece.text for piece in pieces)
        if turns and turns[0].role == "system":
            try:
                alone = self._apply(_as_given(turns[:1], [turns[0].content]), thinking, opened=False)
            except ChatappError:
                alone = ""  # the template wants a user's message too: the system message ends with its own text
            if alone and whole.startswith(alone):
                return alone
        first = 1 if turns and turns[0].role == "system" and any(piece.turn == 0 for piece in pieces) else 0
        return "".join(piece.text for piece in itertools.takewhile(lambda piece: piece.turn < first, pieces))

    def _assemble(self, turns: Sequence[Turn], pieces: Sequence[Piece], system_length: int) -> Rendered:
        """Tokenizes run by run; a sampled reply ends a run and brings its own ids."""
        ids: list[int] = []
        spans = [(0, 0)] * len(turns)
        system_end = 0
        for sampled, run in itertools.groupby(self._spliced(pieces, turns), key=lambda piece: piece.ids != ()):
            run = list(run)
            begin = len(ids)
            if sampled:
                for piece in run:
                    spans[piece.turn] = (len(ids), len(ids) + len(piece.ids))
                    ids += piece.ids
                continue
            encoded = self._encoder.encode(run, first=not ids)
            for turn, (first, end) in _spans(run, encoded):
                # The rest of a reply whose first part was spliced in begins where that part does.
                spliced = spans[turn][1] == begin > 0
                spans[turn] = (spans[turn][0] if spliced else begin + first, begin + end)
            if not ids:
                system_end = sum(end <= system_length for _, end in encoded.offsets)
            ids += encoded.ids
        return Rendered(ids, tuple(spans), system_end)

    def _spliced(self, pieces: Iterable[Piece], turns: Sequence[Turn]) -> Iterator[Piece]:
        """The pieces, sampled ids put in where the template shows a reply as it is but for spaces around it."""
        for piece in pieces:
            turn = turns[piece.turn] if piece.turn >= 0 else None
            if turn is None or not turn.tokens or piece.text not in (turn.content, turn.content.strip()):
                yield piece
                continue
            count, text = self._cached_fitting(turn)
            if count:
                yield replace(piece, ids=turn.tokens[:count])
            rest = turn.content[len(text) :] if count else piece.text
            if rest:
                yield replace(piece, text=rest)

    def _fitting(self, turn: Turn) -> tuple[int, str]:
        """How many of a reply's ids its text agrees with, and what they spell.

        All but the last, where a stop string cut that one; none where somebody changed the text.
        """
        for count in (len(turn.tokens), len(turn.tokens) - 1):
            shown = [token for token in turn.tokens[:count] if token not in self._hidden]
            text = decode(self._tokenizer, shown) if shown else ""
            if text.rstrip(_INCOMPLETE) == turn.content.rstrip(_INCOMPLETE):
                return count, turn.content
            if count < len(turn.tokens) and turn.content.startswith(text):
                return count, text
        return 0, ""


def _spans(run: Sequence[Piece], encoded: Encoded) -> Iterator[tuple[int, tuple[int, int]]]:
    """For each turn of a run the positions of the tokens that hold a character of it."""
    begins = [begin for begin, _ in encoded.offsets]
    ends = [end for _, end in encoded.offsets]
    stop = 0
    for piece in run:
        start, stop = stop, stop + len(piece.text)
        if piece.turn >= 0:
            first = bisect.bisect_right(ends, start)
            yield piece.turn, (first, max(first, bisect.bisect_left(begins, stop)))


#: How turns with these contents become the messages that a template is given.
Shape = Callable[[Sequence[Turn], Sequence[str]], list[Message]]


def _as_given(turns: Sequence[Turn], contents: Sequence[str]) -> list[Message]:
    return [{"role": turn.role, "content": content} for turn, content in zip(turns, contents, strict=True)]


def _system_in_user(turns: Sequence[Turn], contents: Sequence[str]) -> list[Message]:
    """For templates without a place for a system message: it opens the first message of the user."""
    messages = _as_given(turns, contents)
    if len(messages) < 2 or messages[0]["role"] != "system" or messages[1]["role"] != "user":
        return messages
    system, user, *rest = messages
    return [{"role": "user", "content": f"{system['content']}\n\n{user['content']}"}, *rest]


def _alternating(turns: Sequence[Turn], contents: Sequence[str]) -> list[Message]:
    """For templates that want user and assistant by turns: neighbours of one role become one message."""
    messages: list[Message] = []
    for message in _system_in_user(turns, contents):
        if messages and messages[-1]["role"] == message["role"]:
            message = {**message, "content": f"{messages.pop()['content']}\n\n{message['content']}"}
        messages.append(message)
    return messages
