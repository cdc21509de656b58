"""Transformer-XL: segments that also attend to the layer inputs of the previous segment, with relative positions.

Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", 2019, section 3. No gradient
flows into the memory. All segments of a batch are one graph, which grows with their number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    causal_mask,
    join_heads,
    split_heads,
    tokens,
)


class RelativeAttention(nn.Module):
    """Attention by content and distance, with biases u and v in place of absolute positions."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, 1, width // heads))  # v
        self.output = nn.Linear(width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, context: Tensor, distances: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(self.query(x), self.heads)
        k, v = (split_heads(part, self.heads) for part in self.key_value(context).chunk(2, dim=-1))
        r = split_heads(self.position(distances).unsqueeze(0), self.heads)
        by_content = torch.matmul(q + self.content_bias, k.transpose(2, 3))
        by_distance = _shifted(torch.matmul(q + self.position_bias, r.transpose(2, 3)))
        scores = (by_content + by_distance) * q.shape[-1] ** -0.5 + mask
        mixed = torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), v)
        attended: Tensor = self.output(join_heads(mixed))
        return attended


def _shifted(scores: Tensor) -> Tensor:
    """Scores [.., query, distance] with the columns of row i moved i to the left: distances become keys."""
    *rest, queries, keys = scores.shape
    padded = F.pad(scores, (1, 0)).view(*rest, keys + 1, queries)
    return padded[:, :, 1:].reshape(scores.shape)


class Layer(nn.Module):
    """Attention and a feed-forward part, each with a residual connection that is normalised afterwards."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = RelativeAttention(width, heads, dropout)
        self.attention_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, context: Tensor, distances: Tensor, mask: Tensor) -> Tensor:
        attended = self.dropout(self.attention(x, context, distances, mask))
        x = self.attention_norm(x + attended)
        inner = self.dropout(F.relu(self.expand(x)))
        normed: Tensor = self.norm(x + self.dropout(self.contract(inner)))
        return normed


class TransformerXL(nn.Module):
    """Layers called once per segment."""

    def __init__(
        self, layers: int, segments: int, width: int, heads: int, inner: int, vocabulary: int, dropout: float
    ) -> None:
        super().__init__()
        self.segments, self.width = segments, width
        self.embedding = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([Layer(width, heads, inner, dropout) for _ in range(layers)])
        self.projection = nn.Linear(width, vocabulary)

    def forward(self, words: Tensor) -> Tensor:  # [batch, position] -> [batch, position, word]
        memory: list[Tensor | None] = [None] * len(self.layers)
        scores = []
        for segment in words.chunk(self.segments, dim=1):
            x = self.dropout(self.embedding(segment))
            length, reach = segment.shape[1], segment.shape[1] * (2 if memory[0] is not None else 1)
            distances = self._distances(reach, x)
            mask = causal_mask(length, reach, x)
            for number, layer in enumerate(self.layers):
                past, memory[number] = memory[number], x.detach()
                context = x if past is None else torch.cat([past, x], dim=1)
                x = layer(x, context, distances, mask)
            scores.append(self.projection(x))
        return torch.cat(scores, dim=1)

    def _distances(self, reach: int, like: Tensor) -> Tensor:  # [reach, width]
        """Sinusoids of the distances reach - 1 .. 0."""
        distance = torch.arange(reach - 1, -1, -1, dtype=like.dtype, device=like.device)
        exponent = torch.arange(0, self.width, 2, dtype=like.dtype, device=like.device) / self.width
        angle = torch.outer(distance, 10_000.0**-exponent)
        return torch.cat([angle.sin(), angle.cos()], dim=-1)


def build(
    *,
    layers: int,
    segments: int,
    length: int,
    batch: int,
    width: int,
    heads: int,
    inner: int,
    vocabulary: int,
    dropout: float,
) -> Built:
    """The model, a batch of texts of several segments and the loss of predicting the next word."""
    module = TransformerXL(layers, segments, width, heads, inner, vocabulary, dropout)
    whole = segments * length
    return Built(module, (tokens(batch, whole, vocabulary),), CrossEntropy(tokens(batch, whole, vocabulary)))
