"""`hierarchical`: plans for clusters of more devices than single solvers take, part by part.

1. *The whole line.* The model is divided over all devices, over half of them and so on, in consecutive pieces: what
   pipelines want, and what models need that do not fit the representatives. Full pipelines are divided again and again
   by what devices exchange, too.
2. *Representatives.* Equal devices are interchangeable, so whole nodes of every kind, the nearest first, stand for all;
   `auto` plans on one node and on as many devices as it takes. They are devices of the cluster, so a plan for them is
   one for the whole and has the same value.
3. *Windows.* What the busiest device holds, its node and those it exchanges most with is divided anew among them and
   devices that hold nothing yet, everything else staying where it is, as long as that helps.

The simulator of the whole cluster judges everything. Bounds are those by classes of devices; what is proved for a part
is not proved for the whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from stead.cluster.classes import SOLVER_DEVICES, DeviceIndices
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
)
from stead.solvers.large.pieces import spreads
from stead.solvers.large.traffic import Traffic
from stead.solvers.large.windows import window_around, window_problem
from stead.solvers.search.anneal import Anneal
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

WHOLE_SHARE = 0.5  # of the budget for dividing all devices, at most
PART_SHARE = 0.6  # of the budget for the representatives; of pipelines, which want all devices, a quarter
PIPELINE_SHARE = 0.25
TABLE_CELLS = 2**24  # operators times devices that are planned in detail: more take gigabytes
LEAST_DEVICES = 8  # whatever the number of operators
WINDOW_SHARE = 0.2  # of what is left of the budget
WINDOW_MOVES = 2_000_000
OPERATORS_PER_MOVE = 20  # of a simulation that takes as long as a move: one evaluation is so many moves
VAIN_WINDOWS = 3  # in a row, after which it ends


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Plans on representatives and along all devices, and improves where the pieces meet."""

    name: ClassVar[str] = "hierarchical"
    most: int = SOLVER_DEVICES  # devices that are planned in detail at a time

    def __post_init__(self) -> None:
        if not 2 <= self.most <= SOLVER_DEVICES:
            raise BadInput(f"hierarchical plans 2 to {SOLVER_DEVICES} devices at a time, got {self.most}")

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
        if is_full_pipeline(problem) and _least_work(problem) / len(chosen) >= search.best_seconds:
            search.notes.append(f"{len(chosen)} devices: too few for all work in less time than it takes now")
            return
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
        left, before = search.remaining_evaluations, search.evaluations
        most = math.inf if left is None else before + WHOLE_SHARE * left
        end = search.elapsed_seconds + WHOLE_SHARE * search.spare_seconds
        for row in spreads(search.problem, [d for node in nodes_of(search.problem) for d in node]):
            search.offer(row, found_by="spread")
            if search.done or search.evaluations >= most or search.elapsed_seconds > end:
                return

    def _improve(self, search: Search, most: int) -> None:
        """Divide anew what devices around the busiest one hold, while that relieves them and nobody else has more.

        Where many are equally busy, one window after another has to be relieved before that shows.
        """
        row, vain = search.best, 0
        while row is not None and not search.done and vain < VAIN_WINDOWS and not search.best_replicas:
            search.doing("windows")
            found = self._divided(search, row, most, vain)
            relieves = found is not None and search.offer(found, found_by="windows") <= search.best_seconds
            row, vain = (found, 0) if relieves else (row, vain + 1)

    def _divided(self, search: Search, row: DeviceIndices, most: int, part: int) -> DeviceIndices | None:
        """The placement with a better division of what the busiest device and others hold; None without one."""
        problem = search.problem
        busiest = int(np.argmax(simulate(problem, Placement(problem, row), memory="off").busy_seconds))
        node = next(node for node in nodes_of(problem) if busiest in node)
        width = max(2, most // 2)
        window = window_around(Traffic(problem, row), busiest, node, width, skip=part * width // 2)
        if len(window) == len(problem.cluster):
            return None  # `auto` has seen them all
        cut = window_problem(problem, row, window, most)
        inner = Search(cut.problem, search.rest_of_budget(WINDOW_SHARE), solver=self.name, seed=search.seed)
        before = inner.offer(cut.now)
        per_evaluation = max(Anneal().moves_per_evaluation, len(problem.graph) // OPERATORS_PER_MOVE)
        Anneal(moves=WINDOW_MOVES, moves_per_evaluation=per_evaluation).improve(inner, part=part)
        search.evaluations += inner.evaluations
        if inner.best is None or inner.best_seconds >= before:
            return None
        return cut.placed(row, inner.best)


def _least_work(problem: Problem) -> float:
    """Seconds of all operators, each where it is quickest."""
    seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)
    return float(seconds.min(axis=1, initial=np.inf).sum())
