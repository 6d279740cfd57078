"""A rank of a pipeline fetches, checks and loads the files of its own layers only."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.pipeline import PipelineMixin

from chatapp.engine.sharding import load_part
from chatapp.errors import ChatappError
from chatapp.models import parallel
from chatapp.models.folder import check_files
from chatapp.protocol import Turn
from tests.distributed.conftest import Start
from tests.distributed.talk import SEEDED, Said, Talk, assert_alike
from tests.distributed.test_exact import write_odd
from tests.models.fake_hub import FakeHub

LAYERS = 3


@pytest.fixture
def split_model(tmp_path: Path) -> Path:
    """A model whose files are one for each layer, and one for the rest."""
    folder = write_odd(tmp_path / "odd")
    whole = folder / "model.safetensors"
    weights = mx.load(str(whole))
    assert isinstance(weights, dict)
    files = {name: _file(name) for name in weights}
    for file in set(files.values()):
        mx.save_safetensors(str(folder / file), {name: weights[name] for name in weights if files[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    whole.unlink()
    return folder


def _file(name: str) -> str:
    layer = next((number for number in range(LAYERS) if f"layers.{number}." in name), None)
    return "model-rest.safetensors" if layer is None else f"model-layer{layer}.safetensors"


class _Group:
    def __init__(self, rank: int, size: int) -> None:
        self.rank = lambda: rank
        self.size = lambda: size


class _Layers(PipelineMixin):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.layers = list(range(count))


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_layers_are_foreseen_as_mlx_lm_divides_them(ranks: int):
    for count in range(ranks, 12):
        config = {"model_type": "qwen2", "num_attention_heads": 7, "num_hidden_layers": count}
        for rank in range(ranks):
            model = _Layers(count)
            model.pipeline(_Group(rank, ranks))
            assert parallel.own_layers(config, rank, ranks) == range(model.start_idx, model.end_idx)


def test_all_files_where_heads_are_divided_and_where_a_family_has_its_own_rule():
    assert parallel.own_layers({"model_type": "qwen2", "num_attention_heads": 8, "num_hidden_layers": 4}, 0, 2) is None
    assert parallel.own_layers({"model_type": "kimi_k3", "num_hidden_layers": 4}, 0, 2) is None
    assert parallel.own_layers({"model_type": "qwen2", "num_attention_heads": 7, "num_hidden_layers": 4}, 0, 1) is None


def test_only_the_files_of_own_layers_have_to_be_there(split_model: Path):
    (split_model / "model-layer0.safetensors").unlink()
    names = [path.name for path in check_files(split_model, "M", range(1, 3))]
    assert names == ["model-layer1.safetensors", "model-layer2.safetensors", "model-rest.safetensors"]
    for own in (None, range(0, 1)):
        with pytest.raises(ChatappError, match=r"lacks model-layer0\.safetensors"):
            check_files(split_model, "M", own)


def test_a_part_is_loaded_strictly(split_model: Path):
    """mlx-lm's own loader of parts would leave random numbers in the place of a weight that is missing."""
    (split_model / "model-layer0.safetensors").unlink()
    path = split_model / "model-layer1.safetensors"
    weights = mx.load(str(path))
    assert isinstance(weights, dict)
    found, _ = load_part(split_model, range(1, 3))
    name = "model.layers.1.self_attn.o_proj.weight"
    assert mx.array_equal(found.model.layers[1].self_attn.o_proj.weight, weights.pop(name))
    path.unlink()
    mx.save_safetensors(str(path), weights)
    load_part(split_model, range(2, 3))
    with pytest.raises(ValueError, match=r"no weights for model\.layers\.1\.self_attn\.o_proj\.weight"):
        load_part(split_model, range(1, 3))


#: Gives each rank a cache of its own, as on machines of its own.
OWN_CACHE = """
import os
if "MLX_RANK" in os.environ:
    os.environ["HF_HOME"] = os.path.join(os.environ["HF_HOME"], "rank" + os.environ["MLX_RANK"])
"""


async def test_a_rank_downloads_the_files_of_its_layers(
    start: Start, split_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "sitecustomize.py").write_text(OWN_CACHE)
    question = Turn("user", "What is the capital of France?")
    said: list[list[Said]] = []
    with FakeHub(files={path.name: path.read_bytes() for path in split_model.iterdir()}) as hub:
        for name, value in {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": ""}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        for ranks, model in ((1, str(split_model)), (2, "hf:owner/tiny")):
            talk = Talk(await start(ranks))
            loaded = await talk.load(Path(model), max_kv_size=256)
            await talk.reply("first", question, sampling=SEEDED)
            said.append(talk.said)
    assert loaded.parallel == "pipeline ×2"
    assert_alike(*said)
    weights = {
        rank: {path.name for path in (tmp_path / f"rank{rank}").rglob("snapshots/*/*.safetensors")} for rank in (0, 1)
    }
    assert weights == {
        0: {"model-layer1.safetensors", "model-layer2.safetensors", "model-rest.safetensors"},
        1: {"model-layer0.safetensors", "model-rest.safetensors"},
    }
