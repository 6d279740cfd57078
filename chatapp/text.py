"""Makes text safe to show: nothing that could drive a terminal gets through."""

from __future__ import annotations

from collections.abc import Callable

import regex

# C0 but newline and tab, DEL, C1, bidi controls, line/paragraph separators, the invisible tag characters and lone
# surrogates. ZWJ, ZWNJ and variation selectors stay: they belong to grapheme clusters.
_UNSAFE = regex.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Replaces each unsafe character by a visible mark of its own.

    C0 characters become their Unicode control picture (ESC is ``␛``), others ``‹U+XXXX›``; newline and tab stay.
    """
    return replace_unsafe(text, _mark)


def replace_unsafe(text: str, replacement: Callable[[str], str]) -> str:
    """Replaces each unsafe character by what is given for it."""
    return _UNSAFE.sub(lambda match: replacement(match[0]), text)


def _mark(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"‹U+{code:04X}›"
