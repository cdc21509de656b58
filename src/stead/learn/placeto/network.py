"""Placeto's network: messages along the edges of a graph of groups, pools around the current group, one head.

Notation    N groups, K devices, R rows (states of one graph), d features of a group, F features of (group, device)
    e       [d, R, N]   features of groups
    v       [R]         the current group of every row
    f       [R, K, F]   features of the current group on every device
    FNN(i, [h, ..], o)  linear layers, ReLU between them, none at the end; Glorot-uniform weights, no bias at first
    Agg(x, M) = relu(g(M relu(f(x))))       f = g = FNN(w, [w], w), M pools rows

    t = FNN(d, [d, d], d)(e)
    x = t; 8 times  x = Agg_f(x, predecessors) * [has predecessor] + t
    y = t; 8 times  y = Agg_b(y, successors)   * [has successor]   + t          weights of their own
    h = [x, y]                                                                 width 2d
    z = [Agg_1(h, ancestors of v), Agg_2(h, descendants), Agg_3(h, peers), h_v]  width 8d
    shared head     logit_k = FNN(8d + F, [64, 32], 1)([z, f_k])               any number of devices
    one-hot head    logits = FNN(8d, [16d, 8d], K)(z)                          as published
    opinions        LN(z) and f of all groups, for walks to follow (opinions.py); no group is current

Both directions, and all pools, are computed side by side as stacks of matrices, features first: products of narrow
matrices are several times faster that way. Rows never mix and a batch is of one
graph: there is no padding, and no mask of another graph to be taken by mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from stead.learn.ground.seq2seq import NEVER
from stead.learn.placeto.features import Inputs

if TYPE_CHECKING:
    from stead.learn.placeto.overview import Overview

ROUNDS = 8


class Stack(nn.Module):
    """Several linear layers of one size side by side, each with an input of its own."""

    def __init__(self, count: int, wide_in: int, wide_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, wide_out, wide_in))
        self.bias = nn.Parameter(torch.zeros(count, wide_out, 1))
        for weight in self.weight.data:
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor) -> Tensor:  # [count, in, columns] -> [count, out, columns]
        return torch.baddbmm(self.bias, self.weight, x)


class Aggregators(nn.Module):
    """`count` aggregators of one width; pooling is done by whoever calls."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.before = nn.ModuleList(Stack(count, width, width) for _ in range(2))
        self.after = nn.ModuleList(Stack(count, width, width) for _ in range(2))

    def heard(self, x: Tensor) -> Tensor:
        """relu(f(x))"""
        for layer in self.before:
            x = torch.relu(layer(x))
        return x

    def told(self, x: Tensor) -> Tensor:
        """relu(g(x))"""
        for layer in self.after:
            x = torch.relu(layer(x))
        return x


class PlacetoNet(nn.Module):
    """Logits of the device of the current group."""

    def __init__(
        self,
        *,
        features: int,
        device_features: int = 0,
        devices: int = 0,
        parts: int = 3,
        messages: bool = True,
        opinions: bool = False,
    ) -> None:
        super().__init__()
        d, self.parts, self.messages = features, parts, messages
        self.local = nn.ModuleList(Stack(1, d, d) for _ in range(3))
        self.passing = Aggregators(2, d)
        self.pooling = Aggregators(parts, 2 * d)
        wide = (parts + 1) * 2 * d
        self.devices = devices  # 0: shared head
        if opinions:
            self.norm = nn.LayerNorm(wide)
            self.say = nn.Linear(wide, device_features)
            nn.init.zeros_(self.say.weight)
            nn.init.zeros_(self.say.bias)
        else:
            self.head = (
                fnn(wide, [16 * d, 8 * d], devices) if devices else fnn(wide + device_features, [64, 32], 1)
            )

    def forward(self, inputs: Inputs, e: Tensor, v: Tensor, f: Tensor, mask: Tensor) -> Tensor:  # [R, K]
        """Logits; -inf where `mask` [R, K] is not set."""
        z = self.summary(inputs, e, v)
        if self.devices:
            logits = self.head(z)
        else:
            each = torch.cat([z[:, None, :].expand(-1, f.shape[1], -1), f], dim=2)
            logits = self.head(each)[:, :, 0]
        return logits.masked_fill(~mask, NEVER)  # type: ignore[no-any-return]

    def summary(self, inputs: Inputs, e: Tensor, v: Tensor) -> Tensor:  # [R, (P + 1) 2d]
        """z of every row."""
        h = self.embedded(inputs, e)
        wide, rows, groups = h.shape
        heard = self.pooling.heard(h.reshape(1, wide, rows * groups).expand(self.parts, -1, -1))
        weights = inputs.reach[:, v]  # [P, R, N]
        pooled = (heard.reshape(self.parts, wide, rows, groups) * weights[:, None]).sum(dim=3)
        told = self.pooling.told(pooled).reshape(self.parts * wide, rows)
        own = h[:, torch.arange(rows), v]
        return torch.cat([told, own]).t()

    def codes(self, seen: Overview) -> tuple[Tensor, Tensor]:  # [N, (P + 1) 2d], [N, K, F]
        """What is made of every group, and what it finds on every device, for opinions."""
        h = self.embedded(seen.inputs, seen.e)[:, 0]
        heard = self.pooling.heard(h[None].expand(self.parts, -1, -1))
        told = self.pooling.told(torch.bmm(heard, seen.inputs.reach.transpose(1, 2)))
        z: Tensor = self.norm(torch.cat([told.flatten(0, 1), h]).t())
        return z, seen.f

    def embedded(self, inputs: Inputs, e: Tensor) -> Tensor:  # [2d, R, N]
        """h of every row and group."""
        d, rows, groups = e.shape
        t = e.reshape(1, d, rows * groups)
        for number, layer in enumerate(self.local):
            t = layer(torch.relu(t)) if number else layer(t)
        t = t.reshape(1, d, rows, groups)
        x = t.expand(2, -1, -1, -1)
        for _ in range(ROUNDS if self.messages else 0):
            y = self.passing.heard(x.reshape(2, d, rows * groups))
            y = torch.bmm(y.reshape(2, d * rows, groups), inputs.near)
            y = self.passing.told(y.reshape(2, d, rows * groups))
            x = torch.addcmul(t, y.reshape(2, d, rows, groups), inputs.has)
        return x.reshape(2 * d, rows, groups)


def fnn(wide_in: int, hidden: list[int], wide_out: int) -> nn.Sequential:
    """FNN of the notation."""
    layers: list[nn.Module] = []
    for width in [*hidden, wide_out]:
        layer = nn.Linear(wide_in, width)
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.ReLU()]
        wide_in = width
    return nn.Sequential(*layers[:-1])


def log_probabilities(logits: Tensor) -> tuple[Tensor, Tensor]:  # [R, K], [R]
    """(log p with 0 where a device is masked, entropy)."""
    log_p = torch.log_softmax(logits, dim=1)
    finite = log_p.masked_fill(torch.isinf(log_p), 0.0)
    return finite, -(finite.exp() * finite).masked_fill(torch.isinf(log_p), 0.0).sum(dim=1)
