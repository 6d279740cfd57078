"""The default model, from its name to an answer, by chatapp's own download, conversion and loading."""

import mlx.core as mx
import pytest

from chatapp.engine.loading import load
from chatapp.models.catalog import look
from chatapp.models.folder import read_config
from chatapp.models.registry import DEFAULT_MODEL, load_registry
from chatapp.protocol import Load
from tests.conftest import MODEL_CACHE


@pytest.mark.model
def test_it_is_ready_and_answers(default_model_dir, monkeypatch):
    monkeypatch.setenv("CHATAPP_CACHE_DIR", str(MODEL_CACHE))
    entry = look(load_registry().find(DEFAULT_MODEL))
    assert (entry.state, entry.folder) == ("ready", default_model_dir)
    steps = []
    loaded = load(Load(1, model=DEFAULT_MODEL), steps.append)
    assert {step.stage for step in steps} == {"load"}  # nothing is fetched or converted again
    assert (loaded.context, loaded.vocab_size, loaded.note) == (8192, 49152, "")
    config = read_config(default_model_dir, "")
    assert entry.spec.shape == {key: config[key] for key in entry.spec.shape}  # by which ranks refuse it beforehand
    assert loaded.bytes in (entry.spec.memory_bytes, entry.spec.memory_bytes // 2)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = list(loaded.tokenizer.apply_chat_template(question, add_generation_prompt=True))
    for _ in range(8):
        ids.append(int(mx.argmax(loaded.model(mx.array([ids]))[0, -1])))
    assert "Paris" in loaded.tokenizer.decode(ids[-8:])
