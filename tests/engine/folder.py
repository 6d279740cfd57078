"""A model folder as mlx-lm writes it: a tiny random-weight Llama and a real byte-level BPE tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.tiny import make
from tests.tiny.configs import CONFIGS

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TEXT = """The quick brown fox jumps over the lazy dog. What is the capital of France? The capital of France is Paris.
Tell me a story about a king and a queen who lived in a castle by the sea, and of their three children.
I do not know, but I think that it is so. Yes! No? Perhaps: one, two, three, four, five, six, seven, eight, nine, ten.
Größe, naïve café, 東京, Москва, 😀 and 👩‍👩‍👧.
"""

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def tokenizer(
    template: str | None = CHATML, markers: tuple[str, ...] = ("<think>", "</think>")
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML's control tokens and markers that are no control tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(SPECIALS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    core.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    core.add_tokens([AddedToken(marker, special=False) for marker in markers])
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = template
    return made


def write_deeper(folder: Path, shallow: Path, layers: int) -> Path:
    """A model that says the same as a shallow one and has more layers to read: the further ones add nothing."""
    folder.mkdir(parents=True)
    for file in shallow.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((shallow / "config.json").read_text())
    weights = mx.load(str(shallow / "model.safetensors"))
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    for name in [name for name in weights if name.startswith(last)]:
        silent = name.endswith(("o_proj.weight", "down_proj.weight"))
        for layer in range(config["num_hidden_layers"], layers):
            copy = name.replace(last, f"model.layers.{layer}.")
            weights[copy] = mx.zeros_like(weights[name]) if silent else weights[name]
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
    return folder


def write_model(
    folder: Path, *, context: int = 65536, template: str | None = CHATML, family: str = "llama", **sizes: int
) -> Path:
    """Writes the folder and returns it; ``sizes`` replace entries of the family's small configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer(template)
    made.save_pretrained(folder)
    changed = {**sizes, "vocab_size": len(made), "max_position_embeddings": context}
    config = {**CONFIGS[family], **changed}
    model = make(family, **changed)
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"}
    )
    eos = made.convert_tokens_to_ids("<|im_end|>")
    (folder / "config.json").write_text(json.dumps({"model_type": family, "eos_token_id": eos, **config}))
    return folder
