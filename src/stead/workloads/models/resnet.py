"""ResNet with bottlenecks: 50, 101 or 152 layers.

He et al., "Deep Residual Learning for Image Recognition", 2015; the stride is in the 3x3 convolution, as is usual now.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, ConvNorm, ConvNormRelu, CrossEntropy, images, tokens

BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}  # of each stage
EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.reduce = ConvNormRelu(inputs, width, 1)
        self.middle = ConvNormRelu(width, width, 3, stride=stride, padding=1)
        self.expand = ConvNorm(width, outputs, 1)
        changes = stride > 1 or inputs != outputs
        self.shortcut = ConvNorm(inputs, outputs, 1, stride=stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        inner = self.expand(self.middle(self.reduce(x)))
        return F.relu(inner + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """A stem, four stages of bottlenecks and a classifier."""

    def __init__(self, depth: int, classes: int) -> None:
        super().__init__()
        self.stem = ConvNormRelu(3, 64, 7, stride=2, padding=3)
        blocks = []
        inputs = 64
        for stage, count in enumerate(BLOCKS[depth]):
            for number in range(count):
                blocks.append(Bottleneck(inputs, 64 << stage, 2 if stage and not number else 1))
                inputs = EXPANSION * (64 << stage)
        self.blocks = nn.ModuleList(blocks)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:  # [batch, 3, side, side] -> [batch, class]
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return scores


def build(*, depth: int, batch: int, side: int, classes: int) -> Built:
    """The model, a batch of pictures and the loss of telling what they show."""
    module = ResNet(depth, classes)
    return Built(module, (images(batch, side),), CrossEntropy(tokens(batch, 1, classes)))
