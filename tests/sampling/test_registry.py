"""Samplers by name, among them one that another package brings."""

from __future__ import annotations

import mlx.core as mx
import pytest

from chatapp.engine.samplers import ModelFacts, create, names
from chatapp.errors import ChatappError, UsageError
from chatapp.protocol import Sampling

SECOND_BEST = """
import mlx.core as mx
from chatapp.engine import metrics
from chatapp.engine.samplers import doubt


class SecondBest:
    states = ("second",)

    def configure(self, sampling, model):
        return sampling.options.get("rank", 1)

    def start(self, cfg, seeds, index=0):
        return index

    def lookback(self, cfg):
        return 0

    def wants_scores(self, cfg):
        return False

    def __call__(self, logits, scores, history, cfg, state):
        token = metrics.top(logits, 5)[:, cfg]
        return token, doubt(metrics.spread(logits), logits, token), state + 1


class Half:
    states = ()
"""


@pytest.fixture
def other_package(tmp_path, monkeypatch):
    (tmp_path / "other_samplers.py").write_text(SECOND_BEST)
    info = tmp_path / "other_samplers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-samplers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[chatapp.samplers]\n"
        "second-best = other_samplers:SecondBest\n"
        "half = other_samplers:Half\n"
        "gone = other_samplers:Gone\n"
        "standard = other_samplers:SecondBest\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


def test_a_package_can_bring_a_sampler(other_package):
    assert names() == ["standard", "adaptive", "gone", "half", "second-best"]
    sampler = create("second-best")
    config = sampler.configure(Sampling(options={"rank": 2}), ModelFacts(6))
    logits = mx.array([[0.0, 3.0, 1.0, 2.0, -1.0, 0.5]])
    token, doubt, state = sampler(logits, None, mx.zeros((1, 0)), config, sampler.start(config, (0,)))
    assert token.item() == 2
    assert doubt.surprisal.item() == pytest.approx((mx.logsumexp(logits) - 1).item(), abs=1e-6)
    assert state == 1


def test_a_shipped_name_cannot_be_taken(other_package):
    assert create("standard").states == ("",)


@pytest.mark.parametrize("name", ["half", "gone"])
def test_a_broken_one_is_named(other_package, name):
    with pytest.raises(ChatappError, match=f"{name}.*Repair or remove"):
        create(name)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="no sampler 'fancy'; choose one of standard, adaptive"):
        create("fancy")


def test_the_default_is_standard():
    assert create(None).states == ("",)
