"""What solvers have answered within one search, so that none is asked the same question twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stead.errors import Infeasible
from stead.problem import Problem

if TYPE_CHECKING:
    from stead.solvers import Budget, Search, Solution, Solver

WHOLE = "finished", "proved"  # ends of a search that no limit has cut short


class Answers:
    """Answers by problem, solver and seed; one that a limit cut, or would cut this time, is asked for anew."""

    def __init__(self) -> None:
        # With the evaluations that it took to find the answer, or to find that there is none.
        self._known: dict[tuple[Problem, Solver, int], tuple[Solution | Infeasible, int]] = {}

    def ask(self, solver: Solver, problem: Problem, budget: Budget, seed: int) -> Solution:
        """What the solver answers; that it finds nothing is raised, again if it is known."""
        key = problem, solver, seed
        try:
            answer, evaluations = self._known.get(key, (None, 0))
        except TypeError:  # a solver that cannot be told from others of its kind
            return solver.solve(problem, budget, seed)
        if answer is None or (budget.evaluations is not None and evaluations >= budget.evaluations):
            answer = self._asked(key, budget)
        if isinstance(answer, Infeasible):
            raise answer
        return answer

    def _asked(self, key: tuple[Problem, Solver, int], budget: Budget) -> Solution | Infeasible:
        problem, solver, seed = key
        searches: list[Search] = []
        try:
            found = solver.solve(problem, replace(budget, on_search=searches.append), seed)
        except Infeasible as error:
            if searches and searches[0].stopped_by in WHOLE:
                self._known[key] = error, searches[0].evaluations
            return error.with_traceback(None)
        if found.stopped_by in WHOLE:
            self._known[key] = found, found.evaluations
        return found
