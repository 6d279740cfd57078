"""Inline Markdown as styled spans over the source: emphasis, code, links, strikethrough, escapes.

Emphasis follows the delimiter-stack method of CommonMark 0.31 (https://spec.commonmark.org/0.31.2/#phase-2-inline-structure).
Markers stay in the text and are dimmed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from chatapp.ui.transcript.lines import Look

Span = tuple[int, int, Look]

_BOLD, _ITALIC, _STRIKE, _CODE, _LINK, _MARKER = 1, 2, 4, 8, 16, 32
#: For each flag a table that sets it in a byte string.
_SET = {flag: bytes(byte | flag for byte in range(256)) for flag in (_BOLD, _ITALIC, _STRIKE, _CODE, _LINK, _MARKER)}

_SPECIAL = re.compile(r"[\\`*_~\[<]|https?://")
_ESCAPED = re.compile(r"\\[!-/:-@\[-`{-~]")
_TICKS = re.compile(r"`+")
_LINKED = re.compile(
    r"\[(?:[^\[\]\n\\]|\\.|\[[^\[\]\n]*\])*(?P<close>\]\((?:[^()\s\\]|\\.|\([^()\s]*\))*(?:[ \t]+\"[^\"\n]*\")?\))"
)
_AUTOLINK = re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]*|[^\s<>@]+@[^\s<>@]+)>")
_URL = re.compile(r"https?://[^\s<>\"`]+")
_RUNS = re.compile(rb"(.)\1*", re.DOTALL)
_LOOKS: dict[tuple[int, Look], Look] = {}


def inline_spans(text: str, offset: int, base: Look) -> list[Span]:
    """Spans of ``text`` that differ from its base look, sorted and disjoint.

    Args:
        text: One paragraph's text.
        offset: Added to the positions.
        base: The look of text that nothing marks.
    """
    if not _SPECIAL.search(text):
        return []
    flags = _Parser(text).parse()
    return [
        (offset + match.start(), offset + match.end(), _look(match[1][0], base))
        for match in _RUNS.finditer(flags)
        if match[1][0]
    ]


def _look(flags: int, base: Look) -> Look:
    key = (flags, base)
    look = _LOOKS.get(key)
    if look is None:
        role = base.role
        if flags & _MARKER:
            role = "marker"
        elif flags & _CODE:
            role = "code"
        elif flags & _LINK:
            role = "link"
        bold, italic = bool(flags & _BOLD) or base.bold, bool(flags & _ITALIC) or base.italic
        look = _LOOKS[key] = Look(role, bold, italic, bool(flags & _STRIKE) or base.strike)
    return look


@dataclass(slots=True)
class _Delimiter:
    """A run of ``*``, ``_`` or ``~``: what is left of it between ``start`` and ``end``."""

    mark: str
    start: int
    end: int
    size: int
    opens: bool
    closes: bool

    @property
    def left(self) -> int:
        return self.end - self.start


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._flags = bytearray(len(text))
        self._delimiters: list[_Delimiter] = []
        self._jumps: dict[int, int] = {}  # where a link's text ends → where its target ends

    def parse(self) -> bytes:
        """A byte of flags for every character."""
        text, at = self._text, 0
        while match := _SPECIAL.search(text, at):
            start = match.start()
            passed = [close for close in self._jumps if at <= close <= start]
            if passed:  # the scan leaves a link's text: skip its target
                at = self._jumps.pop(min(passed))
                continue
            at = self._special(start)
        self._emphasize()
        return bytes(self._flags)

    def _special(self, at: int) -> int:
        text = self._text
        mark = text[at]
        if mark == "\\":
            if _ESCAPED.match(text, at):
                self._set(at, at + 1, _MARKER)
                return at + 2
            return at + 1
        if mark == "`":
            return self._code(at)
        if mark in "*_~":
            return self._delimiter(at)
        if mark == "[":
            return self._link(at)
        if mark == "<":
            found = _AUTOLINK.match(text, at)
            if not found:
                return at + 1
            self._set(at, at + 1, _MARKER)
            self._set(at + 1, found.end() - 1, _LINK)
            self._set(found.end() - 1, found.end(), _MARKER)
            return found.end()
        return self._url(at)

    def _set(self, start: int, end: int, flag: int) -> None:
        self._flags[start:end] = self._flags[start:end].translate(_SET[flag])

    def _code(self, at: int) -> int:
        opened = _TICKS.match(self._text, at)
        size = opened.end() - at if opened else 1
        for closing in _TICKS.finditer(self._text, at + size):
            if closing.end() - closing.start() == size:
                self._set(at, at + size, _MARKER)
                self._set(at + size, closing.start(), _CODE)
                self._set(closing.start(), closing.end(), _MARKER)
                return closing.end()
        return at + size

    def _link(self, at: int) -> int:
        found = _LINKED.match(self._text, at)
        if found:
            close = found.start("close")
            self._set(at, at + 1, _MARKER)
            self._set(at + 1, close, _LINK)
            self._set(close, found.end(), _MARKER)
            self._jumps[close] = found.end()
        return at + 1

    def _url(self, at: int) -> int:
        found = _URL.match(self._text, at)
        if not found:
            return at + 1
        url = found[0].rstrip(".,;:!?'*_~")
        while url.endswith(")") and url.count(")") > url.count("("):
            url = url[:-1]
        self._set(at, at + len(url), _LINK)
        return at + len(url)

    def _delimiter(self, at: int) -> int:
        text, mark = self._text, self._text[at]
        end = at
        while end < len(text) and text[end] == mark:
            end += 1
        before, after = text[at - 1 : at] or " ", text[end : end + 1] or " "
        punctuated_before, punctuated_after = _is_punctuation(before), _is_punctuation(after)
        left = not after.isspace() and (not punctuated_after or before.isspace() or punctuated_before)
        right = not before.isspace() and (not punctuated_before or after.isspace() or punctuated_after)
        opens, closes = left, right
        if mark == "_":
            opens, closes = left and (not right or punctuated_before), right and (not left or punctuated_after)
        if mark != "~" or end - at == 2:
            self._delimiters.append(_Delimiter(mark, at, end, end - at, opens, closes))
        return end

    def _emphasize(self) -> None:
        stack: list[_Delimiter] = []
        for closer in self._delimiters:
            while closer.closes and closer.left:
                opener = self._opener(stack, closer)
                if opener is None:
                    break
                del stack[stack.index(opener) + 1 :]
                self._pair(opener, closer)
                if not opener.left:
                    stack.pop()
            if closer.left and closer.opens:
                stack.append(closer)

    def _opener(self, stack: list[_Delimiter], closer: _Delimiter) -> _Delimiter | None:
        for opener in reversed(stack):
            if opener.mark != closer.mark:
                continue
            both = opener.closes or closer.opens
            if both and (opener.size + closer.size) % 3 == 0 and (opener.size % 3 or closer.size % 3):
                continue
            return opener
        return None

    def _pair(self, opener: _Delimiter, closer: _Delimiter) -> None:
        if closer.mark == "~":
            used, flag = 2, _STRIKE
        else:
            used = 2 if opener.left >= 2 and closer.left >= 2 else 1
            flag = _BOLD if used == 2 else _ITALIC
        self._set(opener.end - used, opener.end, _MARKER)
        self._set(closer.start, closer.start + used, _MARKER)
        self._set(opener.end, closer.start, flag)
        opener.end -= used
        closer.start += used


def _is_punctuation(character: str) -> bool:
    return not character.isalnum() and not character.isspace()
