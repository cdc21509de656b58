"""`fit-memory`: fill the accelerators with whole layers and leave the rest to the CPU, as llama.cpp does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster.quantities import format_bytes
from stead.coarsen.blocks import layers_of
from stead.errors import Infeasible
from stead.graph import Graph
from stead.graph.paths import is_expert, module_paths
from stead.problem import Problem
from stead.solvers.rules.settle import GIB, Wish, accelerators, hosts, solve_by_rule, weights_by_group
from stead.solvers.solution import Budget, Solution


@dataclass(frozen=True, slots=True)
class FitMemory:
    """Whole layers into the accelerators from the back, last device first; the first layers stay on the CPU.

    Mixtures of experts: everything but the experts first, then the experts of as many layers as still fit.
    """

    name: ClassVar[str] = "fit-memory"
    margin_bytes: int = GIB  # left free on every accelerator

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the placement of the rule."""
        return solve_by_rule(self, problem, budget, seed)

    def wish(self, problem: Problem) -> Wish:
        """Devices of the dense part and of the experts of every layer."""
        layers = layers_of(problem)
        cpu = next(iter(hosts(problem.cluster)), None)
        expert = _is_expert(problem.graph) if cpu is not None else np.zeros(len(problem.graph), dtype=bool)
        held = weights_by_group(problem, layers.of_operator * 2 + expert, groups=len(layers) * 2)
        shelves = _Shelves(problem, self.margin_bytes)
        dense = self._fill(problem, shelves, held[0::2], cpu)
        experts = _join(shelves, dense, held[1::2], cpu)
        return Wish(np.stack([dense, experts], axis=1)[layers.of_operator, expert.astype(np.int64)])

    def _fill(
        self, problem: Problem, shelves: _Shelves, held: Sequence[Sequence[int]], cpu: int | None
    ) -> list[int]:  # [layer]
        """Devices of dense parts, from the last layer and the last accelerator."""
        devices = [-1 if cpu is None else cpu] * len(held)
        free = accelerators(problem.cluster)
        for layer in range(len(held) - 1, -1, -1):
            while free and not shelves.fits(free[-1], held[layer]):
                free.pop()
            if not free and cpu is None:
                left = [w for weights in held[: layer + 1] for w in weights]
                raise self._no_room(problem, shelves.size(left))
            if not free:
                break
            shelves.put(free[-1], held[layer])
            devices[layer] = free[-1]
        return devices

    def _no_room(self, problem: Problem, left: int) -> Infeasible:
        names = problem.cluster.names
        return Infeasible(
            f"{self.name} found no placement that works: does not fit: {format_bytes(left)} of weights "
            f"are left over when {format_bytes(self.margin_bytes)} stay free on each of {', '.join(names)}",
            short_bytes={names[0]: max(1, left)},
        )


class _Shelves:
    """The room left on each device; a weight takes it once per device."""

    def __init__(self, problem: Problem, margin_bytes: int) -> None:
        self._bytes: list[int] = problem.graph.weight_bytes.tolist()
        self._room = [device.usable_bytes - margin_bytes for device in problem.cluster]
        self._held: list[set[int]] = [set() for _ in problem.cluster]

    def size(self, weights: Sequence[int]) -> int:
        """Bytes of some weights, each once."""
        return sum(self._bytes[w] for w in set(weights))

    def fits(self, device: int, weights: Sequence[int]) -> bool:
        """Whether what a device does not hold yet still fits."""
        return self.size([w for w in weights if w not in self._held[device]]) <= self._room[device]

    def put(self, device: int, weights: Sequence[int]) -> None:
        """Take the room that some weights need."""
        self._room[device] -= self.size([w for w in weights if w not in self._held[device]])
        self._held[device].update(weights)


def _join(
    shelves: _Shelves, dense: Sequence[int], held: Sequence[Sequence[int]], cpu: int | None
) -> list[int]:  # [layer]
    """Devices of experts: with their layer, from the first layer on, while they fit there; else the CPU."""
    devices = []
    for device, weights in zip(dense, held, strict=True):
        if cpu is not None and not shelves.fits(device, weights):
            device = cpu
        shelves.put(device, weights)
        devices.append(device)
    return devices


def _is_expert(graph: Graph) -> NDArray[np.bool_]:  # [operator]
    """Operators below a module called `experts`: of the many only a few work on a token."""
    return np.array([is_expert(path) for path in module_paths(graph)], dtype=bool)
