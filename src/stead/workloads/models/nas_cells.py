"""Networks of searched cells: what NASNet and AmoebaNet have in common.

A cell sees the outputs of the two cells before it, as states 0 (the last) and 1 (the one before). Five times it adds
the results of two operations on states, which gives a new state; it returns the states that nothing inside has read.
After each third of the cells the picture is halved and the width doubled. Zoph et al., "Learning Transferable
Architectures for Scalable Image Recognition", 2018, sections 3 and A.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stead.workloads.models.building_blocks import Built, CrossEntropy, images, tokens

EPSILON = 1e-3


@dataclass(frozen=True, slots=True)
class Recipe:
    """The operations of a cell, two for each new state, the states they read, and the states it returns."""

    operations: tuple[str, ...]
    states: tuple[int, ...]
    returned: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a network is made of."""

    normal: Recipe
    reduction: Recipe
    passes_reduction: bool  # whether the cell after a reduction still sees the input of the reduction


def words(text: str) -> tuple[str, ...]:
    """Operations written in one line."""
    return tuple(text.split())


class ReluConvNorm(nn.Module):
    """ReLU, 1x1 convolution, batch normalisation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(self.conv(F.relu(x)))
        return normed


class Halved(nn.Module):
    """Half the size without loss: even and odd positions, each through a 1x1 convolution of half the width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        paths = [self.even(F.avg_pool2d(x, 1, 2)), self.odd(F.avg_pool2d(shifted, 1, 2))]
        normed: Tensor = self.norm(torch.cat(paths, dim=1))
        return normed


class Separable(nn.Module):
    """Two separable convolutions; the first one may halve."""

    def __init__(self, inputs: int, outputs: int, window: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.ModuleList()
        self.pointwise = nn.ModuleList()
        self.norm = nn.ModuleList()
        for channels, step in ((inputs, stride), (outputs, 1)):
            self.depthwise.append(
                nn.Conv2d(channels, channels, window, step, window // 2, groups=channels, bias=False)
            )
            self.pointwise.append(nn.Conv2d(channels, outputs, 1, bias=False))
            self.norm.append(nn.BatchNorm2d(outputs, eps=EPSILON))

    def forward(self, x: Tensor) -> Tensor:
        for depthwise, pointwise, norm in zip(self.depthwise, self.pointwise, self.norm, strict=True):
            x = norm(pointwise(depthwise(F.relu(x))))
        return x


class Factorised(nn.Module):
    """A 7x7 convolution as 1x7 and 7x1, at a quarter of the width."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        narrow = max(outputs // 4, 1)
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(inputs, narrow, 1, bias=False),
                nn.Conv2d(narrow, narrow, (1, 7), (1, stride), (0, 3), bias=False),
                nn.Conv2d(narrow, narrow, (7, 1), (stride, 1), (3, 0), bias=False),
                nn.Conv2d(narrow, outputs, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(width, eps=EPSILON) for width in (narrow, narrow, narrow, outputs)]
        )

    def forward(self, x: Tensor) -> Tensor:
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(F.relu(x)))
        return x


class Pool(nn.Module):
    """A 3x3 pool, and a convolution where the width has to change."""

    def __init__(self, kind: str, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.kind, self.stride = kind, stride
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False) if inputs != outputs else None
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "max":
            x = F.max_pool2d(x, 3, self.stride, 1)
        else:
            x = F.avg_pool2d(x, 3, self.stride, 1, count_include_pad=False)
        return x if self.conv is None or self.norm is None else self.norm(self.conv(x))


class DropPath(nn.Module):
    """Leaves out the whole path, example by example."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        kept = 1.0 - self.share
        return x * x.new_empty(len(x), 1, 1, 1).bernoulli_(kept).div_(kept)


def operation(name: str, inputs: int, outputs: int, stride: int, drop_path: float) -> nn.Module:
    """One operation by name: identity, sep3, sep5, sep7, 1x7_7x1, avg, max."""
    if name == "identity":
        return nn.Identity() if inputs == outputs else ReluConvNorm(inputs, outputs)
    if name.startswith("sep"):
        made: nn.Module = Separable(inputs, outputs, int(name[3:]), stride)
    elif name == "1x7_7x1":
        made = Factorised(inputs, outputs, stride)
    else:
        made = Pool(name, inputs, outputs, stride)
    return nn.Sequential(made, DropPath(drop_path)) if drop_path else made


class Cell(nn.Module):
    """One cell; `halve_previous` says that state 1 comes from before a reduction and is twice as large."""

    def __init__(
        self,
        recipe: Recipe,
        inputs: int,
        previous: int | None,
        width: int,
        *,
        reduces: bool,
        halve_previous: bool,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.recipe = recipe
        self.outputs = len(recipe.returned) * width
        self.enter = ReluConvNorm(inputs, width)
        self.enter_previous: nn.Module = nn.Identity()
        channels = [width, width]
        if previous is None:
            channels[1] = inputs  # the first cell: state 1 is its input as it is
        elif halve_previous:
            self.enter_previous = Halved(previous, width)
        elif previous != width:
            self.enter_previous = ReluConvNorm(previous, width)
        channels += [width] * (len(recipe.operations) // 2)
        self.operations = nn.ModuleList(
            [
                operation(name, channels[state], width, 2 if reduces and state < 2 else 1, drop_path)
                for name, state in zip(recipe.operations, recipe.states, strict=True)
            ]
        )

    def forward(self, x: Tensor, previous: Tensor) -> Tensor:
        states = [self.enter(x), self.enter_previous(previous)]
        results = (
            apply(states[state]) for apply, state in zip(self.operations, self.recipe.states, strict=True)
        )
        for left in results:
            states.append(left + next(results))
        return torch.cat([states[state] for state in self.recipe.returned], dim=1)


class CellNetwork(nn.Module):
    """A convolution, two reductions, three times N normal cells with a reduction between, a classifier."""

    def __init__(
        self,
        scheme: Scheme,
        repeats: int,
        stem: int,
        width: int,
        classes: int,
        drop_path: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.stem = nn.Conv2d(3, stem, 3, 2, bias=False)
        self.stem_norm = nn.BatchNorm2d(stem, eps=EPSILON)
        plan = _plan(repeats)
        self.after_reduction = [after for _, _, after in plan]
        cells: list[Cell] = []
        channels, halvings = [stem], [0]  # of the stem and of every cell so far
        for number, (reduces, scale, _) in enumerate(plan):
            now, before = self._inputs(number)
            cells.append(
                Cell(
                    scheme.reduction if reduces else scheme.normal,
                    channels[now],
                    None if number == 0 else channels[before],
                    int(width * scale),
                    reduces=reduces,
                    halve_previous=halvings[before] < halvings[now],
                    drop_path=drop_path,
                )
            )
            channels.append(cells[-1].outputs)
            halvings.append(halvings[now] + reduces)
        self.cells = nn.ModuleList(cells)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels[-1], classes)

    def _inputs(self, number: int) -> tuple[int, int]:
        """The outputs a cell sees: 0 is the stem, i + 1 that of cell i."""
        passed = self.scheme.passes_reduction and self.after_reduction[number]
        return number, max(number - (2 if passed else 1), 0)

    def forward(self, x: Tensor) -> Tensor:  # [batch, 3, side, side] -> [batch, class]
        outputs = [self.stem_norm(self.stem(x))]
        for number, cell in enumerate(self.cells):
            now, before = self._inputs(number)
            outputs.append(cell(outputs[now], outputs[before]))
        pooled = F.relu(outputs[-1]).mean((2, 3))
        scores: Tensor = self.classifier(self.dropout(pooled))
        return scores


def _plan(repeats: int) -> list[tuple[bool, float, bool]]:
    """Whether each cell reduces, the scale of its width, and whether it directly follows a reduction."""
    plan = [(True, 0.25, False), (True, 0.5, False)]
    for third in range(3):
        if third:
            plan.append((True, 2.0**third, False))
        plan += [(False, 2.0**third, bool(third) and i == 0) for i in range(repeats)]
    return plan


def build_network(
    scheme: Scheme,
    *,
    repeats: int,
    stem: int,
    width: int,
    batch: int,
    side: int,
    classes: int,
    drop_path: float,
    dropout: float,
) -> Built:
    """The model, a batch of pictures and the loss of telling what they show."""
    module = CellNetwork(scheme, repeats, stem, width, classes, drop_path, dropout)
    return Built(module, (images(batch, side),), CrossEntropy(tokens(batch, 1, classes)))
