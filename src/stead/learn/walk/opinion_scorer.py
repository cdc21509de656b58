"""What opinions of a network earn: each is walked, and what the walk takes is the reward.

A row of this scorer is what a walk found: a device per operator, then the order of operators as bytes. So what was
found can be placed again without another walk. Run 1 has the order of the row; run 0, for constructions that are
scored elsewhere, leaves it to the policy of the objective.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.learn.ground.reward import Scored, Scorer, Values
from stead.learn.walk.opinions import OpinedGrounds
from stead.learn.walk.walk_rules import shipped_zero
from stead.learn.walk.walk_steps import Step
from stead.learn.walk.walking import PER_WALK
from stead.problem import Placement, Problem, ProgramOrder
from stead.problem.ticks import TICKS_PER_SECOND

ORDERED = 1  # the run of a row that has its own order


class OpinionScorer(Scorer):
    """Walks opinions by one kind of step, at first the first of the plan of list scheduling; all simulations count."""

    runs = PER_WALK

    def __init__(self, problem: Problem, grouping: Grouping, *, threads: int = 0, limit: int | None = None) -> None:
        super().__init__(problem, grouping, threads=threads, limit=limit)
        self.grounds = OpinedGrounds(problem, grouping.group)
        plan = shipped_zero().plans[self.grounds.kind]
        self.kinds: tuple[Step, ...] = tuple(walk for walk in plan if isinstance(walk, Step))
        self.kind = 0  # which of them it walks

    @property
    def step(self) -> Step:
        """How it walks now."""
        return self.kinds[self.kind % len(self.kinds)]

    @property
    def width(self) -> int:
        """A device and four bytes of order per operator."""
        return 5 * len(self.problem.graph)

    def whole(self, devices: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, width]
        """Rows that put groups on devices [row, group] without an order."""
        placed = self.grouping.lift(devices)
        return np.concatenate([placed, np.zeros((len(placed), 4 * placed.shape[1]), dtype=np.uint8)], axis=1)

    def lifted(self, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:  # [row, operator]
        """The devices that rows stand for."""
        return rows[:, : len(self.problem.graph)]

    def placement(self, row: NDArray[np.uint8], run: int = 0) -> Placement:
        """With the order of the row, if it has one."""
        operators = len(self.problem.graph)
        order = ProgramOrder(row[operators:].copy().view(np.int32)) if run == ORDERED else None
        return Placement(self.problem, row[:operators], order)

    def walked(
        self, opinions: NDArray[np.floating], by: Sequence[str]
    ) -> tuple[Scored, NDArray[np.uint8]]:  # and rows
        """What walks with opinions [row, group, device] take and find; `by` says who each is owed to."""
        begin = time.perf_counter()
        self.grounds.take(opinions)
        walks = self.grounds.walk_rows(self.step, threads=self.threads)
        self.simulated_seconds += time.perf_counter() - begin
        self.evaluations += sum(walk.simulations for walk in walks)
        rows = np.stack([np.concatenate([walk.devices, walk.order.view(np.uint8)]) for walk in walks])
        limits = float(max(1, self.grounds.limit_bytes.sum()))
        values = [_values(walk.ticks, walk.over_bytes / limits) for walk in walks]
        table = np.array(values, dtype=np.float64)
        scored = Scored(table[:, 0], table[:, 1], table[:, 2])
        self._remember(rows, scored, by, table[:, 3].astype(int))
        self._known = {rows[0].tobytes(): values[0]}  # whoever asks for the first one again need not walk
        return scored, rows


def _values(ticks: int, overfull: float) -> Values:
    """What is known of a walk."""
    if ticks < 0:
        return np.inf, 1.0, np.inf, ORDERED
    seconds = ticks / TICKS_PER_SECOND
    return (np.inf if overfull > 0 else seconds), overfull, seconds, ORDERED
