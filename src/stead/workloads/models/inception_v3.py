"""Inception-v3 without its auxiliary head: 94 convolutions in five kinds of blocks.

Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2015.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, ConvNormRelu, CrossEntropy, images, tokens

EPSILON = 1e-3


def conv(
    inputs: int, outputs: int, window: int | tuple[int, int], *, stride: int = 1, same: bool = True
) -> nn.Module:
    """A normalised convolution that keeps the size of the picture, or only where the window fits."""
    high, wide = (window, window) if isinstance(window, int) else window
    padding = (high // 2, wide // 2) if same else 0
    return ConvNormRelu(inputs, outputs, window, stride=stride, padding=padding, epsilon=EPSILON)


class BlockA(nn.Module):
    """1x1, 5x5 and two 3x3 in parallel."""

    def __init__(self, inputs: int, pooled: int) -> None:
        super().__init__()
        self.one = conv(inputs, 64, 1)
        self.five = nn.Sequential(conv(inputs, 48, 1), conv(48, 64, 5))
        self.deep = nn.Sequential(conv(inputs, 64, 1), conv(64, 96, 3), conv(96, 96, 3))
        self.pooled = conv(inputs, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        average = F.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), self.five(x), self.deep(x), self.pooled(average)], dim=1)


class BlockB(nn.Module):
    """Halves the picture."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.three = conv(inputs, 384, 3, stride=2, same=False)
        self.deep = nn.Sequential(conv(inputs, 64, 1), conv(64, 96, 3), conv(96, 96, 3, stride=2, same=False))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.three(x), self.deep(x), F.max_pool2d(x, 3, 2)], dim=1)


class BlockC(nn.Module):
    """7x7 convolutions as 1x7 and 7x1."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.one = conv(inputs, 192, 1)
        self.seven = nn.Sequential(
            conv(inputs, width, 1), conv(width, width, (1, 7)), conv(width, 192, (7, 1))
        )
        self.deep = nn.Sequential(
            conv(inputs, width, 1),
            conv(width, width, (7, 1)),
            conv(width, width, (1, 7)),
            conv(width, width, (7, 1)),
            conv(width, 192, (1, 7)),
        )
        self.pooled = conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        average = F.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), self.seven(x), self.deep(x), self.pooled(average)], dim=1)


class BlockD(nn.Module):
    """Halves the picture again."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.three = nn.Sequential(conv(inputs, 192, 1), conv(192, 320, 3, stride=2, same=False))
        self.seven = nn.Sequential(
            conv(inputs, 192, 1),
            conv(192, 192, (1, 7)),
            conv(192, 192, (7, 1)),
            conv(192, 192, 3, stride=2, same=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.three(x), self.seven(x), F.max_pool2d(x, 3, 2)], dim=1)


class Fork(nn.Module):
    """1x3 and 3x1 side by side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.wide = conv(inputs, 384, (1, 3))
        self.high = conv(inputs, 384, (3, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.wide(x), self.high(x)], dim=1)


class BlockE(nn.Module):
    """Branches that fork again."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.one = conv(inputs, 320, 1)
        self.three = nn.Sequential(conv(inputs, 384, 1), Fork(384))
        self.deep = nn.Sequential(conv(inputs, 448, 1), conv(448, 384, 3), Fork(384))
        self.pooled = conv(inputs, 192, 1)

    def forward(self, x: Tensor) -> Tensor:
        average = F.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), self.three(x), self.deep(x), self.pooled(average)], dim=1)


class InceptionV3(nn.Module):
    """A stem, eleven blocks and a classifier."""

    def __init__(self, classes: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.ModuleList(
            [conv(3, 32, 3, stride=2, same=False), conv(32, 32, 3, same=False), conv(32, 64, 3)]
        )
        self.stem_pooled = nn.ModuleList([conv(64, 80, 1), conv(80, 192, 3, same=False)])
        self.blocks = nn.ModuleList(
            [
                BlockA(192, 32), BlockA(256, 64), BlockA(288, 64), BlockB(288),
                BlockC(768, 128), BlockC(768, 160), BlockC(768, 160), BlockC(768, 192), BlockD(768),
                BlockE(1280), BlockE(2048),
            ]
        )  # fmt: skip
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:  # [batch, 3, side, side] -> [batch, class]
        for layer in self.stem:
            x = layer(x)
        x = F.max_pool2d(x, 3, 2)
        for layer in self.stem_pooled:
            x = layer(x)
        x = F.max_pool2d(x, 3, 2)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.classifier(self.dropout(F.adaptive_avg_pool2d(x, 1)).flatten(1))
        return scores


def build(*, batch: int, side: int, classes: int, dropout: float) -> Built:
    """The model, a batch of pictures and the loss of telling what they show."""
    module = InceptionV3(classes, dropout)
    return Built(module, (images(batch, side),), CrossEntropy(tokens(batch, 1, classes)))
