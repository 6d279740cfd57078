"""Characters that a terminal must not get, in a text area: there a stand-in of one cell takes their place.

A text area breaks lines at form feeds and the like, and gives control characters no room, so they cannot stay in it; to
drop them would change a message that was only opened for editing. What is not exact: a text that has one of the private
characters of plane 16 that are stand-ins here gets back what that stands for.
"""

from __future__ import annotations

import regex

from chatapp.text import replace_unsafe, visible

#: Stand-ins are private characters of plane 16, at the place of the character that they stand for.
_PLANE = 0x100000
#: The tag characters of plane 14 move to where plane 16 has room for them.
_TAGS = 0xE0000

_STANDIN = regex.compile("[\U00100000-\U0010ffff]")


def put_in(text: str) -> str:
    """The text with stand-ins for unsafe characters, each one character for one."""
    return text if text.isprintable() else replace_unsafe(text, _standin)


def take_out(text: str) -> str:
    """The text with the characters that the stand-ins stand for."""
    return _STANDIN.sub(lambda match: _original(match[0]), text)


def drawn(text: str) -> str:
    """The text with a mark of one cell for each stand-in."""
    return _STANDIN.sub(lambda match: _mark(match[0]), text)


def _standin(character: str) -> str:
    code = ord(character)
    return chr(_PLANE + (code - _TAGS + 0xE000 if code >= _TAGS else code))


def _original(standin: str) -> str:
    code = ord(standin) - _PLANE
    original = chr(code - 0xE000 + _TAGS if 0xE000 <= code < 0xE080 else code)
    return original if visible(original) != original else standin


def _mark(standin: str) -> str:
    mark = visible(_original(standin))
    return mark if len(mark) == 1 else "▯"
