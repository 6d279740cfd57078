"""models.toml: what is shipped, what a person adds, and how mistakes are named."""

import re
from pathlib import Path

import pytest

from chatapp import paths
from chatapp.errors import ChatappError, UsageError
from chatapp.models.families import is_known
from chatapp.models.registry import DEFAULT_MODEL, load_registry
from chatapp.models.sources import Source, guess_source, parse_source

#: Model types of the shipped models, from the config.json of their repositories.
FAMILIES = {
    "gemma-3": "gemma3_text", "gemma-4": "gemma4", "gpt-oss": "gpt_oss", "granite": "granite", "lfm2": "lfm2",
    "llama": "llama", "mistral": "mistral", "phi-4": "phi3", "qwen3-30b": "qwen3_moe", "qwen3": "qwen3",
    "smollm2": "llama", "smollm3": "smollm3",
}  # fmt: skip


def write(text: str) -> Path:
    path = paths.config_dir() / "models.toml"
    path.write_text(text)
    return path


def test_every_shipped_model_has_a_source_a_licence_and_sizes_that_agree():
    specs = list(load_registry())
    assert len(specs) >= 15
    for spec in specs:
        assert spec.title
        assert spec.license
        assert spec.note == "" or spec.note.endswith(".")
        assert is_known(next(kind for start, kind in FAMILIES.items() if spec.name.startswith(start)))
        assert 0 < spec.memory_bytes <= spec.download_bytes or spec.name == DEFAULT_MODEL
        if spec.place.kind == "hf" and not spec.name.startswith(("gemma", "gpt-oss")):
            four_bits = spec.parameters * 4.5 / 8
            assert spec.memory_bytes == pytest.approx(four_bits, rel=1e-6)
            assert four_bits * 0.999 < spec.download_bytes < four_bits * 1.05


def test_pins_are_whole_commits():
    revisions = [spec.place.revision for spec in load_registry() if spec.place.kind == "hf"]
    assert all(re.fullmatch("[0-9a-f]{40}", revision) for revision in revisions)


def test_a_persons_file_adds_and_overrides_key_by_key(tmp_path):
    (tmp_path / "mine").mkdir()
    path = write("""
[models.mine]
source = "path:weights"
template = { thinking = false, variables = { tone = "dry" } }
[models.smollm2-135m.sampling]
temperature = 0.9
""")
    registry = load_registry()
    mine = registry.find("mine")
    assert (mine.name, mine.title) == ("mine", "mine")
    assert mine.place == Source("path", str(path.parent / "weights"))
    assert mine.template.variables == {"tone": "dry"}
    default = registry.find(DEFAULT_MODEL)
    assert (default.sampling.temperature, default.sampling.top_p) == (0.9, 0.9)
    assert default.sha256.startswith("b179")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[models.a]\nsource = 'hf:a/b'\ncontext = = 3\n", 3, "correct it"),
        ("[models.a]\nsource = 'hf:a/b'\n[models.a\n", 3, "correct it"),
        ('[models.a]\nsource = \'hf:a/b\'\nx = """\nnever closed\n', 4, "correct it"),
        ("[models.a]\nsource = 'hf:a/b'\n\ncontexts = 3\n", 4, "models.a.contexts: unknown key: did you mean context"),
        ("[models.a]\nsource = 'hf:a/b'\nbanana = 3\n", 3, "models.a.banana: unknown key: known keys are adapter,"),
        ("[models.a]\nsource = 'hf:a/b'\ncontext = 'long'\n", 3, "models.a.context: expected `int`, got `str`"),
        ("[models.a]\nsource = 'hf:a/b'\n[models.a.sampling]\ntemprature = 1\n", 4, "did you mean temperature"),
        ("[models.a]\nsource = 'hf:a/b'\nsampling = { top_k = 'x' }\n", 3, "models.a.sampling.top_k: expected"),
        ("[models.a]\nsource = 'hf:a/b'\nsampling.top_k = 'x'\n", 3, "models.a.sampling.top_k: expected"),
        (
            "[models.a]\nsource = 'hf:a/b'\n[models.a.adaptive]\nlow_entropy = 1\nhigh_entropy = 'x'\n",
            5,
            "models.a.adaptive.high_entropy: expected",
        ),
        ("[models.a]\nsource = 'hf:a/b'\nstop = ['x', 3]\n", 3, "models.a.stop.1: expected `str`"),
        ("[models.a]\ntitle = 'x'\n", 1, "models.a: source is missing"),
        ("[models.a]\ntitle = 'x'\nsource = 'ftp://x'\n", 3, "“ftp://x” is not a model source"),
        ("[models.a]\nsource = 'hf:a/b'\nname = 'b'\n", 3, "the name is in the table's header"),
        ("\n[models.'A b']\nsource = 'hf:a/b'\n", 2, 'models."A b": a model\'s name has only'),
        ("[model.a]\nsource = 'hf:a/b'\n", 1, "model: unknown key"),
        ("models = 3\n", 1, "models: must be a table"),
        ("[models]\na = 3\n", 2, "models.a: must be a table"),
        ("[models.a]\nsource = 'hf:a/b'\nsampling = 3\n", 3, "models.a.sampling: expected `object`"),
        ("[models.a]\nsource = 'hf:a/b'\ncontext = -1\n", 3, "models.a.context: expected `int` >= 0"),
        ("[models.a]\nsource = 'hf:a/b'\nmax_kv_size = 7\n", 3, "models.a.max_kv_size: must be at least 8, not 7"),
        ("[models.a]\nsource = 'hf:a/b'\nsha256 = 'b17'\n", 3, "models.a.sha256: must be 64 hexadecimal digits"),
        ("[models.a]\nsource = 'hf:a/b'\nstop = ['']\n", 3, "models.a.stop.0: expected `str` of length >= 1"),
        (
            "[models.a]\nsource = 'hf:a/b'\n[models.a.sampling]\ntop_k = 1\ntemperature = -3\n",
            5,
            "models.a.sampling.temperature: must be from 0 to 100, not -3",
        ),
        ("[models.a]\nsource = 'hf:a/b'\nsampling = { top_p = 1.5 }\n", 3, "sampling.top_p: must be from 0 to 1, not"),
        (
            "[models.a]\nsource = 'hf:a/b'\nsampling.min_p = nan\n",
            3,
            "sampling.min_p: must be a finite number, not nan",
        ),
        ("[models.a]\nsource = 'hf:a/b'\nsampling.stop = ['x', '']\n", 3, "sampling.stop: an empty string would end"),
        (
            "[models.a]\nsource = 'hf:a/b'\nsampling.sampler = 'adaptve'\n",
            3,
            "there is no sampler “adaptve”; choose one",
        ),
        (
            "[models.a]\nsource = 'hf:a/b'\nsampling.logit_bias = { 5 = inf }\n",
            3,
            "logit_bias.5: must be a finite number",
        ),
        ("[models.a]\nsource = 'hf:a/b'\nadaptive = { low = 1.0 }\n", 3, "models.a.adaptive.low: unknown key: known"),
        ("[models.a]\nsource = 'hf:a/b'\n[models.a.adaptive]\nlow_entropy = -1\n", 4, "must be from 0 to 100, not -1"),
        (
            "[models.a]\nsource = 'hf:a/b'\n[models.a.adaptive]\nhigh_entropy = 1\nlow_entropy = 2\n",
            5,
            "models.a.adaptive.low_entropy: must be below high_entropy, which is 1, not 2",
        ),
        ("[models.a]\nsource = 'hf:a/b'\ndraft = 'qwen3-0.7b'\n", 3, "models.a.draft: There is no model “qwen3-0.7b”"),
        ("[models.smollm2-135m.sampling]\ntop_k = -1\n", 2, "sampling.top_k: must be at least 0, not -1"),
    ],
)
def test_mistakes_are_named_by_file_line_and_key(text, line, words):
    path = write(text)
    with pytest.raises(ChatappError) as caught:
        load_registry()
    assert (caught.value.kind, caught.value.exit_code) == ("usage", 2)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: ")
    assert words in message
    assert "\n" not in message


def test_a_models_file_may_name_what_drafts_and_adapts(tmp_path):
    path = write("""
[models.large]
source = "hf:a/b"
draft = "small"
adapter = "lora"
[models.small]
source = "path:tiny"
draft = "lookup"
""")
    large = load_registry().find("large")
    assert (large.draft, large.adapter) == ("small", str(path.parent / "lora"))
    assert load_registry().find("small").draft == "lookup"


def test_unreadable_files_are_named():
    path = write("")
    path.write_bytes(b"[models.a]\nsource = 'hf:\xff'\n")
    with pytest.raises(ChatappError, match="line 2: not UTF-8"):
        load_registry()
    path.unlink()
    path.mkdir()
    with pytest.raises(ChatappError, match="cannot be read"):
        load_registry()


def test_finding_a_model(tmp_path, monkeypatch):
    registry = load_registry()
    assert registry.find("owner/repo@v1").place == Source("hf", "owner/repo", "v1")
    assert registry.find("mlx-community/Qwen3-8B-8bit").title == "Qwen3-8B-8bit"
    pinned = registry.find("qwen3-8b")
    assert registry.find(str(pinned.place)) is pinned
    assert registry.find(pinned.place.location) is pinned
    assert registry.find(f"{pinned.place.location}@main").place.revision == "main"
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    (tmp_path / "m.gguf").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert registry.find("tiny").place == Source("path", str(tmp_path / "tiny"))
    assert registry.find("m.gguf").place == Source("gguf", str(tmp_path / "m.gguf"))
    with pytest.raises(UsageError, match=r"There is no model “smollm2-135”\. Did you mean smollm2-135m\?"):
        registry.find("smollm2-135")
    with pytest.raises(UsageError, match="`chatapp models` lists the known ones"):
        registry.find("???")


@pytest.mark.parametrize(
    "text", ["hf:a", "hf:a/b/c", "hf:../x", "pypi:x", "pypi:x==1", "path:", "gguf:", "nope:x", "x"]
)
def test_bad_sources(text):
    with pytest.raises(UsageError, match="is not a model source"):
        parse_source(text)


def test_sources_are_written_as_they_are_read():
    for text in ("hf:a/b", "hf:a/b@c", "path:/x", "gguf:/x.gguf", "pypi:p-q==1.2/in/side.gguf"):
        assert str(parse_source(text)) == text
    assert guess_source("just-a-name") is None
