"""The person's config.toml: typed, with defaults; what is wrong in it is named by file, line and key."""

from __future__ import annotations

from typing import Literal

import msgspec

from chatapp import paths
from chatapp.models.ranges import check_capacity, check_sampling
from chatapp.models.registry import DEFAULT_MODEL, Count
from chatapp.protocol import Sampling
from chatapp.tomlfile import read_toml

FILE = "config.toml"

#: What the heat shows; the names are those of the keys that cycle it.
HeatShows = Literal["off", "entropy", "varentropy", "both", "surprisal"]


class Heat(msgspec.Struct, frozen=True):
    """How doubt is shown.

    Attributes:
        show: What the heat shows at start.
        bits: Show bits (and bits²) in place of nats.
        ramp: Name of a colour ramp; empty takes the theme's.
        prompt: Show it on the person's own and on edited messages too, as the model reads them.
    """

    show: HeatShows = "both"
    bits: bool = False
    ramp: str = ""
    prompt: bool = False


class Cache(msgspec.Struct, frozen=True):
    """Budgets of the KV cache, in bytes unless another unit is named.

    Attributes:
        max_kv_size: C, the capacity in tokens; None takes the model's.
        keep: K, first tokens always kept; None covers the system message.
        kv_bits: Quantize keys and values to so many bits.
        checkpoint_bytes: For going back in one conversation; None takes a twelfth of the memory.
        pool_bytes: For the caches of all conversations that are kept in memory; None takes a quarter of it.
        disk: Keep caches over restarts.
        disk_bytes: For all caches on disk.
    """

    max_kv_size: Count | None = None
    keep: Count | None = None
    kv_bits: Literal[2, 3, 4, 5, 6, 8] | None = None
    checkpoint_bytes: Count | None = None
    pool_bytes: Count | None = None
    disk: bool = True
    disk_bytes: Count = 4 << 30


class Settings(msgspec.Struct, frozen=True):
    """Everything that config.toml can hold.

    Attributes:
        model: What a new conversation starts with, named as for ``-m``.
        system: The system message of a new conversation; empty for none.
        thinking: Reasoning on or off for models that can switch it; None leaves the model's default.
        sampling: Overrides the model's defaults.
        alternatives: Likeliest tokens recorded for each token.
        attention: Record attention statistics.
        theme: Name of a theme (a file in themes/).
        heat: How doubt is shown.
        keys: Action id to key or comma-separated keys.
        cache: Budgets.
        mouse: Let the mouse select and scroll inside the program.
    """

    model: str = DEFAULT_MODEL
    system: str = ""
    thinking: bool | None = None
    sampling: Sampling = Sampling()
    alternatives: Count = 10
    attention: bool = False
    theme: str = ""
    heat: Heat = Heat()
    keys: dict[str, str] = {}
    cache: Cache = Cache()
    mouse: bool = True


def load_settings() -> Settings:
    """Reads config.toml from the config folder; without one, the defaults.

    Raises:
        UsageError: The file is damaged, or a key is unknown or its value wrong; file, line and key are named.
    """
    path = paths.config_dir() / FILE
    if not path.exists():
        return Settings()
    file = read_toml(path)
    settings = file.convert(file.tables, Settings)
    check_sampling(file, ("sampling",), settings.sampling)
    check_capacity(file, ("cache",), settings.cache.max_kv_size, settings.cache.keep)
    return settings
