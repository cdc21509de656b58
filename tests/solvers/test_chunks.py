"""Consecutive chunks of equal work, mirrored for training."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from strategies import problems

from stead.errors import BadInput, Infeasible
from stead.problem import Constraints, Problem
from stead.sim import simulate
from stead.solvers import Budget, Solver
from stead.solvers.build.chunks import Chunks
from stead.testing import chain3, tiny_problem
from stead.testing.contracts import SolverContract

ONE = Budget()


class TestChunks(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Chunks()


def chain(length: int, *, devices: int = 2) -> Problem:
    """Operators v0 -> v1 -> ... of one second each."""
    names = [f"v{i}" for i in range(length)]
    return tiny_problem(dict.fromkeys(names, 1.0), {b: [a] for a, b in pairwise(names)}, devices=devices)


def devices_of(solver: Chunks, problem: Problem) -> list[int]:
    return [int(d) for d in solver.solve(problem, ONE).placement.devices]


def test_a_chain_is_halved() -> None:
    assert devices_of(Chunks(order="index", rounds=1), chain(6)) == [0, 0, 0, 1, 1, 1]


def test_rounds_deal_pieces_in_turn() -> None:
    assert devices_of(Chunks(order="index", rounds=2), chain(8)) == [0, 0, 1, 1, 0, 0, 1, 1]


def test_heavy_operators_make_a_chunk_short() -> None:
    problem = tiny_problem({"a": 3, "b": 1, "c": 1, "d": 1}, {"b": ["a"], "c": ["b"], "d": ["c"]})
    assert devices_of(Chunks(order="index", rounds=1), problem) == [0, 1, 1, 1]


def test_what_may_not_be_in_its_chunk_goes_elsewhere() -> None:
    problem = chain(6).with_constraints(Constraints(pin=(("v0", "d1"),)))
    assert devices_of(Chunks(order="index", rounds=1), problem) == [1, 0, 0, 1, 1, 1]


@given(problem=problems(training=True, colocate=True))
@settings(max_examples=30)
def test_answers_fit_or_say_what_is_missing(problem: Problem) -> None:
    try:
        found = Chunks().solve(problem, ONE)
    except Infeasible:
        return
    assert simulate(problem, found.placement).feasible
    assert not found.placement.violations()


@pytest.mark.parametrize("bad", [{"order": "size"}, {"rounds": -1}])
def test_options_are_checked(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Chunks(**bad)  # type: ignore[arg-type]


def test_one_device_gets_everything() -> None:
    assert devices_of(Chunks(devices="d0"), chain3()) == [0, 0, 0]
