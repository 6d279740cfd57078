"""Text in the person's own editor: the terminal is handed over and taken back."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from textual.app import App, SuspendNotSupported

from chatapp.ui.changes import Refused

#: How long an editor may take to tidy up when chatapp is ended.
_LAST_SECONDS = 2.0


async def edit(app: App[object], text: str) -> str:
    """Opens a text in $VISUAL or $EDITOR (else vi) and returns it as it was left; replies go on meanwhile.

    Raises:
        Refused: There is no such program, it failed or left the text as it was, or the terminal cannot be handed over.
    """
    command = _command()
    with tempfile.TemporaryDirectory(prefix="chatapp-") as folder:  # private to the user, as mkdtemp makes it
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8", errors="replace", newline="")
        before = path.read_text(encoding="utf-8")
        code = await _run(app, [*command, str(path)])
        if code:
            raise Refused(f"{command[0]} ended with code {code}; nothing was changed.")
        try:
            edited = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise Refused(f"{command[0]} left no file behind ({error.strerror}); nothing was changed.") from error
    if edited == before:
        raise Refused(
            f"{command[0]} left the text as it was. One with a window of its own has to wait: EDITOR='code --wait'."
        )
    # Editors put a newline at a file's end; it is not the person's unless it was there before.
    return edited.removesuffix("\n") if not text.endswith("\n") else edited


def _command() -> list[str]:
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        return shlex.split(wanted) or ["vi"]
    except ValueError as error:
        raise Refused(f"EDITOR is {wanted!r}, which is no command ({error}); set it to your editor.") from error


async def _run(app: App[object], command: Sequence[str]) -> int:
    """Runs a program in the terminal; its exit code."""
    failed: OSError | None = None
    code = 0
    try:
        with app.suspend():
            # An error must not leave this block: Textual would not take the terminal back.
            try:
                process = await asyncio.create_subprocess_exec(*command)
            except OSError as error:
                failed = error
            else:
                code = await _ended(process)
    except SuspendNotSupported as error:
        raise Refused("This terminal cannot be handed to another program.") from error
    if failed is not None:
        raise Refused(f"{command[0]} could not be started ({failed.strerror}): set EDITOR to your editor.") from failed
    return code


async def _ended(process: asyncio.subprocess.Process) -> int:
    try:
        return await process.wait()
    finally:
        if process.returncode is None:  # chatapp is being ended
            process.terminate()
            await asyncio.wait([asyncio.create_task(process.wait())], timeout=_LAST_SECONDS)
