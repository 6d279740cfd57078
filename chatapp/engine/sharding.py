"""A rank's share of a model: which part of it this process loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from chatapp.engine.ranks import Ranks
from chatapp.errors import ChatappError, UsageError
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


def choose(config: dict[str, Any], title: str, ranks: int, adapted: bool) -> parallel.Kind:
    """How the ranks share a model.

    Raises:
        UsageError: They cannot; the sentence says why.
    """
    if adapted:
        raise UsageError(
            f"{title} cannot have an adapter on several ranks: fuse it into the model with `mlx_lm.fuse`, or take one "
            "rank."
        )
    return parallel.choose(config, title, ranks)


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


def own_part(model: Any) -> tuple[int, int]:
    """Layers of a pipelined model on this rank, and on all ranks together."""
    own = len(model.layers)
    total: Any = mx.distributed.all_sum(mx.array(own)).item()
    return own, total
