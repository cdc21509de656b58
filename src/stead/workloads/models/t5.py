"""T5: encoder and decoder with relative position biases that all layers of one side share.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", 2020.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    RMSNorm,
    causal_mask,
    in_dtype,
    join_heads,
    split_heads,
    tokens,
)

BUCKETS = 32
FARTHEST = 128


class Attention(nn.Module):
    """Attention without scaling, with a bias for every pair of positions."""

    def __init__(self, width: int, heads: int, head_width: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, heads * head_width, bias=False)
        self.key = nn.Linear(width, heads * head_width, bias=False)
        self.value = nn.Linear(width, heads * head_width, bias=False)
        self.output = nn.Linear(heads * head_width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, context: Tensor, bias: Tensor | None) -> Tensor:
        q = split_heads(self.query(x), self.heads)
        k, v = (split_heads(part(context), self.heads) for part in (self.key, self.value))
        scores = torch.matmul(q, k.transpose(2, 3))
        if bias is not None:
            scores = scores + bias
        weights = self.dropout(torch.softmax(scores.float(), dim=-1).to(x.dtype))
        mixed: Tensor = self.output(join_heads(torch.matmul(weights, v)))
        return mixed


class PositionBias(nn.Module):
    """A bias per head for distances, near ones exactly, far ones in ever larger buckets."""

    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.both_ways = both_ways
        self.buckets = nn.Embedding(BUCKETS, heads)

    def forward(self, x: Tensor) -> Tensor:  # [1, head, query, key]
        length = x.shape[1]
        position = torch.arange(length, device=x.device)
        distance = position[None, :] - position[:, None]
        count, bucket = BUCKETS, torch.zeros_like(distance)
        if self.both_ways:
            count //= 2
            bucket = (distance > 0).long() * count
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = count // 2
        far = torch.log(distance.clamp(min=1).float() / exact) / math.log(FARTHEST / exact) * (count - exact)
        far_bucket = (exact + far.long()).clamp(max=count - 1)
        bucket = bucket + torch.where(distance < exact, distance, far_bucket)
        bias: Tensor = self.buckets(bucket).permute(2, 0, 1).unsqueeze(0)
        return bias if self.both_ways else bias + causal_mask(length, length, bias)


class Layer(nn.Module):
    """Self-attention, in a decoder attention to the encoder, and a feed-forward part."""

    def __init__(
        self, width: int, heads: int, head_width: int, inner: int, dropout: float, decodes: bool
    ) -> None:
        super().__init__()
        self.self_norm = RMSNorm(width)
        self.self_attention = Attention(width, heads, head_width, dropout)
        self.cross_norm = RMSNorm(width) if decodes else None
        self.cross_attention = Attention(width, heads, head_width, dropout) if decodes else None
        self.norm = RMSNorm(width)
        self.expand = nn.Linear(width, inner, bias=False)
        self.contract = nn.Linear(inner, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None) -> Tensor:
        normed = self.self_norm(x)
        x = x + self.dropout(self.self_attention(normed, normed, bias))
        if self.cross_attention is not None and self.cross_norm is not None:
            x = x + self.dropout(self.cross_attention(self.cross_norm(x), memory, None))
        inner = self.dropout(F.relu(self.expand(self.norm(x))))
        made: Tensor = x + self.dropout(self.contract(inner))
        return made


class Stack(nn.Module):
    """The layers of one side."""

    def __init__(
        self, layers: int, width: int, heads: int, head_width: int, inner: int, dropout: float, decodes: bool
    ) -> None:
        super().__init__()
        self.bias = PositionBias(heads, both_ways=not decodes)
        self.layers = nn.ModuleList(
            [Layer(width, heads, head_width, inner, dropout, decodes) for _ in range(layers)]
        )
        self.norm = RMSNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        bias = self.bias(x)
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x, bias, memory)
        dropped: Tensor = self.dropout(self.norm(x))
        return dropped


class T5(nn.Module):
    """Encoder, decoder and scores by the embedding they share."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        head_width: int,
        inner: int,
        vocabulary: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = Stack(layers, width, heads, head_width, inner, dropout, decodes=False)
        self.decoder = Stack(layers, width, heads, head_width, inner, dropout, decodes=True)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(
        self, source: Tensor, target: Tensor
    ) -> Tensor:  # [batch, position] -> [batch, position, word]
        memory = self.encoder(self.embedding(source))
        decoded = self.decoder(self.embedding(target), memory)
        scores: Tensor = self.head(decoded * decoded.shape[-1] ** -0.5)
        return scores


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    head_width: int,
    inner: int,
    vocabulary: int,
    batch: int,
    length: int,
    target_length: int,
    dropout: float,
    dtype: str,
) -> Built:
    """The model, a batch of pairs of texts and the loss of predicting the second one."""
    module = T5(layers, width, heads, head_width, inner, vocabulary, dropout)
    inputs = (tokens(batch, length, vocabulary), tokens(batch, target_length, vocabulary))
    return Built(*in_dtype(module, inputs, dtype), CrossEntropy(tokens(batch, target_length, vocabulary)))
