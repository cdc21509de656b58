"""`multilevel`: cluster, place the clusters, then refine from coarse to fine; needs no other package.

A large graph is placed twice: as a graph of convex clusters whose placement is handed down, and as it is, where only
those levels are refined that can be afforded. Each level has four times as many clusters as the one before; the last
one are units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.coarsen.clustering import cluster_problem
from stead.coarsen.grouping import Grouping
from stead.errors import BadInput
from stead.problem import Problem
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.list_scheduling import DfsSticky, Heft
from stead.solvers.build.schedules import Schedule, mirrored_groupings, offer_fitting, tied_units
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

COARSEST = 48
FINER = 4
FINEST = 4096
BLOCK = 16  # clusters whose moves are scored together
MOST_WORK = 30_000_000  # operators times moves that a sweep may simulate: a second or two


@few_devices
@dataclass(frozen=True, slots=True)
class Multilevel:
    """Constructions on a graph of clusters, improved by moving clusters, then their parts, then single units."""

    name: ClassVar[str] = "multilevel"
    base: int = 2048  # operators beyond which a graph of half as many clusters is placed too
    sweeps: int = 2  # over all clusters of a level
    tied: bool = True  # for training, clusters move together with their backward operators

    def __post_init__(self) -> None:
        if self.base < 2 or self.sweeps < 1:
            raise BadInput(
                f"multilevel needs a base of 2 and 1 sweep at least, got {self.base} and {self.sweeps}"
            )

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Place clusters if there are many operators, then the operators, refining level by level."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            if len(problem.graph) > self.base:
                self._place_clusters(search)
            self._place(search)
        return search.solution()

    def _place_clusters(self, search: Search) -> None:
        """Place convex clusters and hand the best placement down, unless there is only one evaluation left."""
        problem, left = search.problem, search.remaining_evaluations
        if left is not None and left < 2:
            return
        grouping = _respectful(problem, cluster_problem(problem, self.base // 2))
        coarse = grouping.coarse(problem, merge=True)
        inner = Search(coarse, search.rest_of_budget(0.5), solver=self.name, seed=search.seed)
        self._place(inner)
        search.evaluations += inner.evaluations
        if inner.current is not None:
            rank = _native.topological_order(problem.native, kind="rank")
            offer_fitting(search, Schedule(grouping.lift(inner.current), rank), tied_units(problem))

    def _place(self, search: Search) -> None:
        """Start from the best of a few constructions; move clusters, then finer ones."""
        for member in (Chunks(rounds=1), DfsSticky(), Heft(average="mean")):
            if not search.done:
                search.try_solver(member)
        if search.done:
            return
        problem = search.problem
        unit_of = tied_units(problem) if self.tied else problem.units
        for label in _levels(search, unit_of):
            moves = (int(label.max(initial=-1)) + 1) * (len(problem.cluster) - 1)
            if moves * len(problem.graph) > MOST_WORK:
                continue
            for _ in range(self.sweeps):
                before = search.score
                self._sweep(search, label)
                if search.done or search.score == before:
                    break

    def _sweep(self, search: Search, label: NDArray[np.int64]) -> None:
        """Offer every move of one cluster to another device, a block of clusters at a time."""
        problem, count = search.problem, int(label.max(initial=-1)) + 1
        allowed = np.ones((count, len(problem.cluster)), dtype=bool)
        np.logical_and.at(allowed, label, problem.allowed)
        for begin in range(0, count, BLOCK):
            if search.done or search.current is None:
                return
            rows = [
                np.where(label == c, d, search.current).astype(np.uint8)
                for c in range(begin, min(count, begin + BLOCK))
                for d in np.flatnonzero(allowed[c]).tolist()
            ]
            rows = [row for row in rows if not np.array_equal(row, search.current)]
            if rows:
                search.offer_many(np.stack(rows), order=search.best_order)


def _levels(search: Search, unit_of: NDArray[np.int32]) -> Iterator[NDArray[np.int64]]:  # [operator]
    """Units of weights, clusters of tied units from coarse to fine, then the units of the problem."""
    problem = search.problem
    units = int(unit_of.max(initial=-1)) + 1
    for coarse in mirrored_groupings(problem)[1:]:
        yield coarse.astype(np.int64)
    count = COARSEST
    while count < min(units, FINEST) and not search.done:
        yield _joined(cluster_problem(problem, count).group, unit_of)
        count *= FINER
    yield unit_of.astype(np.int64)
    if unit_of is not problem.units:
        yield problem.units.astype(np.int64)


def _joined(group: NDArray[np.int32], unit_of: NDArray[np.int32]) -> NDArray[np.int64]:  # [operator]
    """Clusters of whole units: a unit goes with the cluster of its first operator."""
    first = np.unique(unit_of, return_index=True)[1]
    return np.unique(group[first], return_inverse=True)[1].reshape(-1)[unit_of]


def _respectful(problem: Problem, grouping: Grouping) -> Grouping:
    """The grouping, or where clusters need each other's results the finest coarser one in which they do not."""
    return grouping if grouping.is_acyclic else grouping.fused()
