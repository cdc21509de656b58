"""`cut`: all work in one order, cut where the part of each device ends; the quickest answer that uses every device.

Every unit has a place: the share of all work before its middle, in an order by number, by upward rank, depth first or
by level. Backward operators lie where their forward operator lies; in a second set of cuts all users of a weight lie
together. Parts are as wide as devices are fast. It is what `chunks` does, but each cut is scored once, with ranks as
priorities, under which cuts come off best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.errors import BadInput
from stead.problem import Priority, Problem
from stead.solvers.build.chunks import Chunks, Cutter, topological
from stead.solvers.build.schedules import Schedule, mirrored_groupings, offer_schedule, takes_orders
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import chosen_devices, started
from stead.solvers.solution import Budget, Solution

ORDERS = ("depth", "rank", "index", "level")  # the one that wins most often first
ROUNDS = (1, 4, 2)  # pieces per device


@few_devices
@dataclass(frozen=True, slots=True)
class Cut:
    """All work in one order, a piece for each device as wide as it is fast; the best of a few orders."""

    name: ClassVar[str] = "cut"
    devices: str = ""  # names such as gpu0,gpu1; empty: every accelerator
    rounds: int = 0  # pieces per device; 0: one, four and two

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise BadInput(f"cut needs 0 rounds or more, got {self.rounds}")

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score every cut once, the best one in other orders too; where none fits, leave it to `chunks`."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            rank = _native.topological_order(problem.native, kind="rank")
            position = np.empty(len(rank), dtype=np.int32)
            position[rank] = np.arange(len(rank), dtype=np.int32)
            order = Priority(position) if takes_orders(problem) else None
            for rows in self._cuts(problem):
                search.offer_many(rows, order=order, found_by=self.name)
                if search.done:
                    break
            if search.best is None and not search.done:
                search.try_solver(Chunks(devices=self.devices))
            elif search.best is not None and order is not None and not search.done:
                offer_schedule(search, Schedule(search.best, rank, self.name))
        return search.solution()

    def _cuts(self, problem: Problem) -> Iterator[NDArray[np.uint8]]:  # of [cut, operator]
        """Cuts that differ, those of one number of pieces at a time."""
        chosen = chosen_devices(problem.cluster, self.devices)
        cutters = [Cutter(problem, chosen, unit_of) for unit_of in mirrored_groupings(problem)]
        orders = [topological(problem, kind) for kind in ORDERS]
        seen: set[bytes] = set()
        for rounds in (self.rounds,) if self.rounds else ROUNDS:
            rows = [
                cutter.cut(order, rounds, cutter.work, cutter.shares) for cutter in cutters for order in orders
            ]
            fresh = {row.tobytes(): row for row in rows if row.tobytes() not in seen}
            seen.update(fresh)
            if fresh:
                yield np.stack(list(fresh.values()))
