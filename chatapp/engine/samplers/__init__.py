"""Samplers: how a token is drawn from the model's logits."""

from chatapp.engine.samplers.base import AttentionScores, Doubt, EntropySampler, ModelFacts, doubt, step_key
from chatapp.engine.samplers.registry import create, names

__all__ = ["AttentionScores", "Doubt", "EntropySampler", "ModelFacts", "create", "doubt", "names", "step_key"]
