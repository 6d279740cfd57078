"""A tokenizer for tiny models: every id is one letter."""

from __future__ import annotations

from collections.abc import Sequence


class Letters:
    """What decoding needs of a tokenizer, for ids below 20,000; no id is special."""

    all_special_ids: tuple[int, ...] = ()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(letter) - 0x4E00 for letter in text if ord(letter) >= 0x4E00] or [0]

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        return "".join(chr(0x4E00 + token) for token in ids)
