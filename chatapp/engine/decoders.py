"""Which decode loop serves a request: one reply, one with guesses checked, or several as a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from chatapp.engine import precision
from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import SessionCache
from chatapp.engine.decode import Limits, Outcome, TokenGenerator
from chatapp.engine.decode.candidates import CandidateGenerator
from chatapp.engine.decode.draft_model import ModelDrafter
from chatapp.engine.decode.gain import Costs
from chatapp.engine.decode.lookup import LookupDrafter
from chatapp.engine.decode.speculative import Drafter, SpeculativeGenerator
from chatapp.engine.loading import LoadedModel
from chatapp.engine.ranks import Ranks
from chatapp.engine.reply import Reply
from chatapp.engine.samplers import registry
from chatapp.engine.samplers.base import ModelFacts
from chatapp.errors import UsageError
from chatapp.models.registry import LOOKUP
from chatapp.protocol import Sampling
from chatapp.tokens import Token

Decoder = TokenGenerator[Any, Any] | CandidateGenerator[Any, Any]


def make_decoder(
    loaded: LoadedModel,
    cache: SessionCache,
    draft_cache: SessionCache | None,
    sampling: Sampling,
    limits: Limits,
    continued: Sequence[int],
    seeds: tuple[int, ...],
    probe: Probe,
    attention: bool,
    reply: Reply,
) -> Decoder:
    """The decode loop for a request.

    Args:
        loaded: The model, and what drafts for it.
        cache: The conversation's cache.
        draft_cache: The draft model's cache of the same conversation, if there is a draft model.
        sampling: Options in force.
        limits: When a reply ends.
        continued: Ids of the reply that goes on.
        seeds: One for each reply.
        probe: Watches the model's attention, if it can.
        attention: Records are to have attention statistics.
        reply: Says when to stop.

    Raises:
        UsageError: An option is unknown or out of range.
    """
    if not seeds:
        raise UsageError("candidates must be at least 1.")
    seed = seeds[0]
    sampler = registry.create(sampling.sampler)
    tokenizer = loaded.tokenizer
    facts = ModelFacts(loaded.vocab_size or len(tokenizer), tokenizer, tuple(tokenizer.eos_token_ids))
    config = sampler.configure(sampling, facts)
    watched = attention or sampler.wants_scores(config)
    common: dict[str, Any] = {
        "model": loaded.model,
        "cache": cache,
        "tokenizer": tokenizer,
        "sampler": sampler,
        "config": config,
        "limits": limits,
        "probe": probe if watched and not probe.reason else None,
        "attention": attention and not probe.reason,
        "reply": continued,
        "cancelled": reply.cancelled,
        "same": reply.same,
    }
    if len(seeds) > 1:
        return CandidateGenerator(seeds=seeds, **common)
    if loaded.draft is None:
        return TokenGenerator(seed=seed, **common)
    costs = draft_costs(loaded, reply.ranks)
    drafter: Drafter = LookupDrafter(costs)
    if loaded.draft != LOOKUP and draft_cache is not None:
        drafter = ModelDrafter(loaded.draft.model, draft_cache, sampler, config, seed, reply.ranks.same, costs)
    return SpeculativeGenerator(seed=seed, drafter=drafter, **common)


def draft_costs(loaded: LoadedModel, ranks: Ranks) -> Costs:
    """What guessing takes with this model and its draft model, the same on all ranks."""
    own = Costs(row=precision.row_cost(loaded.dtype))
    if isinstance(loaded.draft, LoadedModel):
        # Reading one token takes as long as reading all weights does.
        own = Costs(row=own.row, token=loaded.draft.bytes / loaded.bytes)
    return msgspec.json.decode(ranks.share(msgspec.json.encode(own)), type=Costs)


def records(decoder: Decoder, prompt: Sequence[int]) -> Iterator[tuple[int, Token]]:
    """The records as they are decoded, each with the number of the reply that it belongs to."""
    if isinstance(decoder, CandidateGenerator):
        yield from decoder.generate(prompt)
        return
    for token in decoder.generate(prompt):
        yield 0, token


def outcomes(decoder: Decoder) -> list[Outcome]:
    """How each reply ended."""
    return decoder.outcomes if isinstance(decoder, CandidateGenerator) else [decoder.outcome]


def guesses(decoder: Decoder) -> tuple[int, int]:
    """Tokens guessed, and how many of them were right."""
    return (decoder.drafted, decoder.accepted) if isinstance(decoder, SpeculativeGenerator) else (0, 0)
