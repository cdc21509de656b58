"""Every placement there is: the oracle for small problems."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.graph.order import levels
from stead.problem import Latency, Problem
from stead.solvers.few_devices import few_devices
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

CHUNK = 4096
POLICY_ORDER = "placements without an order of their own"


@few_devices
@dataclass(frozen=True, slots=True)
class Exhaustive:
    """Scores every placement of every unit; its answer is proved optimal once it has seen all."""

    max_placements: int = 1_000_000

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "exhaustive"

    def unsupported(self, problem: Problem) -> str | None:
        """It refuses problems with too many placements."""
        count = placement_count(problem)
        if count <= self.max_placements:
            return None
        return f"there are {count:.3g} placements, more than max_placements = {self.max_placements}"

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score all placements, in order."""
        scope = POLICY_ORDER if order_matters(problem) else ""
        search = Search(problem, budget, solver=self.name, seed=seed, scope=scope)
        with search.interruptible():
            complete = True
            for rows in _all_rows(problem):
                if search.done:
                    complete = False
                    break
                complete &= len(search.offer_many(rows[:, problem.units])) == len(rows)
            if complete and search.best is not None:
                search.raise_bound(search.best_seconds, "every placement was tried")
        return search.solution()


def order_matters(problem: Problem) -> bool:
    """Whether an order could be better than what the policy does: operators or transfers have something to choose."""
    objective, graph = problem.objective, problem.graph
    if not isinstance(objective, Latency) or not objective.takes_orders or not len(graph):
        return False
    if int(levels(graph).max()) + 1 < len(graph):
        return True
    never_wait = len(problem.cluster) == 1 or problem.cluster.contention == "none"
    one_way = bool((graph.edges[:, 1] == graph.edges[:, 0] + 1).all())
    return not never_wait and not (one_way and bool((np.bincount(graph.tensor_producer) <= 1).all()))


def placement_count(problem: Problem) -> float:
    """Number of placements that keep every constraint but memory."""
    choices = problem.unit_allowed.sum(axis=1)
    return math.exp(min(float(np.log(choices).sum()), 700.0)) if len(choices) else 1.0


def _all_rows(problem: Problem) -> Iterator[NDArray[np.uint8]]:
    """All device choices of all units, in lexicographic order, in chunks."""
    options = [np.flatnonzero(row).astype(np.uint8) for row in problem.unit_allowed]
    sizes = [len(option) for option in options]
    total = math.prod(sizes)
    for begin in range(0, total, CHUNK):
        number = np.arange(begin, min(begin + CHUNK, total))
        rows = np.empty((len(number), len(options)), dtype=np.uint8)
        for unit in range(len(options) - 1, -1, -1):
            number, digit = np.divmod(number, sizes[unit])
            rows[:, unit] = options[unit][digit]
        yield rows
