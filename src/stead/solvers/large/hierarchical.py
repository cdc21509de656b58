"""`hierarchical`: plans for clusters of more devices than single solvers take, part by part.

1. *The whole line.* The model is divided over all devices, over half of them and so on, in consecutive pieces: what
   pipelines want, and what models need that do not fit the representatives.
2. *Representatives.* Equal devices are interchangeable, so whole nodes of every kind, the nearest first, stand for all;
   `auto` plans on one node and on as many devices as it takes. They are devices of the cluster, so a plan for them is
   one for the whole and has the same value.
3. *Windows.* What the busiest device and its neighbours hold is divided anew among them and devices that hold nothing
   yet, everything else staying where it is, as long as that helps.

The simulator of the whole cluster judges everything. Bounds are those by classes of devices; what is proved for a part
is not proved for the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stead.cluster.classes import SOLVER_DEVICES
from stead.errors import BadInput, Infeasible
from stead.problem import Placement, Problem, Throughput
from stead.sim import simulate
from stead.solvers.auto import Auto
from stead.solvers.auto_steps import is_full_pipeline
from stead.solvers.large.parts import (
    lifted,
    lifted_order,
    nodes_of,
    part_problem,
    representatives,
    window_around,
    window_problem,
)
from stead.solvers.large.spread import spreads
from stead.solvers.search.anneal import Anneal
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

PART_SHARE = 0.6  # of the budget for the representatives; of pipelines, which want all devices, a quarter
PIPELINE_SHARE = 0.25
TABLE_CELLS = 2**24  # operators times devices that are planned in detail: more take gigabytes
LEAST_DEVICES = 8  # whatever the number of operators
WINDOW_MOVES = 2_000_000
VAIN_WINDOWS = 3  # in a row, after which it ends


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Plans on representatives and along all devices, and improves where the pieces meet."""

    most: int = SOLVER_DEVICES  # devices that are planned in detail at a time

    def __post_init__(self) -> None:
        if not 2 <= self.most <= SOLVER_DEVICES:
            raise BadInput(f"hierarchical plans 2 to {SOLVER_DEVICES} devices at a time, got {self.most}")

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "hierarchical"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Plan the whole roughly and a part in detail, then improve what is busiest."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            search.relax()
            share = PIPELINE_SHARE if isinstance(problem.objective, Throughput) else PART_SHARE
            most = min(self.most, max(LEAST_DEVICES, TABLE_CELLS // max(1, len(problem.graph))))
            node = max(2, max(len(node) for node in nodes_of(problem)))
            self._plan_whole(search)
            for count in sorted({min(node, most), most}):
                self._plan_part(search, count, share if count == most else share / 2)
            if is_full_pipeline(problem):
                self._improve(search, most)
        return search.solution()

    def _plan_part(self, search: Search, most: int, share: float) -> None:
        """Let `auto` plan on so many representatives."""
        problem = search.problem
        if search.done:
            return
        chosen = representatives(problem, most)
        search.doing(f"{len(chosen)} of {len(problem.cluster)} devices")
        try:
            part = part_problem(problem, chosen)
            found = Auto().solve(part, replace(search.rest_of_budget(share), on_event=None), search.seed)
        except (BadInput, Infeasible) as error:
            search.notes.append(f"{len(chosen)} devices: {error}")
            return
        search.evaluations += found.evaluations
        placement = found.placement
        row = lifted(problem, chosen, placement.devices)
        if placement.replicas:
            shared = tuple(tuple(chosen[d] for d in group) for group in placement.replicas)
            search.offer_replicas(row, shared, found_by=found.found_by)
        else:
            order = lifted_order(problem, chosen, placement.order)
            search.offer(row, order=order, found_by=found.found_by)

    def _plan_whole(self, search: Search) -> None:
        """Divide the model over all devices and over fewer."""
        search.doing("all devices")
        nodes = nodes_of(search.problem)
        for row in spreads(search.problem, [d for node in nodes for d in node]):
            search.offer(row, found_by="spread")
            if search.done:
                return

    def _improve(self, search: Search, most: int) -> None:
        """Divide anew what devices around the busiest one hold, while that helps."""
        vain = 0
        while search.best is not None and not search.done and vain < VAIN_WINDOWS and not search.best_replicas:
            search.doing("windows")
            before = search.best_seconds
            self._divide_window(search, most, vain)
            vain = vain + 1 if search.best_seconds >= before else 0

    def _divide_window(self, search: Search, most: int, part: int) -> None:
        problem, row = search.problem, search.best
        assert row is not None
        busy = simulate(problem, Placement(problem, row), memory="off").busy_seconds
        window = window_around(row, int(np.argmax(busy)), len(problem.cluster), max(2, most // 2))
        if len(window) == len(problem.cluster):
            return  # `auto` has seen them all
        small, chosen, now = window_problem(problem, row, window, most)
        inner = Search(small, search.rest_of_budget(0.5), solver=self.name, seed=search.seed)
        inner.offer(now)
        Anneal(moves=WINDOW_MOVES).improve(inner, part=part)
        search.evaluations += inner.evaluations
        if inner.best is not None:
            better = row.copy()
            inside = np.isin(row, window)
            better[inside] = lifted(problem, chosen, inner.best)[inside]
            search.offer(better, found_by="windows")
