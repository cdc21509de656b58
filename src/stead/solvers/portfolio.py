"""`auto`: everything at hand, cheapest first, until the gap is closed or the budget is spent."""

from __future__ import annotations

from dataclasses import dataclass

from stead.problem import Problem
from stead.sim.bounds import best_bound
from stead.solvers.base import Budget, Search, Solution, Solver
from stead.solvers.baselines import Balanced, FitMemory, GreedySupport, Single
from stead.solvers.climb import climb
from stead.solvers.exhaustive import Exhaustive, placement_count
from stead.solvers.huggingface import HfSequential
from stead.solvers.split import Split


@dataclass(frozen=True, slots=True)
class Auto:
    """Bounds, then constructions, then every placement if they are few, else hill climbing."""

    exhaustive_below: int = 20_000  # placements
    patience: int = 4096  # placements without improvement before climbing ends

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "auto"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Return the best placement any member finds, with the best bound."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            bound = best_bound(problem)
            search.raise_bound(bound.seconds, bound.name)
            for member in self._members(problem):
                if search.done:
                    break
                search.try_solver(member)
            if not search.done:
                climb(search, patience=self.patience)
        return search.solution()

    def _members(self, problem: Problem) -> list[Solver]:
        quick: list[Solver] = [Single(), Split(), Balanced(), GreedySupport(), FitMemory(), HfSequential()]
        if placement_count(problem) <= self.exhaustive_below:
            return [*quick, Exhaustive(self.exhaustive_below)]
        return quick
