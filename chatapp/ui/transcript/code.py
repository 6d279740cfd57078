"""Syntax colours of code, by Pygments."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from chatapp.ui.transcript.inline import Span
from chatapp.ui.transcript.lines import Look

if TYPE_CHECKING:
    from pygments.lexer import Lexer

#: Token type of Pygments (as dotted name, its beginning decides) → role; the first that fits.
_ROLES = (
    ("Comment", "syntax-comment"),
    ("Literal.String.Doc", "syntax-comment"),
    ("Literal.String", "syntax-string"),
    ("Literal.Number", "syntax-number"),
    ("Keyword.Type", "syntax-type"),
    ("Keyword.Constant", "syntax-number"),
    ("Keyword", "syntax-keyword"),
    ("Operator.Word", "syntax-keyword"),
    ("Name.Function", "syntax-name"),
    ("Name.Class", "syntax-type"),
    ("Name.Tag", "syntax-keyword"),
    ("Name.Attribute", "syntax-name"),
    ("Name.Decorator", "syntax-name"),
    ("Name.Builtin", "syntax-type"),
    ("Name.Exception", "syntax-type"),
    ("Generic.Deleted", "syntax-error"),
    ("Generic.Inserted", "syntax-string"),
    ("Generic.Heading", "syntax-keyword"),
    ("Punctuation", "syntax-punctuation"),
    ("Operator", "syntax-punctuation"),
)


@lru_cache(maxsize=256)
def code_spans(text: str, language: str) -> tuple[Span, ...]:
    """Spans of the code that are not plain, relative to its start, sorted and disjoint; none for unknown languages."""
    lexer = _lexer(language.lower())
    if lexer is None:
        return ()
    spans: list[Span] = []
    for start, kind, value in lexer.get_tokens_unprocessed(text):
        look = _look(str(kind))
        if look is not None and value:
            spans.append((start, start + len(value), look))
    spans.sort(key=lambda span: span[0])  # lexers that embed others may hand out tokens late
    return tuple(spans)


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    if not language:
        return None
    from pygments.lexers import get_lexer_by_name  # not at import time: the first paint must not wait for it
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _look(kind: str) -> Look | None:
    name = kind.removeprefix("Token.")
    return next((Look(role, italic=role == "syntax-comment") for begin, role in _ROLES if name.startswith(begin)), None)
