"""Search on coarser graphs."""

from __future__ import annotations

import numpy as np
import pytest

from stead.placing.loading import load
from stead.problem import Latency, Placement, Problem, ProgramOrder
from stead.sim import simulate
from stead.solvers import Budget
from stead.solvers.rules.simple import Single
from stead.solvers.search.coarse_to_fine import descend
from stead.solvers.search_state import Search
from stead.testing import two_towers
from stead.workloads.synthetic import synthetic


@pytest.fixture
def grid() -> Problem:
    return load(synthetic("lstm-grid", operators=400), "4x A100-80GB").problem(Latency())


def started(problem: Problem, budget: Budget) -> Search:
    """A search with an incumbent: everything on one device."""
    search = Search(problem, budget, solver="levels")
    search.try_solver(Single())
    return search


def test_what_is_handed_down_runs_in_its_order(grid: Problem) -> None:
    schedules = descend(started(grid, Budget()), share=0.5, effort=200)
    traces = [simulate(grid, Placement(grid, one.devices, ProgramOrder(one.order))) for one in schedules]
    assert len(traces) == 3
    assert all(trace.feasible for trace in traces)


def test_it_is_better_than_one_device(grid: Problem) -> None:
    search = started(grid, Budget())
    single = search.best_seconds
    descend(search, share=0.5, effort=200)
    assert search.best_seconds < single


def test_the_same_seed_gives_the_same_schedules(grid: Problem) -> None:
    one, other = (descend(started(grid, Budget(evaluations=400)), share=0.5, effort=200) for _ in range(2))
    assert all(np.array_equal(a.devices, b.devices) for a, b in zip(one, other, strict=True))


def test_no_more_evaluations_are_spent_than_allowed(grid: Problem) -> None:
    search = started(grid, Budget(evaluations=300))
    descend(search, share=0.5, effort=10_000)
    assert search.evaluations <= 300


def test_graphs_too_small_to_be_coarser_give_nothing() -> None:
    assert descend(started(two_towers(), Budget()), share=0.5, effort=200) == []


def test_without_time_to_cluster_nothing_is_tried(grid: Problem) -> None:
    search = started(grid, Budget(seconds=60.0))
    assert descend(search, share=1e-9, effort=200) == []
