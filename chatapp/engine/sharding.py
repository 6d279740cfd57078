"""A rank's share of a model: which part of it this process loads."""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import load_model

from chatapp.engine.attention import TOP, AttentionReading, Join, Probe
from chatapp.engine.fetching import Fetched, fetch
from chatapp.engine.ranks import Ranks
from chatapp.errors import ChatappError
from chatapp.models import fit, parallel
from chatapp.models.folder import ITEM_BYTES, check_files, elements_by_type, layer_of, read_config
from chatapp.models.progress import Report


@dataclass(frozen=True)
class Share:
    """What each rank may load. `room` and `counts` are the same on all ranks, so that all decide alike.

    Attributes:
        ready: The model; of a pipeline, at least the files of this rank's layers.
        rank: This process among those that share it.
        ranks: How many they are.
        room: Memory of the rank that has least, in bytes.
        counts: Stored elements of the whole model, by safetensors type.
    """

    ready: Fetched
    rank: int
    ranks: int
    room: int
    counts: dict[str, int]

    @classmethod
    def of(cls, model: str, ranks: Ranks, report: Report) -> Share | None:
        """Has each rank fetch its part of a model, and finds what the ranks agree on; None for one rank alone.

        Raises:
            ChatappError: On one of the ranks the model cannot be had, is damaged or cannot be divided.
        """
        if ranks.size == 1:
            return None

        def fetch_part(report: Report) -> tuple[Fetched, list[int]]:
            ready = fetch(model, report, rank=ranks.rank, ranks=ranks.size)
            return ready, _counts(ready, ranks)

        ready, own = ranks.together(fetch_part, report)
        sums = [sum(column) for column in zip(*ranks.each(own), strict=True)]
        counts = {kind: count for kind, count in zip(ITEM_BYTES, sums, strict=True) if count}
        return cls(ready, ranks.rank, ranks.size, ranks.least(fit.available_bytes() // ranks.here), counts)

    @property
    def largest_file(self) -> int:
        """Size of the largest file of weights here, in bytes."""
        return max(path.stat().st_size for path in self.ready.folder.glob("*.safetensors"))


def _counts(ready: Fetched, ranks: Ranks) -> list[int]:
    """Stored elements by type: those of this rank's layers, and on rank 0 also those that belong to no layer."""
    config = read_config(ready.folder, ready.spec.title)
    own = parallel.own_layers(config, ranks.rank, ranks.size)
    weights = check_files(ready.folder, ready.spec.title, own)

    def wanted(name: str) -> bool:
        layer = layer_of(name)
        return ranks.rank == 0 if own is None or layer is None else layer in own

    counts = elements_by_type(weights, wanted)
    return [counts.get(kind, 0) for kind in ITEM_BYTES]


def fuse(model: Any) -> None:
    """Adds the adapters of a lazily loaded model to its weights, which can be divided then; nothing is computed."""
    adapted = [(name, module.fuse()) for name, module in model.named_modules() if hasattr(module, "fuse")]
    model.update_modules(tree_unflatten(adapted))


def _check_layers(model: Any, own: range | None, title: str) -> None:
    """What was downloaded and checked is what the model computes here: mlx-lm divides layers as `own_layers` says."""
    if own is not None and (model.model.start_idx, model.model.end_idx) != (own.start, own.stop):
        raise ChatappError(
            f"This version of mlx-lm divides the layers of {title} in a way that chatapp does not know: "
            "install the version that chatapp asks for.",
            "model",
        )


def load_part(folder: Path, own: range) -> tuple[nn.Module, dict[str, Any]]:
    """As mlx-lm's ``load_model``, lazily, where only the weights of some layers have to be there.

    mlx-lm itself loads parts without checking that anything is missing; here the layers' own weights are checked.

    Raises:
        ValueError: Weights of these layers, or of what belongs to no layer, are missing.
    """
    classes = inspect.signature(load_model).parameters["get_model_classes"].default

    def checking(config: dict[str, Any]) -> tuple[type[nn.Module], type]:
        whole, arguments = classes(config=config)

        def load_weights(self: nn.Module, weights: Any, strict: bool = True) -> nn.Module:
            if not strict:  # an adapter's, which are few
                return whole.load_weights(self, weights, strict=False)
            given = {name for name, _ in weights}
            names = (name for name, _ in cast("list[tuple[str, Any]]", tree_flatten(self.parameters())))
            missing = [name for name in names if name not in given and layer_of(name) in (None, *own)]
            if missing:
                raise ValueError(f"no weights for {missing[0]}")
            return whole.load_weights(self, weights, strict=False)

        return type(whole.__name__, (whole,), {"load_weights": load_weights, "__module__": whole.__module__}), arguments

    return load_model(folder, lazy=True, get_model_classes=checking)


def apply(model: Any, kind: parallel.Kind, own: range | None, title: str) -> None:
    """Cuts a lazily loaded model down to this rank's part; the rest is never computed.

    Args:
        model: mlx-lm's.
        kind: How it is shared.
        own: The layers that this rank of a pipeline is to have, where that was foreseen.
        title: Names the model in the error.

    Raises:
        ChatappError: The model cannot be divided so.
    """
    group = mx.distributed.init()
    try:
        if kind == "tensor":
            model.shard(group)
        else:
            model.model.pipeline(group)
            _check_layers(model, own, title)
    except (AttributeError, ValueError, AssertionError) as error:
        raise ChatappError(
            f"{title} cannot be divided among {group.size()} ranks ({error}): take another number, or run on one.",
            "model",
        ) from error


def probe(model: Any, kind: parallel.Kind | None, ranks: Ranks) -> Probe:
    """Watches the attention of a model, wherever its heads are."""
    if kind == "pipeline":
        watching = Probe(model, join=_joined(ranks))
        if ranks.least(bool(watching.reason)) == 0:
            watching.reason = ""  # a rank without attention layers has others that have some
        return watching
    if kind is None:
        return Probe(model)

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


def _joined(ranks: Ranks) -> Join:
    """What a pipeline's stages saw, as readings of all layers; a stage that has more layers counts for more."""

    def join(rows: Sequence[AttentionReading], count: int) -> list[AttentionReading]:
        shapes = ranks.each([len(rows[0].layers), len(rows[0].top)] if rows else [0, 0])
        layers = sum(own for own, _ in shapes)
        if not layers:
            return []
        length = max(places for _, places in shapes)
        before = sum(own for own, _ in shapes[ranks.rank + 1 :])  # the last rank has the first layers
        placed = sum(own for own, places in shapes if places)
        parts = [_part(row, before, layers, length) for row in rows] or [[0.0] * (4 + layers + length)] * count
        totals: Any = ranks.total(mx.array(parts)).tolist()
        found: list[AttentionReading] = []
        for total in totals:
            means = [value / layers for value in total[:4]]
            weights = [weight / placed for weight in total[4 + layers :]]
            best = heapq.nlargest(TOP, enumerate(weights), key=lambda seen: seen[1])
            found.append(AttentionReading(*means, layers=total[4 : 4 + layers], top=best))
        return found

    return join


def _part(row: AttentionReading, before: int, layers: int, length: int) -> list[float]:
    """A row of one stage, for the sum: its means times its layers, each layer at its place, each position's weight."""
    own = len(row.layers)
    means = [value * own for value in (row.entropy, row.varentropy, row.agreement, row.interaction)]
    weights = [weight * own for _, weight in row.top]
    return [
        *means,
        *([0.0] * before),
        *row.layers,
        *([0.0] * (layers - before - own)),
        *weights,
        *([0.0] * (length - len(weights))),
    ]


def own_part(model: Any, ranks: Ranks) -> tuple[int, int]:
    """Layers of a pipelined model on this rank, and on all ranks together."""
    own = len(model.layers)
    return own, sum(row[0] for row in ranks.each([own]))
