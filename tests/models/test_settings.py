"""config.toml."""

import pytest

from chatapp import paths
from chatapp.errors import ChatappError
from chatapp.settings import Settings, load_settings


def write(text):
    path = paths.config_dir() / "config.toml"
    path.write_text(text)
    return path


def test_without_a_file_the_defaults():
    assert load_settings() == Settings()
    assert load_settings().model == "smollm2-135m"


def test_everything_can_be_set():
    write("""
model = "qwen3-4b"
system = "Be brief."
theme = "paper"
thinking = false
[sampling]
temperature = 0
seed = 3
[heat]
show = "surprisal"
bits = true
[keys]
"prompt.send" = "ctrl+s, enter"
[cache]
max_kv_size = 2048
disk = false
checkpoint_bytes = 1_000
""")
    settings = load_settings()
    assert (settings.model, settings.theme, settings.thinking) == ("qwen3-4b", "paper", False)
    assert (settings.sampling.temperature, settings.sampling.seed) == (0, 3)
    assert (settings.heat.show, settings.heat.bits) == ("surprisal", True)
    assert settings.keys == {"prompt.send": "ctrl+s, enter"}
    assert (settings.cache.max_kv_size, settings.cache.disk, settings.cache.checkpoint_bytes) == (2048, False, 1000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("theme = 3\n", "line 1: theme: expected `str`, got `int`"),
        ("\nthem = 'x'\n", "line 2: them: unknown key: did you mean theme?"),
        ("[heat]\nshow = 'rainbow'\n", "line 2: heat.show: "),
        ("[keys]\na = 'x'\nb = 3\n", "line 3: keys.b: expected `str`"),
        ("[cache]\nkv_bits = 7\n", "line 2: cache.kv_bits: "),
        ("[sampling]\nlogit_bias = { 5 = 'x' }\n", "line 2: sampling.logit_bias.5: expected `float`"),
        ("[sampling]\nseed = 1\ntemperature = -3\n", "line 3: sampling.temperature: must be from 0 to 100, not -3"),
        ("[sampling]\nmax_tokens = 0\n", "line 2: sampling.max_tokens: must be at least 1, not 0"),
        ("[sampling]\nsampler = 'adaptve'\n", "line 2: sampling.sampler: there is no sampler “adaptve”"),
        ("alternatives = -1\n", "line 1: alternatives: expected `int` >= 0"),
        ("[cache]\nmax_kv_size = 4\n", "line 2: cache.max_kv_size: must be at least 8, not 4"),
        ("[cache]\nmax_kv_size = 64\nkeep = 33\n", "line 3: cache.keep: must be at most half of max_kv_size (32)"),
        ("[cache]\ndisk_bytes = -1\n", "line 2: cache.disk_bytes: expected `int` >= 0"),
    ],
)
def test_mistakes_are_named_by_file_line_and_key(text, words):
    path = write(text)
    with pytest.raises(ChatappError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{path}, {words}")
    assert (caught.value.kind, caught.value.exit_code) == ("usage", 2)
