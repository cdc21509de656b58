"""Tiny PyTorch modules of every family that is placed; importing this needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cell(nn.Module):
    """An LSTM cell with one linear layer for input and state."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 4 * hidden)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = self.gates(torch.cat([x, h], -1)).chunk(4, -1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class RnnLm(nn.Module):
    """Embedding, unrolled cells, a projection for every step."""

    def __init__(self, layers: int = 2, hidden: int = 8, vocabulary: int = 11) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.cells = nn.ModuleList([Cell(hidden, hidden) for _ in range(layers)])
        self.projection = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        zeros = torch.zeros(x.shape[0], x.shape[2], device=x.device)
        states = [(zeros, zeros) for _ in self.cells]
        outputs = []
        for t in range(x.shape[1]):
            h = x[:, t]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(h, *states[layer])
                h = states[layer][0]
            outputs.append(self.projection(h))
        return torch.stack(outputs, 1)


class Attention(nn.Module):
    """Additive attention of one query over a memory."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, query: Tensor, keys: Tensor, memory: Tensor) -> Tensor:
        scores = self.score(torch.tanh(self.query(query).unsqueeze(1) + keys)).squeeze(-1)
        return torch.bmm(torch.softmax(scores, -1).unsqueeze(1), memory).squeeze(1)


class Gnmt(nn.Module):
    """A bidirectional layer, further encoder cells with residuals, decoder cells with attention."""

    def __init__(self, layers: int = 3, hidden: int = 6, vocabulary: int = 13) -> None:
        super().__init__()
        self.hidden = hidden
        self.source = nn.Embedding(vocabulary, hidden)
        self.target = nn.Embedding(vocabulary, hidden)
        self.forwards, self.backwards = Cell(hidden, hidden), Cell(hidden, hidden)
        self.enc = nn.ModuleList([Cell(hidden if i else 2 * hidden, hidden) for i in range(layers - 1)])
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.attention = Attention(hidden)
        self.dec = nn.ModuleList([Cell(2 * hidden, hidden) for _ in range(layers)])
        self.projection = nn.Linear(hidden, vocabulary)

    def unrolled(self, cell: nn.Module, xs: list[Tensor]) -> list[Tensor]:
        h = c = torch.zeros(xs[0].shape[0], self.hidden, device=xs[0].device)
        outputs = []
        for x in xs:
            h, c = cell(x, h, c)
            outputs.append(h)
        return outputs

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        xs = list(self.source(source).unbind(1))
        both = zip(
            self.unrolled(self.forwards, xs), self.unrolled(self.backwards, xs[::-1])[::-1], strict=True
        )
        xs = [torch.cat(pair, -1) for pair in both]
        for layer, cell in enumerate(self.enc):
            ys = self.unrolled(cell, xs)
            xs = [x + y for x, y in zip(xs, ys, strict=True)] if layer else ys
        memory = torch.stack(xs, 1)
        keys = self.key(memory)
        y = self.target(target)
        zeros = torch.zeros(source.shape[0], self.hidden, device=y.device)
        states = [(zeros, zeros) for _ in self.dec]
        context, outputs = zeros, []
        for t in range(target.shape[1]):
            h = y[:, t]
            for layer, cell in enumerate(self.dec):
                states[layer] = cell(torch.cat([h, context], -1), *states[layer])
                h = states[layer][0] + h if layer > 1 else states[layer][0]
                if layer == 0:
                    context = self.attention(h, keys, memory)
            outputs.append(self.projection(h))
        return torch.stack(outputs, 1)


class Bottleneck(nn.Module):
    """Three convolutions with batch normalisation and a residual, activations in place."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))
            if stride > 1 or inputs != 4 * width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A residual network; `depths` (3, 4, 6, 3) with width 64 and 1,000 classes is ResNet-50."""

    def __init__(self, depths: tuple[int, ...] = (1, 2), width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, depth in enumerate(depths):
            for i in range(depth):
                blocks.append(Bottleneck(inputs, width << stage, 2 if stage and not i else 1))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.blocks(self.pool(F.relu(self.bn(self.stem(image)), inplace=True)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class BertLayer(nn.Module):
    """Attention spelled out, or as one operator; layer normalisation; GELU."""

    def __init__(self, width: int, heads: int, dropout: float, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            y = self.dropout(torch.softmax(scores, -1)) @ v
        y = self.out(y.transpose(1, 2).reshape(x.shape))
        x = self.norm1(x + self.dropout(y))
        return self.norm2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """Embeddings, layers, and a masked-LM head whose matrix is that of the embedding."""

    def __init__(
        self,
        layers: int = 2,
        width: int = 8,
        heads: int = 2,
        vocabulary: int = 17,
        length: int = 6,
        dropout: float = 0.0,
        fused: bool = False,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([BertLayer(width, heads, dropout, fused) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class WaveNet(nn.Module):
    """Dilated gated convolutions with a sum of skips."""

    def __init__(self, layers: int = 4, per_stack: int = 2, channels: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.gates = nn.ModuleList(
            [nn.Conv1d(channels, 2 * channels, 2, dilation=2 ** (i % per_stack)) for i in range(layers)]
        )
        self.residuals = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(layers)])
        self.skips = nn.ModuleList([nn.Conv1d(channels, channels, 1) for _ in range(layers)])
        self.last = nn.Sequential(
            nn.ReLU(), nn.Conv1d(channels, channels, 1), nn.ReLU(), nn.Conv1d(channels, 7, 1)
        )

    def forward(self, wave: Tensor) -> Tensor:
        x, total = self.first(wave), torch.zeros((), device=wave.device)
        for gate, residual, skip in zip(self.gates, self.residuals, self.skips, strict=True):
            a, b = gate(F.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
            y = torch.tanh(a) * torch.sigmoid(b)
            total = total + skip(y)
            x = x + residual(y)
        return self.last(total).transpose(1, 2)


class FusedLstm(nn.Module):
    """What users write: nn.LSTM, two layers, both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 5)
        self.lstm = nn.LSTM(5, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(8, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.lstm(self.embedding(tokens))[0])


class Tied(nn.Module):
    """One matrix as embedding and as output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.out = nn.Linear(4, 9, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(torch.tanh(self.embedding(tokens)))


class InPlace(nn.Module):
    """Writes into whole tensors, into parts of tensors, and into a buffer."""

    counter: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 6)
        self.register_buffer("counter", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y.add_(1.0).relu_()
        turned = y * 0.5
        turned.t_()
        y = turned.t()
        filled = torch.empty(y.shape[0], 3, y.shape[1], device=y.device)
        for i in range(3):
            filled[:, i] = self.second(y) * (i + 1)
        filled[:, 1].mul_(2.0)
        self.counter += 1.0
        return (filled + self.counter).sum(1)


class Checkpointed(nn.Module):
    """Runs a part of its forward pass again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))

    def forward(self, x: Tensor) -> Tensor:
        from torch.utils.checkpoint import checkpoint

        y: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return y


def entropy(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the last dimension."""
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


def squares(output: Tensor, target: Tensor) -> Tensor:
    """Mean square error."""
    return F.mse_loss(output, target)


@dataclass(frozen=True)
class Family:
    """A tiny model with inputs, targets and a loss."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    targets: Callable[[], tuple[Tensor, ...]]
    loss: Callable[..., Tensor] = entropy
    tolerance: float = 1e-6
    options: dict[str, Any] = field(default_factory=dict)


def tokens(*shape: int, below: int) -> Callable[[], tuple[Tensor, ...]]:
    """Random indices."""
    return lambda: (torch.randint(below, shape),)


def numbers(*shape: int) -> Callable[[], tuple[Tensor, ...]]:
    """Random numbers."""
    return lambda: (torch.randn(shape),)


FAMILIES: dict[str, Family] = {
    "rnnlm": Family(RnnLm, tokens(3, 5, below=11), tokens(3, 5, below=11)),
    "gnmt": Family(
        Gnmt,
        lambda: (torch.randint(13, (2, 4)), torch.randint(13, (2, 4))),
        tokens(2, 4, below=13),
    ),
    "resnet": Family(ResNet, numbers(2, 3, 32, 32), tokens(2, below=5), tolerance=1e-5),
    "bert": Family(Bert, tokens(2, 6, below=17), tokens(2, 6, below=17)),
    "bert_dropout": Family(lambda: Bert(dropout=0.3), tokens(2, 6, below=17), tokens(2, 6, below=17)),
    "bert_fused": Family(lambda: Bert(fused=True), tokens(2, 6, below=17), tokens(2, 6, below=17)),
    "wavenet": Family(WaveNet, numbers(2, 1, 12), tokens(2, 12, below=7)),
    "lstm": Family(FusedLstm, tokens(3, 4, below=9), tokens(3, 4, below=9)),
    "tied": Family(Tied, tokens(3, 4, below=9), tokens(3, 4, below=9)),
    "in_place": Family(InPlace, numbers(3, 4), numbers(3, 6), squares),
    "checkpointed": Family(Checkpointed, numbers(3, 4), numbers(3, 5), squares),
}
