"""Decoding: from a prompt in the cache to records of tokens."""

from chatapp.engine.decode.generator import DecodeCache, TokenGenerator
from chatapp.engine.decode.records import Limits, Outcome
from chatapp.engine.decode.text import Detokenizer, StopStrings, TokenTexts

__all__ = ["DecodeCache", "Detokenizer", "Limits", "Outcome", "StopStrings", "TokenGenerator", "TokenTexts"]
