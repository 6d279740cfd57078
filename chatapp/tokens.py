"""What is known about one token: the record shared by engine, files and screen."""

from __future__ import annotations

from typing import Literal

import msgspec

# Records are not tracked by the garbage collector (gc=False; they cannot form cycles): a long conversation holds
# hundreds of thousands of them (64k tokens with ten alternatives: a full collection took 45 ms instead of 19).

#: What the sampler did for a token. ``standard`` and greedy tokens have the empty state; the other names are
#: those of the adaptive sampler (see ``engine/samplers/adaptive.py``); third-party samplers may use their own.
State = str

Finish = Literal["stop", "length", "cancelled", "error", "paused"]


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of the likeliest tokens at a position.

    Attributes:
        id: Token id.
        text: The token decoded on its own (for display; may be a replacement character for a partial code point).
        logprob: Natural-log probability under the raw distribution (temperature 1, no processors), in nats.
    """

    id: int
    text: str
    logprob: float


class Attended(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A position that the decoded token looked at.

    Attributes:
        position: Absolute position in the prompt-plus-reply token sequence.
        text: The token at that position decoded on its own.
        weight: Attention weight averaged over the heads of the layers reported, in [0, 1].
    """

    position: int
    text: str
    weight: float


class Attention(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Attention statistics of one decoded token, over valid keys only (design §5).

    Attributes:
        entropy: Mean over heads of the entropy of the last query's attention, in nats.
        varentropy: Variance over heads of those entropies, in nats².
        agreement: Mean absolute distance of the heads from their mean (grows with disagreement).
        interaction: Mean absolute pre-softmax score (interaction strength).
        layers: Mean attention entropy per layer, in nats.
        top: The positions attended to most, highest weight first.
    """

    entropy: float
    varentropy: float
    agreement: float
    interaction: float
    layers: tuple[float, ...] = ()
    top: tuple[Attended, ...] = ()


class Token(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One sampled token id and the doubt it was sampled with (design §5).

    Attributes:
        index: Place in the reply, from 0.
        id: Token id.
        text: The text that became complete with this token: empty while a code point is still split over tokens
            and for special tokens such as end-of-turn. The texts of a reply joined are its content.
        entropy: H of the raw next-token distribution, in nats.
        varentropy: V of the raw next-token distribution, in nats².
        surprisal: S, the negative log-probability of ``id`` under the raw distribution, in nats.
        sampled_entropy: H of the distribution that the token was really drawn from, in nats.
        state: What the sampler did; empty for plain sampling.
        top: The likeliest tokens, likeliest first.
        attention: Attention statistics, where they were asked for.
    """

    index: int
    id: int
    text: str
    entropy: float
    varentropy: float
    surprisal: float
    sampled_entropy: float
    state: State = ""
    top: tuple[Alternative, ...] = ()
    attention: Attention | None = None
