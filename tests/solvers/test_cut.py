"""The cut over the work order: the quickest construction that uses every device."""

from __future__ import annotations

import pytest
from test_chunks import chain

from stead.costs import Costs
from stead.errors import BadInput
from stead.problem import Problem, Throughput
from stead.solvers import Budget, Solver
from stead.solvers.build.cut import Cut
from stead.testing import tiny_problem, two_towers
from stead.testing.contracts import SolverContract


class TestCut(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Cut()


def test_depth_first_a_tower_goes_to_each_device() -> None:
    solution = Cut(rounds=1).solve(two_towers(), Budget())
    assert solution.objective_seconds == 7.5
    assert solution.placement.devices.tolist() in ([0, 1, 0, 1, 0], [0, 1, 0, 1, 1])


def test_a_device_that_is_three_times_as_fast_gets_three_quarters() -> None:
    problem = tiny_problem(dict.fromkeys("abcd", 1.0), {})
    costs = Costs(problem.graph, problem.cluster, problem.costs.seconds / [3.0, 1.0])
    faster = Problem(problem.graph, problem.cluster, costs)
    devices = Cut(rounds=1).solve(faster, Budget()).placement.devices
    assert sorted(devices.tolist()) == [0, 0, 0, 1]


def test_every_cut_is_scored_once() -> None:
    found = Cut(rounds=1).solve(chain(6), Budget())
    assert found.evaluations == 1 + 3  # a chain has one order and so one cut; the best one also runs in three orders


def test_it_also_builds_stages_of_a_pipeline() -> None:
    assert Cut(rounds=1).solve(chain(6).with_objective(Throughput()), Budget()).objective_seconds == 3 + 2.5


def test_a_negative_number_of_rounds_is_refused() -> None:
    with pytest.raises(BadInput, match="0 rounds or more"):
        Cut(rounds=-1)
