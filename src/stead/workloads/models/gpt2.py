"""GPT-2: a decoder with learned positions, normalised before each part; the output layer is the word embedding.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    attend,
    causal_mask,
    in_dtype,
    join_heads,
    split_heads,
    tokens,
)

POSITIONS = 1024


class Layer(nn.Module):
    """Causal self-attention and a feed-forward part."""

    def __init__(self, width: int, heads: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused, self.rate = heads, fused, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        parts = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        rate = self.rate if self.training else 0.0
        mixed = join_heads(attend(q, k, v, fused=self.fused, causal=True, mask=mask, dropout=rate))
        x = x + self.dropout(self.output(mixed))
        inner = F.gelu(self.expand(self.norm(x)), approximate="tanh")
        made: Tensor = x + self.dropout(self.contract(inner))
        return made


class GPT2(nn.Module):
    """Embeddings, layers, scores."""

    def __init__(
        self, layers: int, width: int, heads: int, vocabulary: int, dropout: float, fused: bool
    ) -> None:
        super().__init__()
        self.fused = fused
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([Layer(width, heads, dropout, fused) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:  # [batch, position] -> [batch, position, word]
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.dropout(self.words(words) + self.positions(positions))
        mask = None if self.fused else causal_mask(words.shape[1], words.shape[1], x)
        for layer in self.layers:
            x = layer(x, mask)
        scores: Tensor = self.head(self.norm(x))
        return scores


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    vocabulary: int,
    batch: int,
    length: int,
    dropout: float,
    attention: str,
    dtype: str,
) -> Built:
    """The model, a batch of texts and the loss of predicting the next word."""
    module = GPT2(layers, width, heads, vocabulary, dropout, attention == "fused")
    inputs = (tokens(batch, length, vocabulary),)
    return Built(*in_dtype(module, inputs, dtype), CrossEntropy(tokens(batch, length, vocabulary)))
