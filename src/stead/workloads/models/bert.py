"""BERT with its masked-language-model head, whose output layer is the word embedding.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    attend,
    in_dtype,
    join_heads,
    split_heads,
    tokens,
)

POSITIONS = 512
TYPES = 2
EPSILON = 1e-12


class Embeddings(nn.Module):
    """The sum of word, position and sentence-type embeddings."""

    def __init__(self, width: int, vocabulary: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.types = nn.Embedding(TYPES, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor) -> Tensor:
        positions = torch.arange(words.shape[1], device=words.device)
        embedded = self.words(words) + self.types(torch.zeros_like(words)) + self.positions(positions)
        dropped: Tensor = self.dropout(self.norm(embedded))
        return dropped


class Layer(nn.Module):
    """Self-attention and a feed-forward part, normalised after the residual connection."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused, self.rate = heads, fused, dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=EPSILON)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (split_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        rate = self.rate if self.training else 0.0
        mixed = self.output(join_heads(attend(q, k, v, fused=self.fused, dropout=rate)))
        x = self.attention_norm(x + self.dropout(mixed))
        inner = self.contract(F.gelu(self.expand(x)))
        normed: Tensor = self.norm(x + self.dropout(inner))
        return normed


class Head(nn.Module):
    """Scores of all words at every position."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        width = embedding.embedding_dim
        self.transform = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.decoder = nn.Linear(width, embedding.num_embeddings)
        self.decoder.weight = embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.decoder(self.norm(F.gelu(self.transform(x))))
        return scores


class Bert(nn.Module):
    """Embeddings, layers, head."""

    def __init__(
        self, layers: int, width: int, heads: int, inner: int, vocabulary: int, dropout: float, fused: bool
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(width, vocabulary, dropout)
        self.layers = nn.ModuleList([Layer(width, heads, inner, dropout, fused) for _ in range(layers)])
        self.head = Head(self.embeddings.words)

    def forward(self, words: Tensor) -> Tensor:  # [batch, position] -> [batch, position, word]
        x = self.embeddings(words)
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.head(x)
        return scores


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    inner: int,
    vocabulary: int,
    batch: int,
    length: int,
    dropout: float,
    attention: str,
    dtype: str,
) -> Built:
    """The model, a batch of sentences and the loss of guessing masked words."""
    module = Bert(layers, width, heads, inner, vocabulary, dropout, attention == "fused")
    inputs = (tokens(batch, length, vocabulary),)
    return Built(*in_dtype(module, inputs, dtype), CrossEntropy(tokens(batch, length, vocabulary)))
