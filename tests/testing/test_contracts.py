"""The contract of solvers catches what it is meant to catch, and says how to repair it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stead.problem import Placement, Problem
from stead.solvers import Budget, Search, Solution
from stead.solvers.rules.simple import Single
from stead.testing.contracts import (
    check_answers,
    check_infeasible,
    check_refusals,
    check_same_seed,
    check_solver,
    tiny_problems,
)

CALLS: list[int] = []


@dataclass(frozen=True)
class Faulty:
    """Everything on the first device, with one fault."""

    fault: str = ""

    @property
    def name(self) -> str:
        """The name it is called by."""
        return "faulty"

    def unsupported(self, problem: Problem) -> str | None:
        """Refuses in one word, or refuses what it solves."""
        return {"curt": "no", "refuses": "not today, thank you"}.get(self.fault)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """The fault at work."""
        CALLS.append(seed)
        if self.fault == "overfull":
            return Solution(Placement(problem, [0] * len(problem.graph)), 1.0)
        search = Search(problem, budget, solver=self.name, seed=seed)
        search.offer([len(CALLS) % 2 if self.fault == "moody" else 0] * len(problem.graph))
        found = search.solution()
        if self.fault == "boastful":
            return replace(found, objective_seconds=found.objective_seconds / 2)
        return replace(found, bound_seconds=2 * found.objective_seconds) if self.fault == "bold" else found


def test_a_sound_solver_passes() -> None:
    check_solver(Single())
    check_answers(Faulty(), tiny_problems())


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        ("boastful", "score placements with Search.offer"),
        ("bold", "the bound is greater than the value"),
    ],
)
def test_a_false_claim_is_caught(fault: str, advice: str) -> None:
    with pytest.raises(AssertionError, match=advice):
        check_answers(Faulty(fault), tiny_problems())


@pytest.mark.parametrize(
    ("fault", "advice"), [("curt", "a sentence that says why"), ("refuses", "but solves it")]
)
def test_a_refusal_must_be_a_sentence_and_meant(fault: str, advice: str) -> None:
    with pytest.raises(AssertionError, match=advice):
        check_refusals(Faulty(fault), tiny_problems())


def test_a_solver_must_not_depend_on_earlier_calls() -> None:
    with pytest.raises(AssertionError, match="keep nothing between calls"):
        check_same_seed(Faulty("moody"), tiny_problems()[:1])


def test_a_solver_must_not_return_what_does_not_fit() -> None:
    with pytest.raises(AssertionError, match="raise Infeasible"):
        check_infeasible(Faulty("overfull"))
