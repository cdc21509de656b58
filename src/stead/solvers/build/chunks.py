"""`chunks`: topological orders cut into consecutive pieces of equal work; for training, backward follows forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.problem import Problem
from stead.solvers.build.schedules import Schedule, mirrored_groupings, offer_fitting, offer_schedule
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import chosen_devices, mean_seconds, speed_shares, started
from stead.solvers.solution import Budget, Solution

ORDERS = ("index", "rank", "depth", "level")
ROUNDS = (1, 2, 4)


@few_devices
@dataclass(frozen=True, slots=True)
class Chunks:
    """Consecutive pieces of a topological order, each device as much work as it can do in equal time.

    With several rounds every device gets as many pieces, in turn, which overlaps more and crosses more often. Mirrored,
    the forward pass is cut and backward operators go with their forward operator.
    """

    name: ClassVar[str] = "chunks"
    order: str = ""  # index, rank, depth or level; empty: all of them
    rounds: int = 0  # pieces per device; 0: one, two and four
    mirrored: bool = True
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator

    def __post_init__(self) -> None:
        if self.order and self.order not in ORDERS:
            raise BadInput(f"chunks cuts the order by {', '.join(ORDERS)}, got {self.order!r}")
        if self.rounds < 0:
            raise BadInput(f"chunks needs 0 rounds or more, got {self.rounds}")

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score every order with every number of rounds; where nothing fits, cut by bytes and move the rest."""
        search = started(self, problem, budget, seed)
        chosen = chosen_devices(problem.cluster, self.devices)
        unit_groups = mirrored_groupings(problem) if self.mirrored else [problem.units]
        cutters = [Cutter(problem, chosen, unit_of) for unit_of in unit_groups]
        with search.interruptible():
            for schedule in self._schedules(problem, cutters):
                offer_schedule(search, schedule)
                if search.done:
                    break
            if search.best is None and not search.done:
                cutter, order = cutters[0], topological(problem, self.order or "index")
                by_bytes = cutter.cut(order, 1, cutter.bytes, cutter.memory_shares)
                rank = _native.topological_order(problem.native, kind="rank")
                offer_fitting(search, Schedule(by_bytes, rank, "by bytes"), cutter.unit_of)
        return search.solution()

    def _schedules(self, problem: Problem, cutters: list[Cutter]) -> Iterator[Schedule]:
        """Cuts of every order; operators run by rank, whatever order was cut."""
        rank = _native.topological_order(problem.native, kind="rank")
        orders = {kind: topological(problem, kind) for kind in ((self.order,) if self.order else ORDERS)}
        seen: set[bytes] = set()
        for cutter in cutters:
            for rounds in (self.rounds,) if self.rounds else ROUNDS:
                for kind, order in orders.items():
                    devices = cutter.cut(order, rounds, cutter.work, cutter.shares)
                    if devices.tobytes() not in seen:
                        seen.add(devices.tobytes())
                        yield Schedule(devices, rank, f"{kind} x{rounds}")


class Cutter:
    """Units with their work and bytes, and the devices they are dealt to."""

    def __init__(self, problem: Problem, devices: list[int], unit_of: NDArray[np.int32]) -> None:
        self._problem = problem
        self._devices = np.array(devices, dtype=np.int64)
        self.unit_of = unit_of
        units = int(self.unit_of.max(initial=-1)) + 1
        seconds = np.zeros((units, len(problem.cluster)))
        np.add.at(seconds, self.unit_of, np.where(problem.allowed, problem.costs.seconds, np.inf))
        self._seconds = seconds
        chosen = seconds[:, self._devices]
        self.work = mean_seconds(chosen)  # [unit]
        self.shares = speed_shares(chosen) if units else np.ones(len(devices))  # [chosen device]
        graph = problem.graph
        held = np.bincount(self.unit_of, weights=graph.parameter_bytes, minlength=units)
        outputs = np.bincount(
            self.unit_of[graph.tensor_producer], weights=graph.tensor_bytes, minlength=units
        )
        self.bytes: NDArray[np.float64] = (held + outputs).astype(np.float64)  # [unit]
        memory = np.array([float(problem.cluster.devices[d].usable_bytes) for d in devices])
        self.memory_shares = memory / memory.sum()  # [chosen device]

    def cut(
        self,
        order: NDArray[np.int32],
        rounds: int,
        weight: NDArray[np.float64],
        shares: NDArray[np.float64],
    ) -> NDArray[np.uint8]:  # [operator]
        """Devices: a unit goes where the middle of its weight lies; what may not be there, where it is fastest."""
        middle = middles(self.unit_of, order, weight)
        borders = np.cumsum(np.tile(shares, rounds))[:-1] / rounds
        device = self._devices[np.searchsorted(borders, middle, side="right") % len(self._devices)]
        refused = np.flatnonzero(~np.isfinite(self._seconds[np.arange(len(device)), device]))
        device[refused] = self._seconds[refused].argmin(axis=1)
        return device[self.unit_of].astype(np.uint8)


def middles(
    unit_of: NDArray[np.int32], order: NDArray[np.int32], weight: NDArray[np.float64]
) -> NDArray[np.float64]:  # [unit]
    """The share of all weight before the middle of each unit, units standing in the order of their first operators.

    >>> middles(np.array([0, 1, 1]), np.array([0, 1, 2]), np.array([1.0, 3.0])).tolist()
    [0.125, 0.625]
    """
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    first = np.full(len(weight), len(order), dtype=np.int64)
    np.minimum.at(first, unit_of, position)
    sequence = np.argsort(first, kind="stable")
    own = weight[sequence] if weight.any() else np.ones(len(sequence))
    middle = np.empty(len(weight))
    middle[sequence] = (np.cumsum(own) - own / 2) / max(float(own.sum()), 1e-300)
    return middle


def topological(problem: Problem, kind: str) -> NDArray[np.int32]:  # [operator]
    """Operators in one of the orders that may be cut."""
    if kind == "index":
        return np.arange(len(problem.graph), dtype=np.int32)
    return _native.topological_order(problem.native, kind=kind)
