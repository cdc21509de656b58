"""Local search on calls of accelerators."""

from __future__ import annotations

import numpy as np
import pytest
from small_offloads import calls, published, published_problem

from stead.problem import Problem
from stead.solvers import Budget
from stead.solvers.auto import Auto
from stead.solvers.exact.exhaustive import Exhaustive
from stead.solvers.exact.offload import reduced_calls
from stead.solvers.search.call_moves import CallMoves, improve_calls
from stead.solvers.search_state import Search


def drawn(seed: int) -> Problem:
    """Eight operators on a CPU and two accelerators that hold half of them each."""
    rng = np.random.default_rng(seed)
    seconds = [(float(cpu), float(accelerator)) for cpu, accelerator in rng.integers(1, 12, (8, 2))]
    reads = {v: sorted({int(u) for u in rng.integers(0, v, 2)}) for v in range(1, 8)}
    return calls(seconds, reads, room=40)


def begun(problem: Problem, budget: Budget, seed: int = 0) -> Search:
    """A search whose incumbent has all operators on the CPU."""
    search = Search(problem, budget, solver="calls", seed=seed)
    search.offer(np.zeros(len(problem.graph), dtype=np.uint8), found_by="start")
    return search


def improved(problem: Problem, *, patience: int, part: int = 0, seed: int = 0) -> Search:
    search = begun(problem, Budget(), seed)
    improve_calls(search, reduced_calls(problem), patience=patience, part=part)
    return search


@pytest.mark.parametrize("seed", range(12))
def test_small_problems_are_solved_as_by_trying_everything(seed):
    best = Exhaustive().solve(drawn(seed), Budget())
    assert improved(drawn(seed), patience=4000).best_seconds == best.objective_seconds


def test_a_climb_alone_ends_before_that():
    behind = 0
    for seed in range(12):
        alone = improved(drawn(seed), patience=64)  # hardly more than one climb
        behind += alone.best_seconds > Exhaustive().solve(drawn(seed), Budget()).objective_seconds
    assert behind


def test_parts_draw_other_moves_and_a_seed_the_same_ones():
    def trail(part: int, seed: int = 0) -> tuple[tuple[int, float], ...]:
        found = improved(drawn(3), patience=500, part=part, seed=seed).solution()
        return tuple((step.evaluations, step.objective_seconds) for step in found.trail)

    assert trail(1) == trail(1)
    assert len({trail(part) for part in range(6)}) > 1


def test_the_limit_of_evaluations_holds_in_the_middle_of_a_batch():
    search = begun(drawn(0), Budget(evaluations=50))
    improve_calls(search, reduced_calls(drawn(0)), patience=10_000)
    assert search.evaluations == 50


def test_moves_keep_to_devices_that_run_an_operator():
    problem = calls([(2, np.inf), (3, 1), (np.inf, 1), (1, 1)], {1: [0], 2: [1], 3: [0, 2]})
    rng, allowed = np.random.default_rng(0), np.isfinite(problem.costs.seconds)
    for moves in (CallMoves.of_nodes(reduced_calls(problem)), CallMoves.of_units(problem)):
        devices = moves.devices(np.array([0, 1, 1, 0], dtype=np.uint8))
        rows = moves.lift(np.concatenate([moves.neighbours(devices, rng) for _ in range(20)]))
        assert len(np.unique(rows, axis=0)) > 1
        assert allowed[np.arange(4), rows].all()


@published
def test_auto_goes_on_where_offload_linear_ends():
    """1270.5 ms is where climbing stayed, for 20 seconds and more."""
    problem = published_problem("LayerGraphs/inceptionv3_inference")
    found = Auto().solve(problem, Budget(evaluations=12_000))
    assert found.objective_seconds <= 1.263
