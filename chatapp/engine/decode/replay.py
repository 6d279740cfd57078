"""Drawing a reply again from its seed, options and prompt, to see whether it is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.nn as nn

from chatapp.engine.attention import Probe
from chatapp.engine.cache.session import CacheLimits, SessionCache
from chatapp.engine.decode.generator import TokenGenerator
from chatapp.engine.decode.records import Limits
from chatapp.engine.samplers.base import ModelFacts
from chatapp.engine.samplers.registry import create
from chatapp.protocol import Sampling


def first_difference(
    model: nn.Module,
    tokenizer: Any,
    prompt: Sequence[int],
    reply: Sequence[int],
    sampling: Sampling,
    facts: ModelFacts,
    limits: CacheLimits,
) -> int | None:
    """Where a reply departs from what its seed and options give now.

    The prompt is read as one chunk. Reading it in other chunks, on another device or with another version of MLX
    rounds differently, and where two tokens are as good as equally likely a draw can then differ.

    Args:
        model: The mlx-lm model.
        tokenizer: mlx-lm's ``TokenizerWrapper``.
        prompt: The ids before the reply.
        reply: The ids that were sampled.
        sampling: With the seed that was used.
        facts: What the sampler was told about the model.
        limits: C and K that were in force.

    Returns:
        The place in the reply of the first other id; None if there is none.

    Raises:
        UsageError: The options are not valid for the sampler.
        ValueError: There is no seed.
    """
    if sampling.seed is None:
        raise ValueError("a reply can only be drawn again from its seed")
    sampler = create(sampling.sampler)
    config = sampler.configure(sampling, facts)
    generator = TokenGenerator(
        model=model,
        cache=SessionCache(model, limits),
        tokenizer=tokenizer,
        sampler=sampler,
        config=config,
        seed=sampling.seed,
        limits=Limits(max_tokens=len(reply), alternatives=0),
        probe=Probe(model) if sampler.wants_scores(config) else None,
    )
    for place, token in enumerate(generator.generate(prompt)):
        if token.id != reply[place]:
            return place
    return None
