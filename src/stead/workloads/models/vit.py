"""Vision transformer: patches of a picture as words.

Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import (
    Built,
    CrossEntropy,
    attend,
    images,
    in_dtype,
    join_heads,
    split_heads,
    tokens,
)

EPSILON = 1e-6


class Layer(nn.Module):
    """Self-attention and a feed-forward part, each normalised before."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.attention_norm = nn.LayerNorm(width, eps=EPSILON)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        x = x + self.dropout(self.output(join_heads(attend(q, k, v, fused=self.fused))))
        inner = self.dropout(F.gelu(self.expand(self.norm(x))))
        made: Tensor = x + self.dropout(self.contract(inner))
        return made


class ViT(nn.Module):
    """Patches and a class token, layers, a classifier."""

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        inner: int,
        patch: int,
        side: int,
        classes: int,
        dropout: float,
        fused: bool,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, width))
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([Layer(width, heads, inner, dropout, fused) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.classifier = nn.Linear(width, classes)

    def forward(self, pictures: Tensor) -> Tensor:  # [batch, 3, side, side] -> [batch, class]
        patches = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1) + self.positions
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.classifier(self.norm(x)[:, 0])
        return scores


def build(
    *,
    layers: int,
    width: int,
    heads: int,
    inner: int,
    patch: int,
    side: int,
    classes: int,
    batch: int,
    dropout: float,
    attention: str,
    dtype: str,
) -> Built:
    """The model, a batch of pictures and the loss of telling what they show."""
    module = ViT(layers, width, heads, inner, patch, side, classes, dropout, attention == "fused")
    return Built(*in_dtype(module, (images(batch, side),), dtype), CrossEntropy(tokens(batch, 1, classes)))
