"""place(): from a model and devices to a plan."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import stead
from stead.errors import BadInput
from stead.placing.attempt import BASELINES
from stead.placing.place import place_problem, run_baselines
from stead.problem import Problem
from stead.solvers import Budget, Solution
from stead.testing import chain3, two_towers
from stead.workloads.demo import demo_graph


def test_a_graph_and_a_device_string_give_a_plan() -> None:
    plan = stead.place(demo_graph(), "3090,3060", objective="latency", evaluations=300)
    assert plan.trace.feasible
    assert 0 < plan.solution.bound_seconds <= plan.solution.objective_seconds


def test_auto_is_never_worse_than_a_baseline() -> None:
    plan = stead.place(demo_graph(), "3090,3060", objective="throughput", evaluations=100)
    values = [rule.objective_seconds for rule in plan.baselines if rule.objective_seconds is not None]
    assert plan.solution.objective_seconds <= min(values)


def test_every_baseline_has_a_value_or_a_reason() -> None:
    rules = run_baselines(chain3())
    assert [rule.name for rule in rules] == ["single:d0", "single:d1", *BASELINES]
    assert all((rule.objective_seconds is None) == bool(rule.reason) for rule in rules)


def test_a_model_without_devices_asks_for_them() -> None:
    with pytest.raises(BadInput, match="add --devices"):
        stead.place(demo_graph())


def test_an_unknown_objective_is_refused() -> None:
    with pytest.raises(BadInput, match="latency or throughput"):
        stead.place(demo_graph(), "3090", objective="speed")


@dataclass(frozen=True)
class Interrupted:
    """A solver whose user loses patience at once."""

    name: str = "interrupted"

    def unsupported(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        raise KeyboardInterrupt


def test_an_interrupted_solver_leaves_the_best_baseline() -> None:
    plan = place_problem(two_towers(), solver=Interrupted())
    best = min(rule.objective_seconds for rule in plan.baselines if rule.objective_seconds is not None)
    assert plan.solution.interrupted
    assert plan.solution.objective_seconds == best


def test_the_bound_stands_beside_every_answer_of_any_solver() -> None:
    plan = place_problem(two_towers(), solver="round-robin")
    assert (plan.solution.bound_seconds, plan.solution.bound_name) == (7.5, "crowded path")


def test_rules_for_which_no_time_is_left_say_so() -> None:
    rules = run_baselines(chain3(), seconds=-1.0)
    assert {rule.reason for rule in rules} == {"left out: no time"}
