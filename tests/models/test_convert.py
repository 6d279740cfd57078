"""GGUF files become mlx-lm folders that compute what the file means."""

import errno
import json
import os
import warnings
from pathlib import Path

import gguf2mlx.gguf2mlx
import mlx.core as mx
import msgspec
import numpy as np
import pytest
from mlx_lm.utils import load as mlx_load

from chatapp.engine.convert import convert_gguf
from chatapp.engine.fetching import fetch
from chatapp.errors import ChatappError, Interrupted
from chatapp.models.conversions import read_conversion
from chatapp.models.progress import silent
from chatapp.models.registry import ModelSpec
from chatapp.models.store import sha256
from tests.models.gguf_files import Shape, logits, read_tensors, write_gguf


def convert(path, kind="float32"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return convert_gguf(path, sha256(path, silent), silent, kind)


def computed(folder, ids):
    model, _ = mlx_load(str(folder))
    return np.array(model(mx.array([ids]))[0].astype(mx.float32))


@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0", "F16", "F32"])
@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"])
def test_logits_are_those_of_the_file(tmp_path, arch, kind):
    gemma3 = {"layers": 6, "theta": 1_000_000.0} if arch == "gemma3" else {}
    shape = Shape(arch=arch, tied=arch != "qwen2", **gemma3)
    path = write_gguf(tmp_path / "tiny.gguf", shape, kind)
    ids = [5, 40, 7, 99, 200, 13, 40, 7]
    expected = logits(read_tensors(path), shape, ids)
    assert expected.std() > 0.1
    np.testing.assert_allclose(computed(convert(path), ids), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K", "Q5_K", "Q6_K"])
def test_the_kinds_of_blocks_that_most_published_files_have(tmp_path, kind):
    shape = Shape(hidden=256, heads=4, kv_heads=2, head=64, ffn=256)
    path = write_gguf(tmp_path / "tiny.gguf", shape, kind)
    weights = read_tensors(path)
    assert 0.02 < weights["blk.0.ffn_up.weight"].std() < 0.5
    expected = logits(weights, shape, [5, 40, 7, 99])
    np.testing.assert_allclose(computed(convert(path), [5, 40, 7, 99]), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.model
def test_the_default_model_computes_what_its_file_means(default_model_dir):
    path = Path(read_conversion(default_model_dir).source)
    shape = Shape(layers=30, hidden=576, heads=9, kv_heads=3, head=64, theta=100_000.0)
    ids = [1, 4093, 198, 1780, 314, 260]
    expected = logits(read_tensors(path), shape, ids)
    result = computed(default_model_dir, ids)
    np.testing.assert_allclose(result, expected, atol=5e-3)
    assert (result.argmax(-1) == expected.argmax(-1)).all()


def test_no_code_is_left_in_a_folder(tmp_path):
    """gguf2mlx writes a Python file for Gemma 1, which mlx-lm would run: its own gemma does."""
    folder = convert(write_gguf(tmp_path / "tiny.gguf", Shape(arch="gemma")))
    assert list(folder.glob("*.py")) == []
    assert "model_file" not in json.loads((folder / "config.json").read_text())


def test_float16_is_the_rounded_float32(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape(), "Q8_0")
    full, half = (
        mx.load(str(convert(path, kind) / "model-00001-of-00001.safetensors")) for kind in ("float32", "float16")
    )
    assert full.keys() == half.keys()
    for name, array in half.items():
        assert array.dtype == mx.float16
        np.testing.assert_array_equal(np.array(array), np.array(full[name]).astype(np.float16))


def test_a_content_is_converted_once(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    steps = []
    first = convert_gguf(path, sha256(path, silent), steps.append)
    assert [step.done for step in steps] == list(range(steps[-1].total + 1))
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(path.read_bytes())
    assert convert_gguf(copy, sha256(copy, silent), pytest.fail) == first
    other = write_gguf(tmp_path / "other.gguf", Shape(), seed=1)
    assert convert(other) != first


def test_a_file_is_hashed_again_only_when_it_changed(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    stages = []

    def report(step):
        stages.append(step.stage)

    first = fetch(f"gguf:{path}", report)
    assert set(stages) == {"verify", "convert"}
    stages.clear()
    assert fetch(f"gguf:{path}", report) == first
    assert stages == []
    write_gguf(path, Shape(), seed=1)
    assert fetch(f"gguf:{path}", report).version != first.version


def test_a_pinned_gguf_of_ones_own_must_be_that_content(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    spec = ModelSpec(name="x", title="x", source=f"gguf:{path}", sha256="0" * 64)
    with pytest.raises(ChatappError, match=r"is not the file that models\.toml pins"):
        fetch(spec)
    assert fetch(msgspec.structs.replace(spec, sha256=sha256(path, silent))).version == sha256(path, silent)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path, private_folders):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    (private_folders / "cache").mkdir(mode=0o500)
    with pytest.raises(ChatappError, match="could not be stored"):
        fetch(f"gguf:{path}")


def test_stopped_in_the_middle_nothing_is_left(tmp_path, private_folders):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())

    def stop(step):
        if step.done == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        convert_gguf(path, sha256(path, silent), stop)
    assert [entry.name for entry in (private_folders / "cache" / "converted").iterdir() if entry.is_dir()] == []
    assert (convert(path) / "config.json").exists()


def test_a_disk_that_becomes_full_is_said(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gguf2mlx.streaming.StreamingShardWriter.add", full)
    with pytest.raises(ChatappError, match="disk became full") as caught:
        convert(path)
    assert caught.value.kind == "space"


def test_the_progress_bar_that_is_replaced_exists_and_comes_back(tmp_path):
    """`engine.gguf` relies on gguf2mlx counting tensors with a ``tqdm`` of its module."""
    before = gguf2mlx.gguf2mlx.tqdm
    assert before.__name__ == "tqdm"
    convert(write_gguf(tmp_path / "tiny.gguf", Shape()))
    assert gguf2mlx.gguf2mlx.tqdm is before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"not a model", "is not a usable GGUF file"),
        (b"GGUF\x03\x00\x00\x00", "is not a usable GGUF file"),
        (b"", "is not"),
    ],
)
def test_what_is_no_gguf_is_said(tmp_path, content, sentence):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ChatappError, match=sentence):
        fetch(f"gguf:{path}")


def test_a_cut_gguf_is_said(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ChatappError, match=r"bad|usable|converted"):
        fetch(f"gguf:{path}")


def test_an_unknown_architecture_is_said(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", Shape(arch="falcon"))
    with pytest.raises(ChatappError, match="Unsupported GGUF architecture: falcon"):
        fetch(f"gguf:{path}")


def test_gemma_4_is_refused_for_what_gguf2mlx_does_not_know(tmp_path):
    """It looks for tensor names that no published file has; where this fails, docs/models.md has to change too."""
    path = write_gguf(tmp_path / "tiny.gguf", Shape(arch="gemma4"))
    with pytest.raises(ChatappError, match=r"cannot be converted .*post_attention_norm.* try an MLX or safetensors"):
        fetch(f"gguf:{path}")


def test_smollm_splits_digits_and_words_as_it_was_trained(tmp_path):
    folder = convert(write_gguf(tmp_path / "tiny.gguf", Shape(), pre="smollm"))
    splits = json.loads((folder / "tokenizer.json").read_text())["pre_tokenizer"]["pretokenizers"]
    assert [split["type"] for split in splits] == ["Digits", "ByteLevel"]
    assert read_conversion(folder).note == ""


def test_an_unknown_way_of_splitting_is_noted(tmp_path):
    folder = convert_gguf(
        path := write_gguf(tmp_path / "tiny.gguf", Shape(), pre="martian"), sha256(path, silent), silent
    )
    assert "tokenized oddly" in read_conversion(folder).note


@pytest.mark.model
def test_the_default_tokenizer_splits_as_smollm(default_model_dir):
    """Pieces of the original tokenizer: GPT-2's splitting after single digits."""
    from mlx_lm.tokenizer_utils import load as load_tokenizer

    tokenizer = load_tokenizer(default_model_dir)
    pieces = [tokenizer.decode([token]) for token in tokenizer.encode("In 2024:-word\n\nIt's")]
    assert pieces == ["In", " ", "2", "0", "2", "4", ":-", "word", "\n", "\n", "It", "'s"]
