"""Which of several ready units goes first: classes that shift a unit in the order of list scheduling.

Zhou et al., "Transferable Graph Optimizers for ML Compilers", NeurIPS 2020, where one network also decides priorities.

Notation    S placements, M units, N operators
    rows       [S, 2 M]  devices of units, then their classes
    classes    [S, M]    MIDDLE leaves a unit where its upward rank has it, lower ones move it forward by STEP each
    positions  [S, N]    place of every operator in the order by which idle devices choose
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.learn.ground.reward import Evaluator, Scorer, Values
from stead.problem import Placement, Priority, Problem
from stead.sim import simulate_many
from stead.sim.ranks import rank_positions

CLASSES = 9
MIDDLE = CLASSES // 2
PARTS = 1024  # of the order, all about equally many operators
STEP = PARTS // 16  # parts that a class moves a unit by
AT_ONCE = 2**22  # positions of so many operators are in memory at a time


class Ranks:
    """The order of list scheduling, and what classes of units make of it."""

    def __init__(self, problem: Problem, grouping: Grouping) -> None:
        place = rank_positions(problem)
        self.order = np.argsort(place)  # operators by decreasing upward rank
        self.unit = grouping.group[self.order]
        self.part = (place[self.order].astype(np.int64) * PARTS // max(1, len(place))).astype(np.int16)

    def positions(self, classes: NDArray[np.uint8]) -> NDArray[np.int32]:  # [S, N]
        """Of classes [S, M]; operators of one part keep the order of their ranks."""
        shifted = self.part + ((classes.astype(np.int16) - MIDDLE) * STEP)[:, self.unit]
        order = self.order[np.argsort(shifted, axis=1, kind="stable")]
        found = np.empty(order.shape, dtype=np.int32)
        np.put_along_axis(found, order, np.arange(order.shape[1], dtype=np.int32)[None, :], axis=1)
        return found


class OrderedScorer(Scorer):
    """Scores rows that have priorities, each by the better of its own order and the policy of the objective."""

    runs = 2

    def __init__(
        self,
        problem: Problem,
        grouping: Grouping,
        *,
        threads: int = 0,
        evaluate: Evaluator | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(problem, grouping, threads=threads, evaluate=evaluate, limit=limit)
        if evaluate is not None:
            self.runs = 1  # whoever measures is given devices alone
        self.ranks = Ranks(problem, grouping)

    @property
    def width(self) -> int:
        """A device and a class per unit."""
        return 2 * self.grouping.count

    def whole(self, devices: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, 2 M]
        """Rows that leave every unit where its rank has it."""
        return np.concatenate([devices, np.full_like(devices, MIDDLE)], axis=1)

    def lifted(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, operator]
        """The placements that rows stand for, without their orders."""
        return self.grouping.lift(rows[:, : self.grouping.count])

    def placement(self, row: NDArray[np.uint8], run: int = 0) -> Placement:
        """Run 0 leaves the order to the policy of the objective, run 1 has that of the row."""
        order = Priority(self._positions(row[None, :])[0]) if run else None
        return Placement(self.problem, self.lifted(row[None, :])[0], order)

    def _simulated(self, rows: NDArray[np.uint8]) -> list[Values]:
        free = super()._simulated(rows)
        if self.evaluate is not None:
            return free
        begin, own = time.perf_counter(), list[Values]()
        step = max(1, AT_ONCE // max(1, len(self.problem.graph)))
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            places = self._positions(part)
            own += self._values(
                simulate_many(self.problem, self.lifted(part), positions=places, threads=self.threads)
            )
        self.simulated_seconds += time.perf_counter() - begin
        return [min(one, (*other[:3], 1), key=_worth) for one, other in zip(free, own, strict=True)]

    def _positions(self, rows: NDArray[np.uint8]) -> NDArray[np.int32]:  # [row, operator]
        return self.ranks.positions(rows[:, self.grouping.count :])


def _worth(values: Values) -> tuple[float, float]:
    """What runs before what does not, then by the share of memory that lacks."""
    return values[0], values[1]
