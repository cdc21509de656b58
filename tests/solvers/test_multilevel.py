"""Clusters placed first, then refined from coarse to fine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import problems
from test_list_scheduling import ONE, priced, single_peak

from stead.errors import BadInput, Infeasible
from stead.problem import Problem, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Solver
from stead.solvers.build.chunks import Chunks
from stead.solvers.build.list_scheduling import Heft
from stead.solvers.build.multilevel import Multilevel
from stead.testing.contracts import SolverContract


class TestMultilevel(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Multilevel()


@pytest.mark.parametrize("objective", [None, Throughput()])
def test_it_is_never_worse_than_what_it_starts_from(objective: Throughput | None) -> None:
    problem = priced("inception", operators=200)
    if objective is not None:
        problem = problem.with_objective(objective)
    start = min(
        solver.solve(problem, ONE).objective_seconds for solver in (Chunks(rounds=1), Heft(average="mean"))
    )
    assert Multilevel().solve(problem, ONE).objective_seconds <= start


@given(problem=problems(training=True, colocate=True))
@settings(max_examples=20)
def test_answers_fit_or_say_what_is_missing(problem: Problem) -> None:
    try:
        found = Multilevel().solve(problem, ONE)
    except Infeasible:
        return
    assert simulate(problem, found.placement).feasible
    assert not found.placement.violations()


@pytest.mark.parametrize("training", [False, True])
def test_large_graphs_are_placed_by_clusters(training: bool) -> None:
    problem = priced("inception", operators=300, training=training)
    found = Multilevel(base=64, sweeps=1).solve(problem, ONE)
    assert simulate(problem, found.placement).objective_seconds == found.objective_seconds


def test_clusters_are_made_to_fit() -> None:
    ample = priced("lstm-grid", operators=300, training=True)
    tight = priced("lstm-grid", int(single_peak(ample) * 0.6), operators=300, training=True)
    assert simulate(tight, Multilevel(base=64).solve(tight, ONE).placement).feasible


@pytest.mark.parametrize("evaluations", [1, 5, 30])
def test_evaluations_are_kept_when_clusters_are_placed(evaluations: int) -> None:
    problem = priced("inception", operators=300)
    found = Multilevel(base=64).solve(problem, Budget(evaluations=evaluations))
    assert 0 < found.evaluations <= evaluations


@pytest.mark.parametrize("bad", [{"base": 1}, {"sweeps": 0}])
def test_options_are_checked(bad: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        Multilevel(**bad)  # type: ignore[arg-type]


def test_it_spreads_branches() -> None:
    problem = priced("inception", operators=200)
    assert len(np.unique(Multilevel().solve(problem, ONE).placement.devices)) > 1
