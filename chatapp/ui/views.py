"""From a chat to what the transcript shows: message views, and what of them the model still sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import cast, overload

from chatapp.conversation.events import Message
from chatapp.conversation.store import OPEN_ELSEWHERE
from chatapp.protocol import Role, Started
from chatapp.tokens import Finish, Token
from chatapp.ui.chat import Chat
from chatapp.ui.reply import Reply
from chatapp.ui.requests import SYSTEM
from chatapp.ui.transcript import Memory, MessageView, TokenMap


class Views:
    """Makes the views of one chat; views of messages that did not change are kept, their token records with them."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._known: dict[str, MessageView] = {}

    def shown(self) -> list[MessageView]:
        """The views of the shown branch, a reply in flight at the end."""
        chat = self._chat
        for id in chat.scores.fresh():
            self._known.pop(id, None)
        views = [MessageView(SYSTEM, "system", chat.session.conversation.system)]
        if not views[0].content:
            views.clear()
        views += [self._view(message) for message in chat.path()]
        if chat.reply is not None and chat.reply.written:
            views.append(_growing(chat.reply))
        elif (elsewhere := chat.session.growing) is not None:
            views.append(_followed(chat, elsewhere))
        return views

    def one(self, id: str) -> MessageView:
        """The view of any message of the tree."""
        return self._view(self._chat.message(id))

    def forget(self) -> None:
        """Makes all views anew when they are next shown."""
        self._known.clear()

    def _view(self, message: Message) -> MessageView:
        siblings = [other.id for other in self._chat.session.conversation.siblings(message.id)]
        view = self._known.get(message.id)
        if view is None:
            view = MessageView(
                message.id,
                _role(message.role),
                message.content,
                tokens=_Tokens(partial(self._chat.tokens, message)),
                model=short_model(message.model),
                finish=cast(Finish, message.finish) if message.finish else None,
                note="edited" if message.edits else "",
            )
        view = replace(view, alternative=siblings.index(message.id) + 1, alternatives=len(siblings))
        self._known[message.id] = view
        return view


def _growing(reply: Reply) -> MessageView:
    writer = reply.written[0].writer
    model = short_model(reply.model)
    several = f"1 of {reply.job.candidates} at once" if reply.job.candidates > 1 else ""
    return MessageView(
        writer.id, "assistant", writer.text, tuple(writer.tokens), model=model, streaming=True, note=several
    )


def _followed(chat: Chat, message: Message) -> MessageView:
    """A reply that another process is writing, or that was cut off in a file that cannot be written to."""
    tokens = tuple(chat.session.tokens(message.id))
    live = chat.session.read_only == OPEN_ELSEWHERE
    finish: Finish | None = None if live else "error"
    return MessageView(
        message.id, "assistant", message.content, tokens, short_model(message.model), finish, streaming=live
    )


def short_model(name: str, width: int = 22) -> str:
    """A model's name where there is little room: of a folder its last part, cut to a width in characters."""
    last = name.rstrip("/").rpartition("/")[2] if name.startswith(("/", "~", ".", "path:", "gguf:")) else name
    return last if len(last) <= width else f"{last[: width - 1]}…"


def _role(role: str) -> Role:
    match role:
        case "system" | "user" | "assistant" | "tool":
            return role
        case _:
            return "user"


def memory(views: list[MessageView], started: Started | None, cached: int, capacity: int) -> Memory:
    """What the model still sees of the views, from the positions of their turns (design §4).

    The positions from K up to ``cached - (capacity - K)`` are evicted.

    Args:
        views: As shown, the system message first if there is one.
        started: What the engine said of the last prompt; its spans are those of the views, in order.
        cached: Tokens that the cache has taken in.
        capacity: C.
    """
    if started is None or cached <= capacity:
        return Memory()
    first_live = cached - (capacity - started.keep)
    spans = list(started.spans)
    if len(spans) < len(views):  # the reply that followed
        spans.append((started.prompt_tokens, cached))
    kept = frozenset(view.id for view, (_, end) in zip(views, spans, strict=False) if end <= started.keep)
    for view, (start, end) in zip(views, spans, strict=False):
        if first_live < end:
            return Memory((view.id, _character(view, first_live - start, end - start)), kept)
    return Memory()


def _character(view: MessageView, token: int, tokens: int) -> int:
    """Where in a view's content one of its tokens begins; estimated where its tokens are not known."""
    if token <= 0:
        return 0
    if len(view.tokens) == tokens:
        return TokenMap(view.content, view.tokens).span(token)[0]
    return len(view.content) * token // max(1, tokens)


class _Tokens(Sequence[Token]):
    """Token records that are read from the file when somebody looks at them: most messages are not in view."""

    def __init__(self, read: Callable[[], Sequence[Token]]) -> None:
        self._read = read

    @cached_property
    def _tokens(self) -> tuple[Token, ...]:
        return tuple(self._read())

    def forget(self) -> None:
        """They are read again when somebody looks again."""
        self.__dict__.pop("_tokens", None)

    @overload
    def __getitem__(self, index: int) -> Token: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Token]: ...

    def __getitem__(self, index: int | slice) -> Token | Sequence[Token]:
        return self._tokens[index]

    def __len__(self) -> int:
        return len(self._tokens)
