"""Text in the person's own editor: the terminal is handed over and taken back."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from textual.app import App, SuspendNotSupported

from chatapp.ui.changes import Refused


def edit(app: App[object], text: str) -> str:
    """Opens a text in $VISUAL or $EDITOR (else vi) and returns it as it was left.

    Raises:
        Refused: There is no such program, it failed, or the terminal cannot be handed over.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="chatapp-") as folder:  # private to the user, as mkdtemp makes it
        path = Path(folder) / "message.md"
        path.write_text(text, encoding="utf-8", errors="replace", newline="")
        try:
            with app.suspend():
                code = subprocess.run([*command, str(path)], check=False).returncode
        except SuspendNotSupported as error:
            raise Refused("This terminal cannot be handed to another program.") from error
        except OSError as error:
            raise Refused(
                f"{command[0]} could not be started ({error.strerror}): set EDITOR to your editor."
            ) from error
        if code:
            raise Refused(f"{command[0]} ended with code {code}; nothing was changed.")
        edited = path.read_text(encoding="utf-8", errors="replace")
    # Editors put a newline at a file's end; it is not the person's unless it was there before.
    return edited.removesuffix("\n") if not text.endswith("\n") else edited
