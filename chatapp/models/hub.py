"""Fetches the files that a model needs from the Hugging Face Hub, with the official client and its shared cache."""

from __future__ import annotations

from pathlib import Path

from chatapp.models.progress import Report
from chatapp.models.sources import Source

#: What an mlx-lm folder consists of. No code: nothing from a repository is run.
PATTERNS = ("*.json", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja")


def fetch_snapshot(place: Source, report: Report) -> Path:
    """Downloads what is missing of a repository's revision and returns its folder in the shared cache."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(place.location, revision=place.revision or None, allow_patterns=list(PATTERNS)))
