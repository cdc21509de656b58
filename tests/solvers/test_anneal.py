"""anneal: placements without contiguity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_pipelines import NO_DATA, published

from stead import _native
from stead.errors import BadInput
from stead.problem import Latency, Load, Problem, Throughput
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim import simulate
from stead.solvers import Budget, Solver
from stead.solvers.exact.exhaustive import Exhaustive
from stead.solvers.search.anneal import Anneal
from stead.testing import chain3, diamond, tiny_problem, two_towers
from stead.testing.contracts import SolverContract


class TestAnneal(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Anneal(moves=20_000)


@pytest.mark.parametrize("load", ["sum", "overlap", "duplex", "fwbw"])
@pytest.mark.parametrize("make", [chain3, diamond, two_towers])
def test_tiny_problems_are_solved(make: Callable[[Throughput], Problem], load: Load) -> None:
    problem = make(Throughput(load))
    best = Exhaustive().solve(problem, Budget()).objective_seconds
    assert Anneal(moves=5000).solve(problem, Budget()).objective_seconds == best


def test_a_device_may_hold_both_ends_of_a_chain() -> None:
    # 3 + 1 and 4 s, where any cut of the chain leaves at least 7 on one side; a crossing takes 2.5 s, paid twice.
    problem = tiny_problem({"a": 30, "b": 40, "c": 10}, {"b": ["a"], "c": ["b"]}, objective=Throughput())
    solution = Anneal(moves=5000).solve(problem, Budget())
    assert solution.objective_seconds == 45.0
    assert solution.placement.devices[0] == solution.placement.devices[2]


def test_few_evaluations_allow_few_moves() -> None:
    solution = Anneal(moves_per_evaluation=10).solve(two_towers(Throughput()), Budget(evaluations=40))
    assert solution.evaluations <= 40


def test_latency_is_refused() -> None:
    for objective in (Latency(), Throughput(microbatches=4)):
        problem = chain3(objective)
        assert "load" in (Anneal().unsupported(problem) or "")
        with pytest.raises(BadInput, match="does not apply"):
            Anneal().solve(problem, Budget())


@NO_DATA
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "known_ms"),
    [
        ("LayerGraphs/bert24_training", 39.78953888),  # proved optimal
        ("OperatorGraphs/bert_l-3_inference", 21.90837611),  # proved optimal
        ("LayerGraphs/gnmt_inference", 31.68731055),
    ],
)
def test_published_inputs_reach_the_best_known_values(name: str, known_ms: float) -> None:
    problem = published(name)
    solution = Anneal(moves=3_000_000).solve(problem, Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(known_ms, rel=1e-3)
    assert solution.objective_seconds * 1e3 > known_ms * (1 - 1e-6)
    assert simulate(problem, solution.placement).feasible


@NO_DATA
def test_chains_that_sharpen_find_where_cuts_are_cheap() -> None:
    """With loads to the power of 16 from the beginning the same moves end at 29.383 ms."""
    problem = published("OperatorGraphs/bert_l-6_inference")
    nothing = np.zeros((0, problem.unit_count), dtype=np.uint8)
    found = _native.balance(
        problem.native, problem.units, load="sum", starts=nothing, restarts=6, seed=100, moves=8_000_000
    )
    assert found.ticks / TICKS_PER_SECOND < 28.4e-3


def test_the_number_of_threads_changes_nothing() -> None:
    problem = two_towers(Throughput())
    one, two = (Anneal(moves=20_000, threads=n).solve(problem, Budget(), 5).placement for n in (1, 2))
    assert np.array_equal(one.devices, two.devices)
