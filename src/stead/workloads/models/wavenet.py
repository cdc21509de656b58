"""WaveNet: stacks of dilated causal convolutions over sound, gated, with skip connections to the end.

van den Oord et al., "WaveNet: A Generative Model for Raw Audio", 2016, section 2. Samples are the 256 levels of mu-law.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, CrossEntropy, tokens

LEVELS = 256


class Layer(nn.Module):
    """A dilated convolution, one more as its gate, and two ways out; the last layer has only the skip (equation 2)."""

    def __init__(self, channels: int, dilation: int, *, last: bool) -> None:
        super().__init__()
        self.dilation = dilation
        self.content = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.gate = nn.Conv1d(channels, channels, 2, dilation=dilation)
        self.residual = None if last else nn.Conv1d(channels, channels, 1)
        self.skip = nn.Conv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        past = F.pad(x, (self.dilation, 0))
        gated = torch.tanh(self.content(past)) * torch.sigmoid(self.gate(past))
        return x if self.residual is None else x + self.residual(gated), self.skip(gated)


class WaveNet(nn.Module):
    """Dilations double from layer to layer and start again with every stack."""

    def __init__(self, stacks: int, layers: int, channels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LEVELS, channels)
        per_stack = layers // stacks
        self.layers = nn.ModuleList(
            [Layer(channels, 2 ** (i % per_stack), last=i == layers - 1) for i in range(layers)]
        )
        self.inner = nn.Conv1d(channels, channels, 1)
        self.projection = nn.Conv1d(channels, LEVELS, 1)

    def forward(self, sound: Tensor) -> Tensor:  # [batch, time] -> [batch, time, level]
        x = self.embedding(sound).transpose(1, 2)
        total: Tensor | None = None
        for layer in self.layers:
            x, skip = layer(x)
            total = skip if total is None else total + skip
        assert total is not None
        scores: Tensor = self.projection(F.relu(self.inner(F.relu(total))))
        return scores.transpose(1, 2)


def build(*, stacks: int, layers: int, channels: int, batch: int, length: int) -> Built:
    """The model, a batch of sounds and the loss of predicting the next sample."""
    module = WaveNet(stacks, layers, channels)
    return Built(module, (tokens(batch, length, LEVELS),), CrossEntropy(tokens(batch, length, LEVELS)))
