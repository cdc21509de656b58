"""The networks of HDP: a grouper that deals operators to groups, and the shared placer that gives groups devices.

Notation    N operators (or sets of them that must stay together), G groups, K devices, S samples, V words, F features
    words   [N, V]      operators of each kind            x  [N, F]  features of operators
    z       [N, G]      logits of groups: C tanh(FNN(F + 20, [64], G)([words, x]) / T)
    actions [S, N + G]  group of every operator, then device of every group; 0 for groups that are not used

    log p of a placement = sum_v log p(group_v) + sum_g log p(device_g | groups), the latter from seq2seq.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stead.learn.ground.features import DIMENSIONS, NUMBERS, VOCABULARY, OperatorTable, group_features
from stead.learn.ground.network import Network
from stead.learn.ground.placed_groups import memory_room
from stead.learn.ground.seq2seq import Inputs, Seq2Seq, drawn
from stead.problem import Problem

SHAPES_BEGIN = NUMBERS - DIMENSIONS
GROUPER_WIDTH = 64
WORD_WIDTH = 20
COPYING_STEPS, COPYING_RATE = 400, 1e-2  # of the grouper, on the groups of the rules


@dataclass(frozen=True, slots=True, eq=False)
class Operators:
    """What the networks see of one problem."""

    problem: Problem
    table: OperatorTable
    items: NDArray[np.int64]  # [operator]; sets that must stay together
    words: Tensor  # [N, V]
    x: Tensor  # [N, F]
    allowed: NDArray[np.bool_]  # [N, K]
    fastest: NDArray[np.int64]  # [N]; a device that can run it
    masks_memory: bool
    all_features: bool


class Hierarchical(Network[Operators]):
    """Grouper and placer."""

    def __init__(
        self, *, features: int, placer: Seq2Seq, groups: int, scale: float, temperature: float, per_grouping: int,
        noisy_updates: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.groups, self.scale, self.temperature = groups, scale, temperature
        self.per_grouping, self.noisy_updates = per_grouping, noisy_updates
        self.placer = placer
        self.words = nn.Parameter(0.1 * torch.randn(VOCABULARY, WORD_WIDTH))
        self.grouper = nn.Sequential(
            nn.Linear(WORD_WIDTH + features, GROUPER_WIDTH), nn.ReLU(), nn.Linear(GROUPER_WIDTH, groups)
        )
        self.draws: Tensor
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))  # times that groupings were drawn

    def group_logits(self, inputs: Operators) -> Tensor:  # [N, G]
        """C tanh(z / T) of every operator and group."""
        share = inputs.words / inputs.words.sum(dim=1, keepdim=True).clamp(min=1.0)
        z: Tensor = self.grouper(torch.cat([share @ self.words, inputs.x], dim=1))
        return self.scale * torch.tanh(z / self.temperature)

    @torch.no_grad()
    def sample(
        self, inputs: Operators, samples: int, generator: torch.Generator, *, greedy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """(actions [S, N + G], log p [S]); k placements share a grouping, the greedy one has its own."""
        logits = self.group_logits(inputs)
        noisy = int(self.draws) < self.noisy_updates
        seen = logits + torch.randn(logits.shape, generator=generator) if noisy else logits
        self.draws += 1
        log_p = torch.log_softmax(logits, dim=1)
        rows, total = [], []
        for count, best in self._shares(samples, greedy):
            labels = logits.argmax(dim=1) if best else drawn(seen, generator)
            used, placer_inputs = self._placed(inputs, labels)
            devices, placed = self.placer.sample(placer_inputs, count, generator, greedy=best)
            rows.append(self._actions(labels, used, devices))
            total.append(log_p.gather(1, labels[:, None]).sum() + placed)
        return torch.cat(rows), torch.cat(total)

    def likelihood(self, inputs: Operators, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(log p [S, N + G], entropy [S, N + G]); 0 for groups that are not used."""
        count = len(inputs.x)
        log_p = torch.log_softmax(self.group_logits(inputs), dim=1)  # [N, G]
        uncertain = -(log_p.exp() * log_p).sum(dim=1)
        labels, sharing = torch.unique(actions[:, :count], dim=0, return_inverse=True)
        chosen = log_p.new_zeros(len(actions), self.groups)
        entropy = log_p.new_zeros(len(actions), self.groups)
        for n, label in enumerate(labels):
            rows = torch.nonzero(sharing == n).flatten()
            used, placer_inputs = self._placed(inputs, label)
            own, left = self.placer.likelihood(placer_inputs, actions[rows][:, count + used])
            spots = (rows[:, None].expand(-1, len(used)), used.expand(len(rows), -1))
            chosen, entropy = chosen.index_put(spots, own), entropy.index_put(spots, left)
        grouped = log_p.expand(len(actions), -1, -1).gather(2, actions[:, :count, None])[:, :, 0]
        both = torch.cat([uncertain.expand(len(actions), -1), entropy], dim=1)
        return torch.cat([grouped, chosen], dim=1), both

    def placements(self, inputs: Operators, actions: Tensor) -> Tensor:  # [S, N]
        """Every operator on the device of its group, or where it can run at all."""
        count = len(inputs.x)
        devices = actions[:, count:].gather(1, actions[:, :count])
        allowed = torch.from_numpy(inputs.allowed)
        works = allowed.expand(len(actions), -1, -1).gather(2, devices[:, :, None])[:, :, 0]
        return torch.where(works, devices, torch.from_numpy(inputs.fastest))

    def renamed(self, inputs: Operators, actions: Tensor, names: Tensor) -> Tensor:
        """The same groups on devices of other names."""
        count = len(inputs.x)
        return torch.cat([actions[:, :count], names.gather(1, actions[:, count:])], dim=1)

    def _actions(self, labels: Tensor, used: Tensor, devices: Tensor) -> Tensor:
        """Rows of labels and devices; 0 for groups that are not used."""
        whole = torch.zeros(len(devices), self.groups, dtype=torch.int64)
        whole[:, used] = devices
        return torch.cat([labels.expand(len(devices), -1), whole], dim=1)

    def _placed(self, inputs: Operators, labels: Tensor) -> tuple[Tensor, Inputs]:
        """(groups in use, what the placer sees of them)."""
        used, compact = torch.unique(labels, return_inverse=True)
        group: NDArray[np.int64] = compact.numpy()[inputs.items]
        found = group_features(inputs.problem, inputs.table, group, columns=self.groups)
        x = found.stacked if inputs.all_features else found.numbers[:, SHAPES_BEGIN:].copy()
        some = found.allowed.any(axis=1, keepdims=True)
        allowed = torch.from_numpy(found.allowed | ~some)
        room = memory_room(inputs.problem, group) if inputs.masks_memory else None
        return used, Inputs(
            torch.from_numpy(found.counts),
            torch.from_numpy(x),
            torch.from_numpy(found.adjacency),
            torch.from_numpy(found.ties),
            allowed,
            room,
        )

    def _shares(self, samples: int, greedy: bool) -> list[tuple[int, bool]]:
        """(placements, whether it is the greedy one) of every grouping."""
        left = samples - int(greedy)
        sizes = [min(self.per_grouping, left - begin) for begin in range(0, left, self.per_grouping)]
        return [(1, True)] * int(greedy) + [(size, False) for size in sizes]

    def copy(self, examples: Sequence[tuple[Operators, Tensor]]) -> None:
        """Make the grouper deal operators as the labels [N] of examples say."""
        parameters = [self.words, *self.grouper.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=COPYING_RATE)
        for _ in range(COPYING_STEPS):
            optimiser.zero_grad(set_to_none=True)
            for inputs, labels in examples:
                loss = nn.functional.cross_entropy(self.group_logits(inputs), labels) / len(examples)
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        for parameter in parameters:
            parameter.grad = None
