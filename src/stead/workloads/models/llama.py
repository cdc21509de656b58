"""Llama: a decoder with rotary positions, grouped-query attention and a gated feed-forward part.

Touvron et al., "Llama 2: Open Foundation and Fine-Tuned Chat Models", 2023; "The Llama 3 Herd of Models", 2024.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    RMSNorm,
    attend,
    causal_mask,
    in_dtype,
    join_heads,
    split_heads,
    tokens,
)

ROTARY_BASE = 10_000.0
EPSILON = 1e-5


class Attention(nn.Module):
    """Causal attention in which several heads share a key and a value."""

    def __init__(self, width: int, heads: int, key_heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.key_heads, self.fused = heads, key_heads, fused
        narrow = width // heads * key_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, narrow, bias=False)
        self.value = nn.Linear(width, narrow, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None) -> Tensor:
        q = rotated(split_heads(self.query(x), self.heads), cosine, sine)
        k = rotated(split_heads(self.key(x), self.key_heads), cosine, sine)
        v = split_heads(self.value(x), self.key_heads)
        if self.key_heads < self.heads:
            k, v = (one.repeat_interleave(self.heads // self.key_heads, dim=1) for one in (k, v))
        mixed = join_heads(attend(q, k, v, fused=self.fused, causal=True, mask=mask))
        made: Tensor = self.output(mixed)
        return made


def rotary(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:  # [length, width] each
    """Cosines and sines of the angles by which positions turn pairs of numbers."""
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=like.device) / width
    position = torch.arange(length, dtype=torch.float32, device=like.device)
    angle = torch.outer(position, ROTARY_BASE**-exponent).repeat(1, 2)
    return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Queries or keys turned by their positions."""
    left, right = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-right, left], dim=-1) * sine


class FeedForward(nn.Module):
    """One product decides how much of the other passes."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return made


class Layer(nn.Module):
    """Attention and a feed-forward part, each normalised before."""

    def __init__(self, width: int, heads: int, key_heads: int, feed_forward: nn.Module, fused: bool) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(width, EPSILON)
        self.attention = Attention(width, heads, key_heads, fused)
        self.norm = RMSNorm(width, EPSILON)
        self.feed_forward = feed_forward

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cosine, sine, mask)
        made: Tensor = x + self.feed_forward(self.norm(x))
        return made


class Llama(nn.Module):
    """Embedding, layers, scores; `feed_forward` makes the second part of every layer."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        key_heads: int,
        vocabulary: int,
        tied: bool,
        fused: bool,
        feed_forward: Callable[[], nn.Module],
    ) -> None:
        super().__init__()
        self.head_width, self.fused = width // heads, fused
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            [Layer(width, heads, key_heads, feed_forward(), fused) for _ in range(layers)]
        )
        self.norm = RMSNorm(width, EPSILON)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, words: Tensor) -> Tensor:  # [batch, position] -> [batch, position, word]
        x = self.embedding(words)
        cosine, sine = rotary(words.shape[1], self.head_width, x)
        mask = None if self.fused else causal_mask(words.shape[1], words.shape[1], x)
        for layer in self.layers:
            x = layer(x, cosine, sine, mask)
        scores: Tensor = self.head(self.norm(x))
        return scores


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    key_heads: int,
    inner: int,
    vocabulary: int,
    tied: bool,
    batch: int,
    length: int,
    attention: str,
    dtype: str,
) -> Built:
    """The model, a batch of prompts and the loss of predicting the next word."""
    module = Llama(
        layers, width, heads, key_heads, vocabulary, tied, attention == "fused",
        lambda: FeedForward(width, inner),
    )  # fmt: skip
    inputs = (tokens(batch, length, vocabulary),)
    return Built(*in_dtype(module, inputs, dtype), CrossEntropy(tokens(batch, length, vocabulary)))
