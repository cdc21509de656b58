"""Synthetic graphs of pure shape: layered, series-parallel and fork-join graphs with random costs."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import Graph
from stead.workloads.draft import Draft

FLOPS_PER_MICROSECOND = 4.6e6  # of the reference device: 4.6 TFLOP/s
WEIGHT_SHARE = 1 / 3  # of the operators that do something


@dataclass(frozen=True, slots=True)
class Layered:
    """Each operator reads one to three of the two layers before it; a quarter of them cost nothing.

    Costs are 3 to 400 microseconds of the reference device (4.6 TFLOP/s), tensors 2^4 to 2^23 bytes, a third of the
    operators have weights; all even on a logarithmic scale.
    """

    operators: int = 1000
    seed: int = 0
    training: bool = False
    width: int = 32
    most_reads: int = 3
    free_share: float = 0.25

    def graph(self) -> Graph:
        """The graph of this seed."""
        at_least("width", self.width, 1)
        at_least("most_reads", self.most_reads, 1)
        rng = np.random.default_rng(self.seed)
        count = forward_count(self.operators, self.training, (1 - self.free_share) * WEIGHT_SHARE)
        costs = _Costs(rng, count, self.free_share)
        readable = np.minimum(np.arange(count) // self.width * self.width, 2 * self.width)
        fan = rng.integers(1, self.most_reads + 1, count)
        offsets = rng.random((count, self.most_reads))
        draft = Draft(f"layered-{self.seed}")
        begins = (
            np.arange(count) // self.width * self.width - readable
        )  # the first operator of the two layers before
        picks = (begins[:, None] + np.floor(offsets * readable[:, None])).astype(np.int64)
        rows, fans, possible = picks.tolist(), fan.tolist(), readable.tolist()
        for v in range(count):
            costs.add(draft, v, rows[v][: fans[v]] if possible[v] else ())
        return draft.graph(training=self.training)


@dataclass(frozen=True, slots=True)
class ForkJoin:
    """Stages of parallel chains between a fork and a join."""

    operators: int = 1000
    seed: int = 0
    training: bool = False
    branches: int = 8
    depth: int = 4
    free_share: float = 0.0

    def graph(self) -> Graph:
        """The graph of this seed."""
        at_least("branches", self.branches, 1)
        at_least("depth", self.depth, 1)
        count = forward_count(self.operators, self.training, (1 - self.free_share) * WEIGHT_SHARE)
        per_stage = self.branches * self.depth + 1
        stages = max(1, round((count - 1) / per_stage))
        costs = _Costs(np.random.default_rng(self.seed), 1 + stages * per_stage, self.free_share)
        draft = Draft(f"fork-join-{self.seed}")
        last = costs.add(draft, 0, ())
        for _ in range(stages):
            ends = []
            for _ in range(self.branches):
                end = last
                for _ in range(self.depth):
                    end = costs.add(draft, len(draft), (end,))
                ends.append(end)
            last = costs.add(draft, len(draft), ends)
        return draft.graph(training=self.training)


@dataclass(frozen=True, slots=True)
class SeriesParallel:
    """Random graphs made of parts one after another and of parts side by side between a fork and a join."""

    operators: int = 1000
    seed: int = 0
    training: bool = False
    parallel_share: float = 0.5
    free_share: float = 0.1

    def graph(self) -> Graph:
        """The graph of this seed."""
        count = forward_count(self.operators, self.training, (1 - self.free_share) * WEIGHT_SHARE)
        shape = random.Random(self.seed)
        costs = _Costs(np.random.default_rng(self.seed), count, self.free_share)
        draft = Draft(f"series-parallel-{self.seed}")
        # Parts still to be written, the next one last: (operators in it, slot of its input, slot of its output).
        # A slot holds the tensors that arrive there, until an operator reads them all.
        slots: list[list[int]] = [[], []]
        parts = [(count, 0, 1)]
        while parts:
            size, source, target = parts.pop()
            if size <= 1:
                if size == 1:
                    slots[target].append(costs.add(draft, len(draft), slots[source]))
            elif size < 4 or shape.random() >= self.parallel_share:
                head = shape.randint(1, size - 1)
                slots.append([])
                parts += [(size - head, len(slots) - 1, target), (head, source, len(slots) - 1)]
            else:
                head = shape.randint(1, size - 3)
                fork, joined = len(slots), len(slots) + 1
                slots += [[], []]
                sides = [(size - 2 - head, fork, joined), (head, fork, joined)]
                parts += [(1, joined, target), *sides, (1, source, fork)]
        return draft.graph(training=self.training)


class _Costs:
    """Random costs for operators, drawn all at once."""

    def __init__(self, rng: np.random.Generator, count: int, free_share: float) -> None:
        if not 0 <= free_share <= 1:
            raise BadInput(f"free_share must lie in 0..1, got {free_share}")
        works = rng.random(count) >= free_share
        self.works: list[bool] = works.tolist()
        self.flops = _log_even(rng, 3, 400, count, works, FLOPS_PER_MICROSECOND)
        self.sizes: list[int] = np.exp2(rng.uniform(4, 23, count)).astype(np.int64).tolist()
        self.weights: list[int] = np.exp2(rng.uniform(12, 23, count)).astype(np.int64).tolist()
        self.has_weight: list[bool] = (works & (rng.random(count) < WEIGHT_SHARE)).tolist()

    def add(self, draft: Draft, v: int, reads: tuple[int, ...] | list[int]) -> int:
        """Write down operator v; its output."""
        name = f"v{v}"
        weights = (draft.weight(f"{name}.weight", self.weights[v]),) if self.has_weight[v] else ()
        kind = ("Compute" if self.works[v] else "Identity") if reads else "Input"
        return draft.add(
            name, kind, reads, size_bytes=self.sizes[v], flops=self.flops[v], weights=weights,
            moved_bytes=None if self.works[v] else 0.0,
        )  # fmt: skip


def _log_even(
    rng: np.random.Generator, low: float, high: float, count: int, works: NDArray[np.bool_], unit: float
) -> list[float]:
    numbers = np.exp(rng.uniform(np.log(low), np.log(high), count)) * unit
    drawn: list[float] = np.where(works, np.rint(numbers), 0.0).tolist()
    return drawn


def forward_count(operators: int, training: bool, weights_per_operator: float) -> int:
    """Forward operators of a graph of about so many; training adds as many backward ones and an update per weight."""
    return max(1, round(operators / (2 + weights_per_operator))) if training else operators


def at_least(what: str, given: int, least: int) -> None:
    """Refuse numbers that make no graph."""
    if given < least:
        raise BadInput(f"{what} must be at least {least}, got {given}")
