"""What solvers that follow a rule of thumb share: settle a wish on allowed devices, score it, answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster
from stead.cluster.classes import DeviceIndices, device_type
from stead.errors import BadInput
from stead.graph.weights import resident
from stead.problem import Problem
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution, Solver

GIB = 2**30


@dataclass(frozen=True, slots=True, eq=False)
class Wish:
    """The devices a rule would choose if nothing stood against it."""

    devices: NDArray[np.int64]  # [operator]
    notes: tuple[str, ...] = ()


class Rule(Solver, Protocol):
    """A solver that constructs one placement."""

    def wish(self, problem: Problem) -> Wish:
        """What the rule says, before pins, exclusions and colocation."""


def solve_by_rule(rule: Rule, problem: Problem, budget: Budget, seed: int) -> Solution:
    """The placement of a rule; what may not be where the rule wants it goes to the fastest device allowed."""
    search = started(rule, problem, budget, seed)
    with search.interruptible():
        wish = rule.wish(problem)
        devices, moved = settled(problem, wish.devices)
        search.notes += [*wish.notes, *moved]
        search.offer(devices)
    return search.solution()


def started(solver: Solver, problem: Problem, budget: Budget, seed: int, *, scope: str = "") -> Search:
    """A search for a solver that can take the problem; an error with its reason if it cannot."""
    reason = solver.unsupported(problem)
    if reason is not None:
        raise BadInput(f"{solver.name} does not apply: {reason}")
    return Search(problem, budget, solver=solver.name, seed=seed, scope=scope)


def settled(problem: Problem, wanted: NDArray[np.int64]) -> tuple[DeviceIndices, list[str]]:
    """A wish as devices that are allowed, one per unit, and sentences about what had to be changed.

    A unit follows the wish of its first operator, or goes to the fastest allowed device if that one is not.
    """
    first = problem.unit_firsts
    by_unit = wanted[first].astype(np.int64)  # a copy, and whole numbers also for an empty graph
    refused = np.flatnonzero(~problem.column_allowed[first, problem.columns[by_unit]])
    if refused.size:
        by_unit[refused] = problem.unit_seconds[refused].argmin(axis=1)
    devices: DeviceIndices = by_unit[problem.units].astype(device_type(len(problem.cluster)))
    moved = np.flatnonzero(devices != wanted)
    barred = int(np.isin(problem.units[moved], refused).sum())
    notes = []
    if barred:
        notes.append(f"{_operators(barred)} moved: not allowed on the device the rule gives")
    if moved.size > barred:
        notes.append(f"{_operators(moved.size - barred)} moved: colocated with others")
    return devices, notes


def mean_seconds(seconds: NDArray[np.float64]) -> NDArray[np.float64]:  # [unit]
    """Mean seconds of every unit over the devices (columns) that may run it; 0 where none may."""
    finite = np.isfinite(seconds)
    total = np.where(finite, seconds, 0.0).sum(axis=1)
    mean: NDArray[np.float64] = total / np.maximum(finite.sum(axis=1), 1)
    return mean


def speed_shares(seconds: NDArray[np.float64]) -> NDArray[np.float64]:  # [device]
    """The share of all work that each device (column) would do in equal time; 0 where it may run nothing."""
    finite = np.isfinite(seconds)
    work = np.where(finite, mean_seconds(seconds)[:, None], 0.0).sum(axis=0)
    spent = np.where(finite, seconds, 0.0).sum(axis=0)
    speeds = np.ones(len(work))
    np.divide(work, spent, out=speeds, where=spent > 0)
    speeds[~finite.any(axis=0)] = 0.0
    return speeds / speeds.sum() if speeds.any() else np.full(len(speeds), 1.0 / len(speeds))


def accelerators(cluster: Cluster) -> list[int]:
    """Devices that are not CPUs, in order."""
    return [d for d, device in enumerate(cluster) if not device.is_host]


def hosts(cluster: Cluster) -> list[int]:
    """CPUs, in order."""
    return [d for d, device in enumerate(cluster) if device.is_host]


def chosen_devices(cluster: Cluster, names: str) -> list[int]:
    """Devices of a list such as `gpu0,gpu1`; an empty one means all accelerators, or all CPUs without any."""
    if names:
        return list(dict.fromkeys(cluster.index(name.strip()) for name in names.split(",")))
    return accelerators(cluster) or hosts(cluster)


def weights_by_group(problem: Problem, group: NDArray[np.int32], *, groups: int) -> list[list[int]]:
    """The weights used in each group of operators, each once."""
    found: list[list[int]] = [[] for _ in range(groups)]
    for w, number in zip(*resident(problem.graph, group), strict=True):
        found[int(number)].append(int(w))
    return found


def _operators(count: int) -> str:
    return f"{count} operator{'s' if count != 1 else ''}"
