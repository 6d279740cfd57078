"""``chatapp show --replay``: draws saved replies again from what their file says, and compares the token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from chatapp.commands.conversations import one_line, print_json
from chatapp.commands.running import Running, run_until_done, running
from chatapp.conversation.events import Message
from chatapp.conversation.records import TYPED
from chatapp.conversation.reply import LOADED_WITH
from chatapp.conversation.session import ConversationSession
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Ended, Generate, Load, Sampling, Tokens, Turn
from chatapp.text import visible
from chatapp.tokens import Token


@dataclass(frozen=True)
class Reply:
    """A reply that can be drawn again.

    Attributes:
        message: As it was saved.
        given: Ids that it began with, without being drawn.
        drawn: Ids that were drawn after them.
        turns: The prompt; where there are given ids, the beginning of the reply is its last turn.
        sampling: With the seed that was used; ends after as many tokens as were drawn.
    """

    message: Message
    given: tuple[int, ...]
    drawn: tuple[int, ...]
    turns: tuple[Turn, ...]
    sampling: Sampling


def replay(session: ConversationSession, id: str, as_json: bool) -> int:
    """Draws replies again and prints for each whether the ids are equal.

    Args:
        session: The conversation.
        id: Of one reply; empty for all of the shown branch.
        as_json: One JSON object a line.

    Returns:
        0 if all are equal, else 1.

    Raises:
        ChatappError: There is no such reply, or none that can be drawn again.
    """
    messages = [_message(session, id)] if id else [m for m in session.conversation.path() if m.role == "assistant"]
    replies: list[Reply] = []
    for message in messages:
        found = saved_reply(session, message)
        if isinstance(found, str):
            _tell(as_json, message, "skipped", found)
        else:
            replies.append(found)
    if not replies:
        raise ChatappError("No reply here can be drawn again: that needs its model, its seed and its token records.")
    equal = True
    for model, setup in dict.fromkeys((reply.message.model, _load_options(reply)) for reply in replies):
        group = [r for r in replies if (r.message.model, _load_options(r)) == (model, setup)]
        equal &= run_until_done(_replay(model, setup, group, as_json)) == 0
    return 0 if equal else 1


def _message(session: ConversationSession, id: str) -> Message:
    message = session.conversation.messages.get(id)
    if message is None or message.role != "assistant":
        raise UsageError(f"There is no reply {id!r} in this conversation; see: chatapp show NAME --json")
    return message


def saved_reply(session: ConversationSession, message: Message) -> Reply | str:
    """What a reply was made from, or why that is not known."""
    tokens = session.tokens(message.id)
    ids = tuple(token.id for token in tokens)
    if not message.model or not tokens:
        return "has no model or no token records"
    if "seed" not in message.sampling:
        return "has no seed"
    if TYPED in ids:
        return "was edited: a typed text has no token ids"
    try:
        sampling = msgspec.convert(message.sampling, Sampling, strict=False)
    except msgspec.ValidationError:
        return "has sampling options of another version"
    given = _given(message, tokens)
    if given >= len(ids):
        return "has no token that was drawn"
    before = session.prompt_of(message.id, message.model)
    beginning = "".join(token.text for token in tokens[:given])
    turns = (*before, Turn("assistant", beginning, ids[:given])) if given else before
    drawn = ids[given:]
    return Reply(message, ids[:given], drawn, turns, msgspec.structs.replace(sampling, max_tokens=len(drawn)))


def _given(message: Message, tokens: list[Token]) -> int:
    """How many tokens were there first; in replies that do not say it, those up to the last picked one."""
    picked = [place + 1 for place, token in enumerate(tokens) if token.state == "picked"]
    return max(message.given, *picked) if picked else message.given


def _load_options(reply: Reply) -> tuple[tuple[str, Any], ...]:
    setup = reply.message.setup
    return tuple((name, setup[name]) for name in ("max_kv_size", *LOADED_WITH) if name in setup)


async def _replay(model: str, setup: tuple[tuple[str, Any], ...], replies: list[Reply], as_json: bool) -> int:
    equal = True
    async with running(lambda number: Load(number, model, **dict(setup))) as run:
        for reply in replies:
            ids = await _drawn(run, reply)
            same = ids == reply.drawn
            equal &= same
            _tell(as_json, reply.message, "equal" if same else "different", _comparison(reply.drawn, ids))
    return 0 if equal else 1


async def _drawn(run: Running, reply: Reply) -> tuple[int, ...]:
    """The ids that the engine draws now. No cache is kept between replies, so each is read from its beginning."""
    ids: list[int] = []
    thinking = reply.message.setup.get("thinking")
    async for event in run.events(
        lambda number: Generate(
            number, "", reply.turns, reply.sampling, continue_last=bool(reply.given), alternatives=0, thinking=thinking
        )
    ):
        match event:
            case Tokens():
                ids += [token.id for token in event.tokens]
            case Ended(finish="error", message=message):
                raise ChatappError(message)
            case _:
                pass
    return tuple(ids)


def _comparison(saved: tuple[int, ...], again: tuple[int, ...]) -> str:
    if saved == again:
        return f"{len(saved)} token ids"
    first = next((i for i, (a, b) in enumerate(zip(saved, again, strict=False)) if a != b), min(len(saved), len(again)))
    return f"first difference at drawn token {first} of {len(saved)}"


def _tell(as_json: bool, message: Message, outcome: str, detail: str) -> None:
    if as_json:
        print_json({"type": "replay", "id": message.id, "outcome": outcome, "detail": detail})
    else:
        print(f"{message.id}  {outcome:9}  {visible(detail)}  {one_line(message.content, 40)}")
