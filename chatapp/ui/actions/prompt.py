"""Actions of the prompt."""

from __future__ import annotations

from pathlib import Path

from chatapp.ui import commands
from chatapp.ui.actions.base import Group
from chatapp.ui.prompt import standins
from chatapp.ui.prompt.attachments import attach


class PromptActions(Group):
    async def send(self, argument: str) -> None:
        area = self.screen.prompt.area
        text = area.full_text
        if not text.strip():
            return
        if commands.is_command(text):
            call = commands.parse(text)
            area.show_text("")
            self.screen.history.add(text)
            await self.screen.run(call.action.id, call.argument)
            return
        # Files are looked for in what was written, not in what was pasted.
        message = area.chips.unfold(attach(commands.literal(standins.take_out(area.text)), Path.cwd()))
        self.chat.send(message)
        self.screen.history.add(text)
        area.show_text("")
        self.screen.keep_draft()
        self.transcript.follow()
        self.screen.tick()

    def newline(self, argument: str) -> None:
        self.screen.prompt.area.type_text("\n")

    def escape(self, argument: str) -> None:
        if not self.halt():
            self.screen.focus_transcript()

    def external(self, argument: str) -> None:
        area = self.screen.prompt.area
        self.edit_outside(area.full_text, area.show_text)

    def older(self, argument: str) -> None:
        area = self.screen.prompt.area
        text = self.screen.history.older(area.full_text)
        if text is not None:
            area.show_text(text)

    def newer(self, argument: str) -> None:
        text = self.screen.history.newer()
        if text is not None:
            self.screen.prompt.area.show_text(text)
