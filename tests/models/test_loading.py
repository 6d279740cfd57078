"""From a folder to a model in memory, and everything that can be wrong with the folder."""

import json
import shutil
import warnings

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, save

from chatapp.engine import precision
from chatapp.engine.convert import convert_gguf
from chatapp.engine.loading import load
from chatapp.errors import ChatappError, Interrupted, UsageError
from chatapp.models import caveats, fit
from chatapp.models.progress import silent
from chatapp.protocol import Load
from tests.models.gguf_files import Shape, write_gguf

IDS = mx.array([[5, 40, 7, 99, 200, 13]])


@pytest.fixture
def folder(tmp_path):
    """A tiny Llama of our own conversion, copied to a folder of the person's own."""
    path = write_gguf(tmp_path / "tiny.gguf", Shape(), "F16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = convert_gguf(path, "0" * 64, silent, "float32")
    return shutil.copytree(made, tmp_path / "model")


def load_folder(folder, **options):
    return load(Load(1, model=str(folder), **options))


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def test_a_loaded_model_says_what_it_is(folder):
    steps = []
    loaded = load(Load(1, model=f"path:{folder}"), steps.append)
    assert loaded.spec.title == "model"
    assert (loaded.context, loaded.max_kv_size, loaded.vocab_size) == (512, 512, 263)
    assert loaded.bytes == sum(array.nbytes for _, array in tree_flatten(loaded.model.parameters()))
    assert (steps[-1].stage, steps[-1].done) == ("load", steps[-1].total)
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("hello w")) == "hello w"
    assert loaded.tokenizer.has_chat_template
    assert loaded.note == ""


def test_the_fingerprint_changes_with_the_content_and_only_then(folder, tmp_path):
    first = load_folder(folder).fingerprint
    assert load_folder(folder).fingerprint == first
    assert load_folder(folder, adapter=str(make_adapter(folder, tmp_path))).fingerprint != first
    edit_config(folder, rope_theta=5000.0)
    assert load_folder(folder).fingerprint != first


@pytest.mark.skipif(mx.default_device() == mx.gpu, reason="a GPU computes in the stored format")
def test_on_a_cpu_bfloat16_is_computed_in_float32(folder):
    model, config = load_model(folder)
    model.set_dtype(mx.bfloat16)
    save(folder, folder, model, load_folder(folder).tokenizer, config)
    loaded = load_folder(folder)
    assert loaded.dtype == "float32"
    assert {array.dtype for _, array in tree_flatten(loaded.model.parameters())} == {mx.float32}


def quantize(folder, bits=4):
    model, config = load_model(folder)
    nn.quantize(model, group_size=32, bits=bits)
    config["quantization"] = {"group_size": 32, "bits": bits}
    save(folder, folder, model, load_folder(folder).tokenizer, config)


@pytest.mark.skipif(mx.default_device() == mx.gpu, reason="a GPU computes quantized weights")
@pytest.mark.parametrize("bits", [4, 8])
def test_on_a_cpu_quantized_weights_are_unpacked_exactly(folder, bits):
    quantize(folder, bits)
    stored = mx.load(str(folder / "model.safetensors"))
    loaded = load_folder(folder)
    assert loaded.dtype == f"float32 (from {bits}-bit)"
    name = "model.layers.1.mlp.down_proj"
    codes = np.array(stored[f"{name}.weight"]).view(np.uint8)
    if bits == 4:  # low nibble first
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(codes.shape[0], -1)
    scales, biases = (np.array(stored[f"{name}.{part}"].astype(mx.float32)) for part in ("scales", "biases"))
    expected = codes.reshape(codes.shape[0], -1, 32) * scales[..., None] + biases[..., None]
    weight = dict(tree_flatten(loaded.model.parameters()))[f"{name}.weight"]
    np.testing.assert_allclose(np.array(weight), expected.reshape(weight.shape), rtol=1e-6, atol=1e-7)
    packed, _ = load_model(folder)
    np.testing.assert_allclose(np.array(loaded.model(IDS)), np.array(packed(IDS)), atol=1e-3)


@pytest.mark.skipif(mx.default_device() == mx.gpu, reason="a GPU computes quantized weights")
def test_quantized_weights_stay_packed_where_the_memory_is_short(folder, monkeypatch):
    quantize(folder)
    monkeypatch.setattr(precision, "UNPACKED_SHARE", 0.0)
    loaded = load_folder(folder)
    assert loaded.dtype == "4-bit"
    assert "slow" in loaded.note


def test_the_planned_size_is_the_size(folder):
    config = json.loads((folder / "config.json").read_text())
    loaded = load_folder(folder)
    counts = {"F32": loaded.bytes // 4}
    assert precision.plan(config, counts, 1 << 40).bytes == loaded.bytes


def make_adapter(folder, tmp_path, rank=2):
    from mlx_lm.tuner.utils import linear_to_lora_layers

    adapter = tmp_path / f"adapter{rank}"
    adapter.mkdir(exist_ok=True)
    parameters = {"rank": rank, "scale": 20.0, "dropout": 0.0}
    (adapter / "adapter_config.json").write_text(
        json.dumps({"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": parameters})
    )
    model, _ = load_model(folder)
    linear_to_lora_layers(model, 2, parameters)
    mx.random.seed(0)
    weights = {
        name: mx.random.normal(array.shape) * 0.05
        for name, array in tree_flatten(model.parameters())
        if name.endswith(("lora_a", "lora_b"))
    }
    mx.save_safetensors(str(adapter / "adapters.safetensors"), weights)
    return adapter


def test_an_adapter_adds_its_low_rank_product(folder, tmp_path):
    adapter = make_adapter(folder, tmp_path)
    plain, adapted = load_folder(folder).model, load_folder(folder, adapter=str(adapter)).model
    low = mx.load(str(adapter / "adapters.safetensors"))
    name = "model.layers.1.self_attn.q_proj"
    x = mx.random.normal((1, 3, 64))
    expected = np.array(x @ plain.model.layers[1].self_attn.q_proj.weight.T)
    expected = expected + 20.0 * np.array(x) @ np.array(low[f"{name}.lora_a"]) @ np.array(low[f"{name}.lora_b"])
    np.testing.assert_allclose(np.array(adapted.model.layers[1].self_attn.q_proj(x)), expected, atol=1e-4)


def test_adapters_that_do_not_fit(folder, tmp_path):
    with pytest.raises(UsageError, match=r"holds no adapter_config\.json"):
        load_folder(folder, adapter=str(tmp_path))
    adapter = make_adapter(folder, tmp_path)
    config = adapter / "adapter_config.json"
    config.write_text(config.read_text().replace('"rank": 2', '"rank": 3'))
    with pytest.raises(ChatappError, match=r"does not fit model .*: it was made for another model"):
        load_folder(folder, adapter=str(adapter))
    config.write_text("{")
    with pytest.raises(ChatappError, match="does not fit"):
        load_folder(folder, adapter=str(adapter))


def test_drafts(folder, tmp_path):
    draft = shutil.copytree(folder, tmp_path / "draft")
    assert load_folder(folder, draft=str(draft)).draft.spec.title == "draft"
    assert load_folder(folder, draft="lookup").draft == "lookup"
    assert load_folder(folder).draft is None
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["content"] = "<other>"
    tokenizer["model"]["vocab"] = {k.replace("hello", "jello"): v for k, v in tokenizer["model"]["vocab"].items()}
    tokenizer["model"]["merges"] = []
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UsageError, match="draft cannot draft for model, their tokenizers differ"):
        load_folder(folder, draft=str(draft))


def remove(name):
    return lambda folder: (folder / name).unlink()


def cut(folder):
    path = next(folder.glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-100])


def garbage(name):
    return lambda folder: (folder / name).write_bytes(b"\x00garbage" * 20)


def no_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json"):
        (folder / name).unlink()


WEIGHTS = "model-00001-of-00001.safetensors"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (remove("config.json"), "has no config.json"),
        (garbage("config.json"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text("[]"), "not a JSON object"),
        (remove(WEIGHTS), f"lacks {WEIGHTS}"),
        (
            lambda folder: [remove(WEIGHTS)(folder), remove("model.safetensors.index.json")(folder)],
            "no model*.safetensors",
        ),
        (cut, f"{WEIGHTS} is damaged"),
        (garbage(WEIGHTS), f"{WEIGHTS} is damaged"),
        (garbage("model.safetensors.index.json"), "index.json is damaged"),
        (no_tokenizer, "has no tokenizer"),
        (garbage("tokenizer.json"), "The tokenizer of model"),
        (lambda folder: (folder / "tokenizer.json").write_text('{"model": {"type": "?"}}'), "The tokenizer of model"),
        (lambda folder: edit_config(folder, model_type="martian"), "of the type “martian”"),
        (lambda folder: edit_config(folder, model_type="../../x"), "which this version of mlx-lm cannot run"),
        (lambda folder: edit_config(folder, model_type="cache"), "which this version of mlx-lm cannot run"),
        (lambda folder: edit_config(folder, model_type=None), "names no model_type"),
        (lambda folder: edit_config(folder, model_file="x.py"), "needs program code of its own"),
        (lambda folder: edit_config(folder, num_hidden_layers=3), "its files do not fit together"),
        (lambda folder: edit_config(folder, hidden_size=32), "its files do not fit together"),
        (lambda folder: edit_config(folder, num_attention_heads=None), "its files do not fit together"),
    ],
)
def test_damage_is_a_sentence(folder, spoil, sentence):
    spoil(folder)
    with pytest.raises(ChatappError) as caught:
        load_folder(folder)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.kind == "model"


def test_no_code_is_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {
        "tokenizer_class": "Evil",
        "auto_map": {"AutoTokenizer": ["evil.Evil", None]},
    }
    path.write_text(json.dumps(config))
    with pytest.raises(ChatappError, match="The tokenizer of model"):
        load_folder(folder)


def test_what_is_not_exact_with_a_family_is_told(folder, monkeypatch):
    monkeypatch.setitem(caveats.CAVEATS, "llama", "something is odd")
    assert load_folder(folder).note.endswith("something is odd.")


def test_loading_can_be_stopped(folder):
    def stop(step):
        if step.stage == "load":
            raise Interrupted

    with pytest.raises(Interrupted):
        load(Load(1, model=str(folder)), stop)


def test_the_fit_is_told_before_loading(folder, monkeypatch):
    monkeypatch.setattr(fit, "available_bytes", lambda: fit.OVERHEAD + 2_000_000)
    with pytest.raises(ChatappError, match="try --max-kv-size") as caught:
        load_folder(folder, max_kv_size=100_000)
    assert caught.value.kind == "memory"
    monkeypatch.setattr(fit, "available_bytes", lambda: 1000)
    with pytest.raises(ChatappError, match="close other programs"):
        load_folder(folder)
