"""The prompt cache: rotating, rewindable, exact (docs/cache.md)."""
