"""Small real tokenizers of the two common kinds, made by the `tokenizers` library."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "The quick brown fox jumps over the lazy dog.  Two spaces, and a new\nline.",
    "User: hello there\nAssistant: naïve café, 東京タワー, привет, 😀👩‍👩‍👧 done.",
    "for (int i = 0; i < 10; ++i) { print(i , i) ; }",
] * 3
SPECIAL = ["<s>", "</s>", "<|im_end|>"]


@cache
def byte_level() -> PreTrainedTokenizerFast:
    """Like GPT-2's and Llama 3's: every id is a piece of bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return _wrapped(tokenizer)


@cache
def sentencepiece() -> PreTrainedTokenizerFast:
    """Like Llama 2's and Mistral's: words begin with a mark that becomes a space, unknown characters are bytes."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", *SPECIAL])}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    letters = sorted({letter for text in CORPUS for letter in text if letter.isascii() and letter != "\n"} - {" "})
    for piece in ["▁", *letters]:
        vocabulary.setdefault(piece, len(vocabulary))
    merges = [("▁", letter) for letter in letters] + [("o", "x"), ("▁f", "ox"), ("e", "r"), ("▁t", "h"), ("▁th", "e")]
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    return _wrapped(tokenizer)


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", additional_special_tokens=["<|im_end|>"]
    )
