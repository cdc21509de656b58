"""The simple rules that other tools follow, and chance: what every plan is compared with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import device_type
from stead.cluster.quantities import format_bytes
from stead.coarsen.blocks import layers_of
from stead.errors import BadInput, Infeasible
from stead.graph import Graph
from stead.graph.paths import forward_anchors
from stead.problem import Problem
from stead.solvers.rules.fit_memory import FitMemory
from stead.solvers.rules.settle import (
    Wish,
    accelerators,
    chosen_devices,
    hosts,
    mean_seconds,
    settled,
    solve_by_rule,
    speed_shares,
    started,
)
from stead.solvers.solution import Budget, Solution

__all__ = [
    "Balanced",
    "Bandwidth",
    "Capacity",
    "Even",
    "FitMemory",
    "GreedySupport",
    "LargestN",
    "Random",
    "RoundRobin",
    "Single",
]

MOST_DRAWN = 4_000_000  # random numbers held at a time


@dataclass(frozen=True, slots=True)
class Single:
    """Everything on one device: the given one, or the one that is fastest."""

    device: str = ""

    @property
    def name(self) -> str:
        """The name it is called by."""
        return f"single:{self.device}" if self.device else "single"

    def unsupported(self, problem: Problem) -> str | None:
        """It needs a device that can run every operator; what must not run there goes elsewhere."""
        if self._candidates(problem):
            return None
        if not self.device:
            return "no device can run every operator"
        column = problem.columns[problem.cluster.index(self.device)]
        runs = np.isfinite(problem.column_seconds[:, column])
        v = int(np.flatnonzero(~runs)[0])
        kind = problem.graph.kinds[v]
        return (
            f"{self.device} cannot run {int((~runs).sum())} of {len(runs)} operators, "
            f"first {problem.graph.operator_names[v]!r}{f' ({kind})' if kind else ''}"
        )

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score each device that comes into question."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            settlements = [settled(problem, np.full(len(problem.graph), d)) for d in self._candidates(problem)]
            search.offer_many(np.stack([devices for devices, _ in settlements]))
            for devices, notes in settlements:
                if search.best is not None and np.array_equal(devices, search.best):
                    search.notes += notes
                    break
        try:
            return search.solution()
        except Infeasible as error:
            raise self._too_small(problem, error) from None

    def _candidates(self, problem: Problem) -> list[int]:
        runs_all = np.asarray(np.isfinite(problem.column_seconds).all(axis=0))[problem.columns]  # [device]
        wanted = [problem.cluster.index(self.device)] if self.device else range(len(problem.cluster))
        return [d for d in wanted if runs_all[d]]

    def _too_small(self, problem: Problem, error: Infeasible) -> Infeasible:
        """The same error in the words of what is needed and what there is."""
        if len(error.short_bytes) != 1:
            return error
        device, over = next(iter(error.short_bytes.items()))
        has = problem.cluster.devices[problem.cluster.index(device)].usable_bytes
        needs = has + over
        which = "" if self.device else f"{device} misses least: "
        return Infeasible(
            f"{self.name} found no placement that works: does not fit: {which}needs {format_bytes(needs)}, "
            f"has {format_bytes(has)}",
            short_bytes=error.short_bytes,
            placement=error.placement,
            proved=error.proved,
        )


class _Rule(ABC):
    """A rule that constructs one placement, whatever the problem."""

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name it is called by."""

    @abstractmethod
    def wish(self, problem: Problem) -> Wish:
        """What the rule says, before pins, exclusions and colocation."""

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the placement of the rule."""
        return solve_by_rule(self, problem, budget, seed)


@dataclass(frozen=True, slots=True)
class Even(_Rule):
    """The same number of layers on each device (the rule of vLLM)."""

    name: ClassVar[str] = "even"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def wish(self, problem: Problem) -> Wish:
        """Layers in order; the remainder goes to the stages before the last, one each."""
        stages = chosen_devices(problem.cluster, self.devices)
        return _stages(problem, stages, even_counts(len(layers_of(problem)), len(stages)))


@dataclass(frozen=True, slots=True)
class Capacity(_Rule):
    """Layers in proportion to usable memory, at least one each (the rule of exo)."""

    name: ClassVar[str] = "capacity"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def unsupported(self, problem: Problem) -> str | None:
        """It needs a layer for every device."""
        layers, stages = len(layers_of(problem)), len(chosen_devices(problem.cluster, self.devices))
        return None if layers >= stages else f"{layers} layers are too few for {stages} devices"

    def wish(self, problem: Problem) -> Wish:
        """Layers in order, shares rounded by largest remainder."""
        stages = chosen_devices(problem.cluster, self.devices)
        memory = [problem.cluster.devices[d].usable_bytes for d in stages]
        return _stages(problem, stages, largest_remainder(len(layers_of(problem)), memory, least=1))


@dataclass(frozen=True, slots=True)
class Bandwidth(_Rule):
    """Layers in proportion to memory bandwidth, which is what token generation is bound by."""

    name: ClassVar[str] = "bandwidth"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def unsupported(self, problem: Problem) -> str | None:
        """It needs the memory bandwidth of every device."""
        for d in chosen_devices(problem.cluster, self.devices):
            if not isfinite(problem.cluster.devices[d].bytes_per_second):
                return f"the memory bandwidth of {problem.cluster.names[d]} is not known"
        return None

    def wish(self, problem: Problem) -> Wish:
        """Layers in order, shares rounded by largest remainder."""
        stages = chosen_devices(problem.cluster, self.devices)
        rates = [problem.cluster.devices[d].bytes_per_second for d in stages]
        return _stages(problem, stages, largest_remainder(len(layers_of(problem)), rates))


@dataclass(frozen=True, slots=True)
class Balanced(_Rule):
    """Consecutive chunks of operators that take every device about the same time.

    Backward operators go with the forward operator they belong to.
    """

    name: ClassVar[str] = "balanced"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def wish(self, problem: Problem) -> Wish:
        """Shares of the work in proportion to speed; an operator goes where its middle lies."""
        chosen = np.array(chosen_devices(problem.cluster, self.devices))
        seconds = problem.unit_seconds[:, chosen]
        position = forward_anchors(problem.graph)[problem.unit_firsts]  # [unit]
        work = np.bincount(position, weights=mean_seconds(seconds), minlength=len(problem.graph))
        if not work.any():
            work = np.bincount(position, minlength=len(problem.graph)).astype(float)
        middle = np.cumsum(work) - work / 2
        borders = np.cumsum(speed_shares(seconds))[:-1] * work.sum()
        chunk = np.searchsorted(borders, middle, side="right")  # [position]
        return Wish(chosen[chunk[position]][problem.units])


@dataclass(frozen=True, slots=True)
class RoundRobin(_Rule):
    """Operators, or layers, dealt out to the devices in turn."""

    name: ClassVar[str] = "round-robin"
    by: str = "operator"  # or "layer"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def __post_init__(self) -> None:
        if self.by not in ("operator", "layer"):
            raise BadInput(f"round-robin deals by operator or layer, got {self.by!r}")

    def wish(self, problem: Problem) -> Wish:
        """Number i of the units or layers on device i modulo their number."""
        chosen = np.array(chosen_devices(problem.cluster, self.devices))
        turn = problem.units if self.by == "operator" else layers_of(problem).of_operator
        return Wish(chosen[turn % len(chosen)])


@dataclass(frozen=True, slots=True)
class Random:
    """A placement drawn at random, every unit on any device that is allowed for it; or the best of several."""

    name: ClassVar[str] = "random"
    samples: int = 1

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise BadInput(f"random draws at least 1 sample, got {self.samples}")

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Draw and score until all samples are drawn or the budget is spent."""
        search = started(self, problem, budget, seed)
        rng = np.random.default_rng(seed)
        allowed = problem.unit_allowed
        choices = np.argsort(~allowed, axis=1, kind="stable")  # [unit, rank]; allowed devices come first
        counts = allowed.sum(axis=1)
        at_once = max(1, min(64, MOST_DRAWN // max(1, len(counts))))
        units = np.arange(len(counts))
        with search.interruptible():
            for begin in range(0, self.samples, at_once):
                if search.done:
                    break
                drawn = rng.random((min(at_once, self.samples - begin), len(counts)))
                rows = choices[units, (drawn * counts).astype(np.int64)].astype(device_type(len(problem.cluster)))
                search.offer_many(rows[:, problem.units])
        return search.solution()


@dataclass(frozen=True, slots=True)
class GreedySupport(_Rule):
    """Every operator on the first device that supports it (OpenVINO HETERO, ONNX Runtime)."""

    name: ClassVar[str] = "greedy-support"
    order: str = ""  # names such as npu,gpu,cpu; empty: accelerators first, then CPUs

    def wish(self, problem: Problem) -> Wish:
        """The first allowed device of each operator; devices that are not listed come last."""
        everything = [*accelerators(problem.cluster), *hosts(problem.cluster)]
        listed = chosen_devices(problem.cluster, self.order) if self.order else everything
        order = np.array([*listed, *(d for d in everything if d not in listed)])
        return Wish(order[problem.column_allowed[:, problem.columns[order]].argmax(axis=1)])


@dataclass(frozen=True, slots=True)
class LargestN(_Rule):
    """The n largest islands of supported operators on the first accelerator, the rest on a CPU (LiteRT)."""

    islands: int = 1

    def __post_init__(self) -> None:
        if self.islands < 0:
            raise BadInput(f"largest-n keeps 0 islands or more, got {self.islands}")

    @property
    def name(self) -> str:
        """The name it is called by."""
        return f"largest-n:{self.islands}"

    def unsupported(self, problem: Problem) -> str | None:
        """It needs an accelerator."""
        return None if accelerators(problem.cluster) else "there is no accelerator beside the CPUs"

    def wish(self, problem: Problem) -> Wish:
        """Islands by operator count, the earlier first among equals; the rest where it may run first."""
        accelerator, *others = accelerators(problem.cluster)
        rest = np.array([*hosts(problem.cluster), *others, accelerator])
        devices = rest[problem.allowed[:, rest].argmax(axis=1)]
        supported = problem.allowed[:, accelerator]
        island = supported_islands(problem.graph, supported)
        numbers, sizes = np.unique(island[supported], return_counts=True)
        kept = numbers[np.argsort(-sizes, kind="stable")[: self.islands]]
        devices[supported & np.isin(island, kept)] = accelerator
        return Wish(devices)


def even_counts(layers: int, stages: int) -> list[int]:
    """Layers per stage as vLLM cuts them: one more for the stages before the last, from the back.

    >>> even_counts(32, 5)
    [6, 6, 7, 7, 6]
    """
    counts = [layers // stages] * stages
    for extra in range(layers % stages):
        counts[stages - 2 - extra] += 1
    return counts


def largest_remainder(total: int, weights: Sequence[float], *, least: int = 0) -> list[int]:
    """Whole shares of `total` in proportion to weights, at least `least` each; ties go to the earlier one.

    >>> largest_remainder(40, [36, 96, 64, 96, 36])
    [4, 12, 8, 12, 4]
    >>> largest_remainder(10, [1000, 1, 1], least=1)
    [8, 1, 1]
    """
    exact = [total * Fraction(weight) / sum(map(Fraction, weights)) for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (shares[i] - exact[i], i))
    for i in by_remainder[: total - sum(shares)]:
        shares[i] += 1
    for i in range(len(shares)):
        while shares[i] < least:
            shares[max(range(len(shares)), key=lambda j: (shares[j], -j))] -= 1
            shares[i] += 1
    return shares


def supported_islands(graph: Graph, supported: NDArray[np.bool_]) -> NDArray[np.int64]:  # [operator]
    """A number for the island of every operator, as LiteRT cuts a graph.

    Supported operators and others take turns; a turn takes every operator of its sort whose inputs are there,
    so that an island never waits for an operator that waits for it.
    """
    island = np.zeros(len(graph), dtype=np.int64)
    kind = supported.tolist()
    numbers = [0 if sort == kind[0] else 1 for sort in kind]
    first, reads = graph.read_first.tolist(), graph.tensor_producer[graph.read_tensors].tolist()
    for v, sort in enumerate(kind):
        for u in reads[first[v] : first[v + 1]]:
            numbers[v] = max(numbers[v], numbers[u] + (kind[u] != sort))
    island[:] = numbers
    return island


def _stages(problem: Problem, devices: Sequence[int], counts: Sequence[int]) -> Wish:
    """Consecutive layers on consecutive devices."""
    device_of_layer = np.repeat(np.array(devices, dtype=np.int64), counts)
    return Wish(device_of_layer[layers_of(problem).of_operator])
