"""A rank's share of a model: which part of it this process loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_unflatten

from chatapp.engine.attention import Probe
from chatapp.engine.ranks import Ranks
from chatapp.errors import ChatappError
from chatapp.models import fit, parallel


@dataclass(frozen=True)
class Share:
    """What each rank may load.

    Attributes:
        ranks: How many share the model.
        room: Memory of the rank that has least, in bytes; so that all decide alike.
    """

    ranks: int
    room: int

    @classmethod
    def of(cls, ranks: Ranks) -> Share | None:
        """What the ranks agree on; None for one that has the model to itself."""
        if ranks.size == 1:
            return None
        return cls(ranks.size, ranks.least(fit.available_bytes() // ranks.here))


def fuse(model: Any) -> None:
    """Adds the adapters of a lazily loaded model to its weights, which can be divided then; nothing is computed."""
    adapted = [(name, module.fuse()) for name, module in model.named_modules() if hasattr(module, "fuse")]
    model.update_modules(tree_unflatten(adapted))


def apply(model: Any, kind: parallel.Kind, title: str) -> None:
    """Cuts a lazily loaded model down to this rank's part; the rest is never computed.

    Raises:
        ChatappError: The model cannot be divided so.
    """
    group = mx.distributed.init()
    try:
        if kind == "tensor":
            model.shard(group)
        else:
            model.model.pipeline(group)
    except (AttributeError, ValueError, AssertionError) as error:
        raise ChatappError(
            f"{title} cannot be divided among {group.size()} ranks ({error}): take another number, or run on one.",
            "model",
        ) from error


def probe(model: Any, kind: parallel.Kind | None, ranks: Ranks) -> Probe:
    """Watches the attention of a model, wherever its heads are."""
    if kind != "tensor":
        watching = Probe(model)
        if kind and not watching.reason:
            watching.reason = (
                "Attention cannot be shown while a model runs as a pipeline: no rank has all of its layers."
            )
        return watching

    def across(means: Sequence[mx.array]) -> list[mx.array]:
        """Every rank has equally many heads, so the mean over all of them is the mean of the ranks' means."""
        joined = ranks.total(mx.concatenate([mean.flatten() for mean in means])) / ranks.size
        ends = [0]
        for mean in means:
            ends.append(ends[-1] + mean.size)
        return [
            joined[begin:end].reshape(mean.shape) for mean, begin, end in zip(means, ends[:-1], ends[1:], strict=True)
        ]

    return Probe(model, across)


def own_part(model: Any) -> tuple[int, int]:
    """Layers of a pipelined model on this rank, and on all ranks together."""
    own = len(model.layers)
    total: Any = mx.distributed.all_sum(mx.array(own)).item()
    return own, total
