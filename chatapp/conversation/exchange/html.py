"""One HTML page that stands alone: no script, nothing fetched, heat as colours, each token's numbers on hover."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from html import escape
from itertools import accumulate

from chatapp.conversation.events import Message
from chatapp.conversation.exchange.transcript import Transcript, children
from chatapp.conversation.records import TYPED
from chatapp.scale import ENTROPY, LEVELS, VARENTROPY
from chatapp.text import visible
from chatapp.tokens import Token

_THINK, _THOUGHT = "<think>", "</think>"
_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}

_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1b1f; --soft: #6b6b76; --line: #dddde3;
  --heat: 255 120 0; --strong: .75; --cold: 40 100 200; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #16161a; --ink: #e8e8ee; --soft: #9a9aa6; --line: #33333b;
    --heat: 255 140 40; --strong: .55; --cold: 90 160 240; }
}
body { background: var(--ground); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; print-color-adjust: exact; }
h1 { font-size: 1.5rem; } h2 { font-size: .85rem; color: var(--soft); font-weight: 600; margin: 1.6rem 0 .3rem; }
.text { white-space: pre-wrap; }
details { border-left: 3px solid var(--line); padding-left: .8rem; margin: .6rem 0; }
summary, .legend, footer { color: var(--soft); font-size: .85rem; }
.t { border-bottom: 2px solid transparent; }
"""


def write(transcript: Transcript, *, tree: bool) -> str:
    """The shown branch; as a tree, the other alternatives are folded away beside it."""
    title = _text(transcript.title or "Conversation")
    body = [f"<h1>{title}</h1>", _legend() if transcript.tokens else ""]
    if transcript.system:
        body.append(_message("System", _text(transcript.system)))
    below = children(transcript.messages)
    for message in transcript.path():
        body.append(_section(transcript, message))
        if tree:
            body += [_folded(transcript, m, below) for m in below[message.parent] if m.id != message.id]
    return (
        '<!DOCTYPE html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}{_scales()}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _folded(transcript: Transcript, message: Message, below: Mapping[str | None, list[Message]]) -> str:
    """An alternative with everything below it; written without recursion, since a chain may be long."""
    parts: list[str] = []
    waiting: list[Message | str] = [message]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
            continue
        if item is message or len(below[item.parent]) > 1:
            parts.append(f"\n<details><summary>Alternative: {_text(_first_line(item))}</summary>")
            waiting.append("</details>")
        parts.append(_section(transcript, item))
        waiting += reversed(below.get(item.id, []))
    return "".join(parts)


def _first_line(message: Message) -> str:
    line = " ".join(message.content.split())
    return line if len(line) <= 60 else line[:59] + "…"


def _section(transcript: Transcript, message: Message) -> str:
    tokens = transcript.tokens.get(message.id)
    name = _NAMES.get(message.role, message.role)
    heading = " · ".join(part for part in (name, message.model, message.created[:16].replace("T", " ")) if part)
    return _message(heading, _content(message, tokens or ()))


def _content(message: Message, tokens: Sequence[Token]) -> str:
    """A message's text, with the heat of its tokens where they are known; its reasoning part folded."""
    length = _reasoning(message.content) if message.role == "assistant" else 0
    if not tokens:
        reasoning, answer = _text(message.content[:length]), _text(message.content[length:])
    else:
        ends = list(accumulate(len(token.text) for token in tokens))
        split = bisect_left(ends, length) + 1 if length else 0  # the token in which the part ends belongs to it
        reasoning, answer = _heated(tokens[:split]), _heated(tokens[split:])
    return f"<details><summary>Reasoning</summary>{reasoning}</details>{answer}" if length else answer


def _reasoning(text: str) -> int:
    """Characters of the reasoning part at a reply's start, its tags included; templates may have opened it before."""
    if not text.lstrip().startswith(_THINK) and (_THINK in text or _THOUGHT not in text):
        return 0
    end = text.find(_THOUGHT)
    return len(text) if end < 0 else end + len(_THOUGHT)


def _message(heading: str, inner: str) -> str:
    return f'<section><h2>{_text(heading)}</h2><div class="text">{inner}</div></section>'


def _heated(tokens: Sequence[Token]) -> str:
    return "".join(_span(token) for token in tokens if token.text)


def _span(token: Token) -> str:
    if token.id == TYPED:
        return _text(token.text)
    levels = f"e{ENTROPY.level(token.entropy)} v{VARENTROPY.level(token.varentropy)}"
    return f'<span class="t {levels}" title="{_text(_details(token))}">{_text(token.text)}</span>'


def _details(token: Token) -> str:
    lines = [
        f"entropy {token.entropy:.3f} nats",
        f"varentropy {token.varentropy:.3f} nats²",
        f"surprisal {token.surprisal:.3f} nats (p = {math.exp(-token.surprisal):.1%})",
    ]
    if token.state:
        lines.append(f"state {token.state}")
    lines += [f"{math.exp(a.logprob):6.1%}  {a.text!r}" for a in token.top]
    return "\n".join(lines)


def _scales() -> str:
    rules: list[str] = []
    for step in range(1, LEVELS + 1):
        share = 0.2 + 0.8 * (step - 1) / (LEVELS - 1)
        rules.append(f".e{step} {{ background: rgb(var(--heat) / calc(var(--strong) * {share:.3g})); }}")
        rules.append(f".v{step} {{ border-color: rgb(var(--cold) / {share:.2f}); }}")
    return "\n".join(rules) + "\n"


def _legend() -> str:
    squares, lines = (
        "".join(f'<span class="t {kind}{step}">&nbsp;&nbsp;</span>' for step in range(1, LEVELS + 1)) for kind in "ev"
    )
    return (
        f'<p class="legend">entropy {ENTROPY.low:g} {squares} {ENTROPY.high:g} nats · varentropy {VARENTROPY.low:g} '
        f"{lines} {VARENTROPY.high:g} nats² · unmarked: below · point at a word for its numbers</p>"
    )


def _text(text: str) -> str:
    return escape(visible(text), quote=True)
