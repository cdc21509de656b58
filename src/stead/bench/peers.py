"""What one would write in an afternoon instead: solvers for comparison, which only benchmarks know.

They use the simulator and the same integer programs, but none of the constructions, searches and bounds of stead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stead.problem import Latency, Problem, Throughput
from stead.solvers import Budget, Search, Solution, Solver
from stead.solvers.exact.latency_cp import LatencyCp, ScheduleProgram
from stead.solvers.exact.throughput_mip import ThroughputMip
from stead.solvers.rules.settle import started
from stead.solvers.rules.simple import FitMemory, Single
from stead.solvers.search.climb import climb


@dataclass(frozen=True, slots=True)
class PlainCpSat:
    """The whole question as one CP-SAT model, with one device as its first answer."""

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "plain-cp-sat"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes dataflow latency and full pipelines that are not too large."""
        if isinstance(problem.objective, Throughput):
            return self._pipeline.unsupported(problem)
        return LatencyCp().unsupported(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """One device, or one after another where it is too small, then the model until time is up."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            for simple in (Single(), FitMemory()):
                if search.best is None:
                    search.try_solver(simple)
            if isinstance(problem.objective, Latency):
                ScheduleProgram(search, []).run(search, proves=True)
            else:
                self._pipeline.improve(search)
        return search.solution()

    @property
    def _pipeline(self) -> ThroughputMip:
        return ThroughputMip(engine="cp-sat")


@dataclass(frozen=True, slots=True)
class RandomRestarts:
    """Placements drawn at random, each improved until `patience` changes in a row were in vain; the best of all."""

    patience: int = 1024
    restarts: int = 1000

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "random-restarts"

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Draw and climb, over and over."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        rng = np.random.default_rng(seed)
        with search.interruptible():
            for restart in range(self.restarts):
                if search.done:
                    break
                self._climb(search, rng, restart)
        return search.solution()

    def _climb(self, search: Search, rng: np.random.Generator, restart: int) -> None:
        """One start and what becomes of it."""
        problem = search.problem
        drawn = rng.random(problem.unit_allowed.shape) * problem.unit_allowed
        one = Search(problem, search.rest_of_budget(), solver=self.name, seed=search.seed + restart)
        one.offer(drawn.argmax(axis=1)[problem.units])
        climb(one, patience=self.patience)
        if one.best is not None:
            search.adopt(one.solution())
        else:
            search.evaluations += one.evaluations


PEERS: dict[str, Callable[[], Solver]] = {"plain-cp-sat": PlainCpSat, "random-restarts": RandomRestarts}
