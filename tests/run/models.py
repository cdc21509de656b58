"""Small modules for tests of real runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class SmallCNN(nn.Module):
    """Batch normalisation, ReLU in place and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.second_norm = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 10)

    def forward(self, image: Any) -> Any:
        one = self.act(self.first_norm(self.first(image)))
        two = self.act(self.second_norm(self.second(one)))
        return self.head((one + two).mean((2, 3)))


class Branches(nn.Module):
    """Three branches of convolutions that are joined, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.branches = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(width, 8, size, padding=size // 2) for size in (1, 3, 5))
            for width in (8, 24)
        )
        self.head = nn.Linear(24, 10)

    def forward(self, image: Any) -> Any:
        image = torch.relu(self.stem(image))
        for branches in self.branches:
            image = torch.cat([torch.relu(branch(image)) for branch in branches], 1)
        return self.head(image.mean((2, 3)))


class Transformer(nn.Module):
    """Two layers with attention, dropout and an embedding that is tied to the output."""

    def __init__(self, width: int = 16, heads: int = 2, tokens: int = 20) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(width, tokens, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Any) -> Any:
        found = self.embed(tokens)
        for layer in self.layers:
            found = layer(found)
        return self.out(found)


def token_loss(output: Any, target: Any) -> Any:
    """Cross entropy over all tokens."""
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())


def seeded(make: Any) -> Any:
    """A module with weights from a fixed seed."""
    torch.manual_seed(0)
    return make()
