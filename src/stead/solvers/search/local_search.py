"""Local search on the largest load from random starts, the baseline of that name in Tarnawski et al. 2020.

From each of several random placements over accelerators, the single move of a unit that lowers the largest load most
is made, until none lowers it noticeably. Contiguity and memory play no part; whether the result fits is checked at the
end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.solvers.exact.reduction import not_balanced, steady_load
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import accelerators, hosts, started
from stead.solvers.search_state import Search, reraise
from stead.solvers.solution import Budget, Solution

NO_LIMIT = 2**40  # moves


@few_devices
@dataclass(frozen=True, slots=True)
class LocalSearch:
    """The best of several descents by single moves between accelerators, without regard to memory.

    One evaluation of a budget stands for one simulated placement or for `moves_per_evaluation` moves looked at.
    """

    name: ClassVar[str] = "local-search"
    starts: int = 10
    least_gain: float = 1e-5  # of the load, below which a descent ends
    moves_per_evaluation: int = 100
    threads: int = 0  # 0: all cores; the answer does not depend on it

    def unsupported(self, problem: Problem) -> str | None:
        """It balances loads of full pipelines, on every cluster."""
        return not_balanced(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score where every descent ends."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            self._descend(search)
        return search.solution()

    def _descend(self, search: Search) -> None:
        problem = search.problem
        chosen = accelerators(problem.cluster) or hosts(problem.cluster)
        targets = np.isin(np.arange(len(problem.cluster)), chosen).astype(np.uint8)
        left = search.remaining_evaluations
        starts = self.starts if left is None else min(self.starts, left)
        moves = NO_LIMIT if left is None else (left - starts) * self.moves_per_evaluation
        found = _native.descend(
            problem.native,
            problem.units,
            load=steady_load(problem),
            starts=_random_rows(problem, targets, starts, search.seed),
            targets=targets,
            least_gain=self.least_gain,
            moves=moves,
            seconds=search.remaining_seconds,
            threads=self.threads,
        )
        search.evaluations += int(found.moves.sum()) // self.moves_per_evaluation
        scored = search.offer_many(found.devices[:, problem.units])
        reraise(found.raised)
        misfits = int(np.isinf(scored).sum())
        if misfits:
            search.notes.append(
                f"{misfits} of {len(scored)} descents end where something does not fit, the best of all at "
                f"{found.ticks.min() / TICKS_PER_SECOND:.6g} s per sample"
            )


def _random_rows(
    problem: Problem, targets: NDArray[np.uint8], count: int, seed: int
) -> NDArray[np.uint8]:  # [start, unit]
    """Any target for every unit, or any device that may run it if no target may."""
    allowed = problem.unit_allowed & targets.astype(bool)
    allowed = np.where(allowed.any(axis=1, keepdims=True), allowed, problem.unit_allowed)
    keys = np.random.default_rng(seed).random((count, *allowed.shape))
    rows: NDArray[np.uint8] = np.where(allowed, keys, -1.0).argmax(axis=2).astype(np.uint8)
    return rows
