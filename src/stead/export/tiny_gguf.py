"""A GGUF file with random weights, small enough to load in a moment: what llama.cpp is asked with.

A model of the architecture `llama` with as many layers as wanted, dense or with experts; its vocabulary is a token for
every byte and a few more.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WIDTH, HEADS, HIDDEN, EXPERTS, USED = 32, 2, 64, 4, 2
TOKENS = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"abcdefgh")
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens
ALIGNMENT = 32
_U32, _I32, _F32, _STRING, _ARRAY = 4, 5, 6, 8, 9


def tiny_gguf(layers: int, *, experts: bool = False, seed: int = 0) -> bytes:
    """The bytes of such a file."""
    tensors = _tensors(layers, experts, np.random.default_rng(seed))
    metadata = _metadata(layers, experts)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset = 0
    for name, values in tensors:
        shape = values.shape[::-1]  # innermost first
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += _padded(values.nbytes)
    body = b"".join(values.tobytes().ljust(_padded(values.nbytes), b"\0") for _, values in tensors)
    return head.ljust(_padded(len(head)), b"\0") + body


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _metadata(layers: int, experts: bool) -> list[bytes]:
    numbers = {
        "llama.block_count": layers, "llama.context_length": 128, "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": HIDDEN, "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS, "llama.rope.dimension_count": WIDTH // HEADS,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        **({"llama.expert_count": EXPERTS, "llama.expert_used_count": USED} if experts else {}),
    }  # fmt: skip
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(TOKENS) - 259)]
    return [
        _text("general.architecture") + struct.pack("<I", _STRING) + _text("llama"),
        *(_text(key) + struct.pack("<II", _U32, value) for key, value in numbers.items()),
        _text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", _F32, 1e-5),
        _text("tokenizer.ggml.model") + struct.pack("<I", _STRING) + _text("llama"),
        _text("tokenizer.ggml.tokens") + _list(_STRING, [_text(token) for token in TOKENS]),
        _text("tokenizer.ggml.scores") + _list(_F32, [struct.pack("<f", -float(n)) for n in range(len(TOKENS))]),
        _text("tokenizer.ggml.token_type") + _list(_I32, [struct.pack("<i", kind) for kind in kinds]),
    ]


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    return struct.pack("<IIQ", _ARRAY, kind, len(items)) + b"".join(items)


def _tensors(layers: int, experts: bool, random: np.random.Generator) -> list[tuple[str, NDArray[np.float32]]]:
    def drawn(*shape: int) -> NDArray[np.float32]:
        return np.asarray(random.standard_normal(shape) / np.sqrt(shape[-1]), dtype=np.float32)

    ones = np.ones(WIDTH, dtype=np.float32)
    made = [("token_embd.weight", drawn(len(TOKENS), WIDTH))]
    for n in range(layers):
        block = f"blk.{n}."
        made.append((f"{block}attn_norm.weight", ones))
        made += [(f"{block}attn_{part}.weight", drawn(WIDTH, WIDTH)) for part in ("q", "k", "v", "output")]
        made.append((f"{block}ffn_norm.weight", ones))
        if experts:
            made.append((f"{block}ffn_gate_inp.weight", drawn(EXPERTS, WIDTH)))
        kind, count = ("_exps", (EXPERTS,)) if experts else ("", ())
        made += [(f"{block}ffn_{part}{kind}.weight", drawn(*count, HIDDEN, WIDTH)) for part in ("gate", "up")]
        made.append((f"{block}ffn_down{kind}.weight", drawn(*count, WIDTH, HIDDEN)))
    return [*made, ("output_norm.weight", ones), ("output.weight", drawn(len(TOKENS), WIDTH))]
