"""What a sequential run costs, in terms of units: the sum that `mincut` minimises.

Notation    v unit, t tensor, s its device, d a device with a reader, x[v,d] = 1 if v is placed on d
    p[v,d]    ticks of v on d
    w[t,s,d]  ticks of moving t from s to d, paid once per device that reads t, however many readers it has there
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.problem.ticks import to_ticks
from stead.sim.transfer_times import link_ticks

NO_WAY = -1  # ticks of a transfer between devices without a route


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Tensors that leave their unit, and who reads them."""

    tensors: NDArray[np.int64]  # [tensor]; index in the graph
    source: NDArray[np.int64]  # [tensor]; unit
    of: NDArray[np.int64]  # [read]; tensor, increasing
    reader: NDArray[np.int64]  # [read]; unit other than the source, each once per tensor


class SequentialCosts:
    """Units, the tensors between them, and what every choice costs in whole picoseconds."""

    def __init__(
        self,
        reads: Reads,
        unit_ticks: NDArray[np.int64],
        allowed: NDArray[np.bool_],
        way: Callable[[int, int], NDArray[np.int64]],
    ) -> None:
        self.reads = reads
        self.unit_ticks = unit_ticks  # [unit, device]
        self.allowed = allowed  # [unit, device]
        self.devices = unit_ticks.shape[1]
        self._way = way
        self._ways: dict[tuple[int, int], NDArray[np.int64]] = {}

    @staticmethod
    def of(problem: Problem) -> SequentialCosts:
        """What the simulator charges."""
        reads = _reads(problem)
        ticks = to_ticks(_finite_seconds(problem))
        unit_ticks = np.zeros((problem.unit_count, len(problem.cluster)), dtype=np.int64)
        np.add.at(unit_ticks, problem.units, ticks)
        return SequentialCosts(
            reads, unit_ticks, problem.unit_allowed, lambda s, d: _way(problem, reads.tensors, s, d)
        )

    def against_rest(self, d: int) -> SequentialCosts:
        """Two devices: d, and the best of all others in one. No run costs less there than it does here."""
        others = [other for other in range(self.devices) if other != d]
        never = np.iinfo(np.int64).max
        rest = np.where(self.allowed, self.unit_ticks, never)[:, others].min(axis=1)
        allowed = np.stack([self.allowed[:, d], self.allowed[:, others].any(axis=1)], axis=1)
        ticks = np.where(allowed, np.stack([self.unit_ticks[:, d], rest], axis=1), 0)
        pairs = {(0, 1): [(d, other) for other in others], (1, 0): [(other, d) for other in others]}
        return SequentialCosts(self.reads, ticks, allowed, lambda a, b: self._least(pairs[a, b]))

    def _least(self, pairs: list[tuple[int, int]]) -> NDArray[np.int64]:  # [tensor]
        ways = [self.way(s, d) for s, d in pairs if not (self.way(s, d) == NO_WAY).any()]
        none = np.full(len(self.reads.tensors), NO_WAY, dtype=np.int64)
        return np.min(ways, axis=0).astype(np.int64) if ways else none

    def way(self, s: int, d: int) -> NDArray[np.int64]:  # [tensor]
        """Ticks of moving each tensor from s to d; NO_WAY for all if there is no route."""
        if (s, d) not in self._ways:
            self._ways[s, d] = self._way(s, d)
        return self._ways[s, d]

    @cached_property
    def uniform(self) -> bool:
        """Whether every tensor takes the same time between any two devices."""
        pairs = [(s, d) for s in range(self.devices) for d in range(self.devices) if s != d]
        if not pairs:
            return True
        first = self.way(*pairs[0])
        return not (first == NO_WAY).any() and all(np.array_equal(self.way(*pair), first) for pair in pairs)

    def transfers(self, devices: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tensor, target) of every transfer of a placement of units, each once."""
        reads = self.reads
        target = devices[reads.reader]
        crossing = target != devices[reads.source[reads.of]]
        keys = np.unique(reads.of[crossing] * self.devices + target[crossing])
        tensor, device = np.divmod(keys, self.devices)
        return tensor, device

    def ticks(self, devices: NDArray[np.int64]) -> int | None:  # [unit]
        """The length of a run; None if a tensor would have no way."""
        total = int(self.unit_ticks[np.arange(len(devices)), devices].sum())
        tensor, target = self.transfers(devices)
        origin = devices[self.reads.source[tensor]]
        for s, d in np.unique(np.stack([origin, target], axis=1), axis=0).tolist():
            ways = self.way(s, d)[tensor[(origin == s) & (target == d)]]
            if (ways == NO_WAY).any():
                return None
            total += int(ways.sum())
        return total


def _finite_seconds(problem: Problem) -> NDArray[np.float64]:  # [operator, device]
    seconds: NDArray[np.float64] = np.where(problem.allowed, problem.costs.seconds, 0.0)
    return seconds


def _way(problem: Problem, tensors: NDArray[np.int64], s: int, d: int) -> NDArray[np.int64]:  # [tensor]
    """Ticks of moving some tensors from s to d, latency included, as the simulator rounds them."""
    if s == d:
        return np.zeros(len(tensors), dtype=np.int64)
    if np.isinf(problem.routes.latency_seconds[s, d]):
        return np.full(len(tensors), NO_WAY, dtype=np.int64)
    return link_ticks(problem, s, d)[tensors]



def _reads(problem: Problem) -> Reads:
    """Reads by other units than the producer's, each (tensor, unit) once."""
    graph, units = problem.graph, problem.units.astype(np.int64)
    tensor = graph.tensor_of_read
    source = units[graph.tensor_producer]
    reader = units[graph.readers]
    leaves = reader != source[tensor]
    pairs = np.unique(np.stack([tensor[leaves], reader[leaves]], axis=1), axis=0).reshape(-1, 2)
    tensors, of = np.unique(pairs[:, 0], return_inverse=True)
    return Reads(tensors, source[tensors], of.reshape(-1).astype(np.int64), pairs[:, 1])
