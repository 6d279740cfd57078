"""Actions on tokens: the keys while the token cursor is in a reply."""

from __future__ import annotations

import math

from chatapp.tokens import Token
from chatapp.ui.actions.base import Group
from chatapp.ui.changes import Refused
from chatapp.ui.widgets.marks import marked


class TokenActions(Group):
    def leave(self, argument: str) -> None:
        self.transcript.leave_tokens()

    def previous(self, argument: str) -> None:
        self.transcript.move_token(-1)

    def next(self, argument: str) -> None:
        self.transcript.move_token(1)

    def next_word(self, argument: str) -> None:
        self.transcript.move_word(1)

    def previous_word(self, argument: str) -> None:
        self.transcript.move_word(-1)

    def next_uncertain(self, argument: str) -> None:
        if not self.transcript.next_uncertain(1):
            raise Refused("There is no uncertain token after this one.")

    def previous_uncertain(self, argument: str) -> None:
        if not self.transcript.next_uncertain(-1):
            raise Refused("There is no uncertain token before this one.")

    def first(self, argument: str) -> None:
        self._go(0)

    def last(self, argument: str) -> None:
        self._go(1 << 40)

    def _go(self, index: int) -> None:
        message, _ = self._cursor()
        self.transcript.focus_token(message, index)

    async def alternatives(self, argument: str) -> None:
        self._cursor()
        await self.screen.groups.app.show_inspector()

    def pick(self, argument: str) -> None:
        message, index = self._cursor()
        token = self.transcript.focused_token
        rank = self.number(argument, 1, 1, 9)
        if token is None or rank > len(token.top):
            raise Refused("That alternative was not recorded for this token.")
        chosen = token.top[rank - 1]
        if chosen.id == token.id:
            raise Refused("That is the token it already is; pick another one.")
        self.chat.pick(message, index, chosen)
        self.transcript.leave_tokens()
        self.transcript.follow()
        self.screen.tick()

    def sample(self, argument: str) -> None:
        message, index = self._cursor()
        self.chat.sample(message, index, self.number(argument, 4, 2, 8))
        self.transcript.leave_tokens()
        self.transcript.follow()
        self.screen.tick()

    async def attention(self, argument: str) -> None:
        if argument not in ("", "on", "off"):
            raise Refused("/attention takes on or off; without one of them it shows what the token looked at.")
        token = self.transcript.focused_token
        if not argument and token is not None and token.attention is not None:
            await self.screen.groups.app.show_inspector()
            return
        recorded = self.chat.option("attention", self.workspace.settings.attention)
        if not argument and recorded:
            raise Refused("What this token looked at was not recorded; /attention off ends the recording.")
        wanted = argument != "off"
        self.chat.set_option("attention", wanted)
        self.say("Attention is recorded from the next reply on." if wanted else "Attention is not recorded any more.")

    def ask_pending(self, message: str, pending: Token) -> None:
        """A reply has paused: asks which token comes next."""
        from chatapp.ui.screens.pick import PickScreen

        values = [
            (str(rank), f"{math.exp(each.logprob):6.1%}  {marked(each.text)}") for rank, each in enumerate(pending.top)
        ]

        def chosen(rank: str | None) -> None:
            if rank is not None and not self.chat.busy:
                self.chat.resume(message, pending, pending.top[int(rank)])
                self.screen.tick()

        title = f"Paused: the next token has {pending.entropy:.2f} nats. Which one?"
        self.screen.ask(PickScreen(title, values), chosen)

    def _cursor(self) -> tuple[str, int]:
        message, index = self.transcript.message_cursor, self.transcript.token_cursor
        if message is None or index is None:
            raise Refused("Go to a token first: t in the transcript.")
        return message, index
