"""What the model thought of text that it read and did not write: the person's own messages, and edited ones.

Kept for as long as the conversation is open. It is for looking at; prompts and files never have it.
"""

from __future__ import annotations

from collections.abc import Sequence

from chatapp.conversation.records import TYPED, typed
from chatapp.protocol import Scored
from chatapp.tokens import Token


class PromptScores:
    """Records of the tokens of messages, as `chatapp.protocol.Scored` brought them."""

    def __init__(self) -> None:
        self._read: dict[str, dict[int, Token]] = {}
        self._fresh: set[str] = set()
        self._ids: Sequence[str | None] = ()

    def expect(self, ids: Sequence[str | None]) -> None:
        """Says which message each turn of the coming prompt is; None for one that is no message."""
        self._ids = ids

    def take(self, event: Scored) -> None:
        """Keeps what came for one turn."""
        id = self._ids[event.turn] if 0 <= event.turn < len(self._ids) else None
        if id is not None:
            self._read.setdefault(id, {}).update((token.index, token) for token in event.tokens)
            self._fresh.add(id)

    def fresh(self) -> set[str]:
        """The messages of which something came since the last call."""
        fresh, self._fresh = self._fresh, set()
        return fresh

    def over(self, id: str, content: str, sampled: Sequence[Token]) -> Sequence[Token]:
        """The records of a message: those that were sampled, and those that were read where there are none.

        Args:
            id: The message.
            content: Its text.
            sampled: Its records in the file; a text that was typed into a reply is one record without numbers.
        """
        read = self._read.get(id)
        if not read or (sampled and all(token.id != TYPED for token in sampled)):
            return sampled
        return spelling(content, sampled, [read[index] for index in sorted(read)])


def spelling(content: str, sampled: Sequence[Token], read: Sequence[Token]) -> list[Token]:
    """Records whose texts joined end the content, as many of them sampled as are before those that were read.

    A prompt is read from the first token that is not in the cache, so that ``read`` may be the end of a message only;
    templates leave out white space around a message.
    """
    text = "".join(token.text for token in read)
    start = content.rfind(text)
    if start < 0 or content[start + len(text) :].strip():
        return list(sampled)
    kept: list[Token] = []
    length = 0
    for token in sampled:
        if token.id == TYPED or length + len(token.text) > start:
            break
        kept.append(token)
        length += len(token.text)
    if kept and length < start:
        kept.append(typed(content[length:start], len(kept)))
    rest = content[start + len(text) :]
    return [*kept, *read, *([typed(rest, 0)] if rest else [])]
