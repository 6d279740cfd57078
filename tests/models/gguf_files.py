"""Tiny GGUF files with random weights, and what they mean, computed from their bytes in float64 with NumPy alone.

Nothing here uses gguf2mlx or mlx-lm: the block formats are those of ggml's documentation, the layers those of the
papers, the rotary layout of each architecture that of llama.cpp ("normal" pairs neighbours, "neox" pairs halves).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np
from scipy.special import erf

#: Gemma 2's soft caps of attention scores and of logits.
CAPS = (50.0, 30.0)


@dataclass(frozen=True)
class Shape:
    """A tiny transformer."""

    arch: str = "llama"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 96
    context: int = 512
    head: int = 16
    theta: float = 10_000.0
    eps: float = 1e-5
    tied: bool = True


def byte_level_vocabulary() -> tuple[list[str], list[str]]:
    """GPT-2's 256 byte tokens, a few merged ones and two control tokens; and the merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + index) for index, byte in enumerate(b for b in range(256) if b not in printable)}
    tokens = [names[byte] for byte in range(256)]
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w"]
    tokens += [merge.replace(" ", "") for merge in merges]
    return [*tokens, "<|im_start|>", "<|im_end|>"], merges


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_gguf(path: Path, shape: Shape, kind: str = "Q8_0", pre: str = "qwen2", seed: int = 0) -> Path:
    """Writes a model with random weights; matrices are of the block type ``kind``, vectors float32."""
    random = np.random.default_rng(seed)
    tokens, merges = byte_level_vocabulary()
    writer = gguf.GGUFWriter(str(path), shape.arch)
    writer.add_name("tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head)
    writer.add_value_length(shape.head)
    writer.add_rope_freq_base(shape.theta)
    writer.add_rope_dimension_count(shape.head)
    writer.add_layer_norm_rms_eps(shape.eps)
    if shape.arch in ("gemma2", "gemma3"):
        writer.add_sliding_window(256)
    if shape.arch == "gemma2":
        writer.add_attn_logit_softcapping(CAPS[0])
        writer.add_final_logit_softcapping(CAPS[1])
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template(TEMPLATE)
    for name, size in tensor_shapes(shape, len(tokens)).items():
        values = random.normal(0, 0.1, size).astype(np.float32)
        if name.endswith("norm.weight"):
            values += 1
        if len(size) == 1 or kind == "F32":
            writer.add_tensor(name, values)
        elif kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, _blocks(values, kind), raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensor_shapes(shape: Shape, vocabulary: int) -> dict[str, tuple[int, ...]]:
    q, kv = shape.heads * shape.head, shape.kv_heads * shape.head
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, shape.hidden),
        "output_norm.weight": (shape.hidden,),
    }
    if not shape.tied:
        shapes["output.weight"] = (vocabulary, shape.hidden)
    for layer in range(shape.layers):
        block = {
            "attn_norm.weight": (shape.hidden,),
            "ffn_norm.weight": (shape.hidden,),
            "attn_q.weight": (q, shape.hidden),
            "attn_k.weight": (kv, shape.hidden),
            "attn_v.weight": (kv, shape.hidden),
            "attn_output.weight": (shape.hidden, q),
            "ffn_gate.weight": (shape.ffn, shape.hidden),
            "ffn_up.weight": (shape.ffn, shape.hidden),
            "ffn_down.weight": (shape.hidden, shape.ffn),
        }
        if shape.arch == "qwen2":
            block |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if shape.arch == "qwen3":
            block |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)}
        if shape.arch in ("gemma3", "gemma4"):
            block |= {"attn_q_norm.weight": (shape.head,), "attn_k_norm.weight": (shape.head,)}
        if shape.arch in ("gemma2", "gemma3", "gemma4"):
            block |= {"post_attention_norm.weight": (shape.hidden,), "post_ffw_norm.weight": (shape.hidden,)}
        shapes |= {f"blk.{layer}.{name}": size for name, size in block.items()}
    return shapes


def _blocks(values: np.ndarray, kind: str) -> np.ndarray:
    """Packs rows into blocks of 32, as ggml documents them; for blocks of 256, draws what they hold."""
    if kind in SUPERBLOCKS:
        return _superblocks(values, kind)
    rows = []
    for row in values:
        packed = b""
        for block in row.reshape(-1, 32):
            if kind == "Q8_0":
                scale = np.float16(np.abs(block).max() / 127)
                codes = np.clip(np.round(block / np.float32(scale)), -127, 127).astype(np.int8)
                packed += scale.tobytes() + codes.tobytes()
            elif kind == "Q4_0":  # around 8
                scale = np.float16(np.abs(block).max() / 7)
                codes = np.clip(np.round(block / np.float32(scale)) + 8, 0, 15).astype(np.uint8)
                packed += scale.tobytes() + (codes[:16] | codes[16:] << 4).tobytes()
            else:  # Q4_1: low nibbles are the first half of the block
                low, scale = np.float16(block.min()), np.float16((block.max() - block.min()) / 15)
                codes = np.clip(np.round((block - np.float32(low)) / np.float32(scale)), 0, 15).astype(np.uint8)
                packed += scale.tobytes() + low.tobytes() + (codes[:16] | codes[16:] << 4).tobytes()
        rows.append(np.frombuffer(packed, np.uint8))
    return np.stack(rows)


#: Bytes of a block of 256 weights. What most published GGUF files (Q4_K_M, Q5_K_M) consist of.
SUPERBLOCKS = {"Q4_K": 144, "Q5_K": 176, "Q6_K": 210}


def _superblocks(values: np.ndarray, kind: str) -> np.ndarray:
    """Random codes and scales, with factors that make weights of the size of ``values``."""
    random = np.random.default_rng(values.size)
    blocks = random.integers(0, 256, (values.size // 256, SUPERBLOCKS[kind]), np.uint8)
    factor = np.float16(values.std() / (16 * 64)).view(np.uint16).reshape(1).view(np.uint8)
    if kind == "Q6_K":
        blocks[:, 208:210] = factor
    else:
        blocks[:, 0:2] = factor
        blocks[:, 2:4] = np.float16(values.std() / 64).view(np.uint16).reshape(1).view(np.uint8)
    return blocks.reshape(len(values), -1)


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors in float64, decoded from their bytes by the formulas of the block formats."""
    reader = gguf.GGUFReader(str(path))
    found = {}
    for tensor in reader.tensors:
        size = tuple(int(n) for n in reversed(tensor.shape))
        raw = bytes(np.ascontiguousarray(tensor.data).tobytes())
        found[tensor.name] = _decode(raw, tensor.tensor_type.name).reshape(size)
    return found


def _decode(raw: bytes, kind: str) -> np.ndarray:
    if kind == "F32":
        return np.frombuffer(raw, np.float32).astype(np.float64)
    if kind == "F16":
        return np.frombuffer(raw, np.float16).astype(np.float64)
    if kind == "Q8_0":
        block = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "i1", 32)]))
        return (block["d"].astype(np.float64)[:, None] * block["q"]).ravel()
    if kind == "Q4_1":
        block = np.frombuffer(raw, np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]))
        codes = np.concatenate([block["q"] & 15, block["q"] >> 4], axis=1)
        return (block["d"].astype(np.float64)[:, None] * codes + block["m"].astype(np.float64)[:, None]).ravel()
    if kind == "Q4_0":
        block = np.frombuffer(raw, np.dtype([("d", "<f2"), ("q", "u1", 16)]))
        codes = np.concatenate([block["q"] & 15, block["q"] >> 4], axis=1).astype(np.float64) - 8
        return (block["d"].astype(np.float64)[:, None] * codes).ravel()
    if kind in ("Q4_K", "Q5_K"):
        return _decode_4_or_5(raw, kind)
    if kind == "Q6_K":
        return _decode_6(raw)
    raise NotImplementedError(kind)


def _decode_4_or_5(raw: bytes, kind: str) -> np.ndarray:
    """Eight groups of 32: ``d * scale * code - dmin * minimum``; 6-bit scales and minima are packed in 12 bytes."""
    fields = [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12)]
    fields += [("high", "u1", 32)] if kind == "Q5_K" else []
    block = np.frombuffer(raw, np.dtype([*fields, ("q", "u1", 128)]))
    packed = block["scales"].astype(np.int64)
    out = np.empty((len(block), 8, 32))
    for group in range(8):
        if group < 4:
            scale, low = packed[:, group] & 63, packed[:, group + 4] & 63
        else:
            scale = packed[:, group + 4] & 15 | packed[:, group - 4] >> 6 << 4
            low = packed[:, group + 4] >> 4 | packed[:, group] >> 6 << 4
        nibbles = block["q"][:, group // 2 * 32 : group // 2 * 32 + 32] >> (4 * (group % 2)) & 15
        codes = nibbles.astype(np.float64)
        if kind == "Q5_K":
            codes += 16.0 * (block["high"] >> group & 1)
        d, dmin = block["d"].astype(np.float64), block["dmin"].astype(np.float64)
        out[:, group] = (d * scale)[:, None] * codes - (dmin * low)[:, None]
    return out.ravel()


def _decode_6(raw: bytes) -> np.ndarray:
    """Sixteen groups of 16: ``d * scale * (code - 32)``; the codes' low 4 and high 2 bits lie apart."""
    block = np.frombuffer(raw, np.dtype([("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("d", "<f2")]))
    out = np.empty((len(block), 256))
    for place in range(256):
        half, rest = divmod(place, 128)
        part, column = divmod(rest, 32)
        low = block["low"][:, 64 * half + 32 * (part % 2) + column] >> (4 * (part // 2)) & 15
        high = block["high"][:, 32 * half + column] >> (2 * part) & 3
        codes = (low | high << 4).astype(np.float64) - 32
        out[:, place] = block["d"].astype(np.float64) * block["scales"][:, place // 16] * codes
    return out.ravel()


def logits(weights: dict[str, np.ndarray], shape: Shape, ids: list[int]) -> np.ndarray:
    """Logits at every position, of shape (len(ids), vocabulary), in float64."""
    gemma = shape.arch.startswith("gemma")
    x = weights["token_embd.weight"][ids] * (np.sqrt(shape.hidden) if gemma else 1)
    for layer in range(shape.layers):
        block = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"blk.{layer}.")}
        attended = _attention(block, _local(shape, layer), _norm(x, block["attn_norm.weight"], shape.eps))
        x = x + _after(attended, block.get("post_attention_norm.weight"), shape)
        h = _norm(x, block["ffn_norm.weight"], shape.eps)
        gate = h @ block["ffn_gate.weight"].T
        active = _gelu(gate, exact=shape.arch == "gemma") if gemma else gate / (1 + np.exp(-gate))
        fed = (active * (h @ block["ffn_up.weight"].T)) @ block["ffn_down.weight"].T
        x = x + _after(fed, block.get("post_ffw_norm.weight"), shape)
    x = _norm(x, weights["output_norm.weight"], shape.eps)
    found = x @ weights.get("output.weight", weights["token_embd.weight"]).T
    return CAPS[1] * np.tanh(found / CAPS[1]) if shape.arch == "gemma2" else found


def _local(shape: Shape, layer: int) -> Shape:
    """Gemma 3 rotates by another base in five of six layers."""
    return replace(shape, theta=10_000.0) if shape.arch == "gemma3" and layer % 6 != 5 else shape


def _after(x: np.ndarray, weight: np.ndarray | None, shape: Shape) -> np.ndarray:
    return x if weight is None else _norm(x, weight, shape.eps)


def _attention(block: dict[str, np.ndarray], shape: Shape, x: np.ndarray) -> np.ndarray:
    length = len(x)

    def project(name: str, heads: int) -> np.ndarray:
        y = x @ block[f"attn_{name}.weight"].T + block.get(f"attn_{name}.bias", 0)
        return y.reshape(length, heads, shape.head).transpose(1, 0, 2)

    q, k, v = project("q", shape.heads), project("k", shape.kv_heads), project("v", shape.kv_heads)
    if "attn_q_norm.weight" in block:
        q = _norm(q, block["attn_q_norm.weight"], shape.eps)
        k = _norm(k, block["attn_k_norm.weight"], shape.eps)
    q, k = _rotate(q, shape), _rotate(k, shape)
    group = shape.heads // shape.kv_heads
    k, v = k.repeat(group, 0), v.repeat(group, 0)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(shape.head)
    if shape.arch == "gemma2":
        scores = CAPS[0] * np.tanh(scores / CAPS[0])
    scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out = (weights / weights.sum(-1, keepdims=True)) @ v
    return out.transpose(1, 0, 2).reshape(length, -1) @ block["attn_output.weight"].T


def _rotate(x: np.ndarray, shape: Shape) -> np.ndarray:
    positions = np.arange(x.shape[1])[:, None]
    angles = positions * shape.theta ** (-np.arange(0, shape.head, 2) / shape.head)
    cos, sin = np.cos(angles), np.sin(angles)
    half = shape.head // 2
    neighbours = shape.arch == "llama"
    a, b = (x[..., 0::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    first, second = a * cos - b * sin, a * sin + b * cos
    if neighbours:
        return np.stack([first, second], -1).reshape(x.shape)
    return np.concatenate([first, second], -1)


def _norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def _gelu(x: np.ndarray, exact: bool) -> np.ndarray:
    """GELU. mlx-lm computes Gemma 1 with the exact one, Gemma 2 and 3 with the tanh approximation."""
    if exact:
        return 0.5 * x * (1 + erf(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
