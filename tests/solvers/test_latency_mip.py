"""latency-mip: the integer program of calls."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from test_offload import OffloadContract, calls, chain_of_calls, published, published_problem

from stead.problem import Placement, Problem
from stead.problem.in_ticks import Tables
from stead.sim import simulate, simulate_many
from stead.sim.offload_run import pieces
from stead.solvers import Budget, Solver
from stead.solvers.exact.call_ideals import CallIdeals
from stead.solvers.exact.latency_mip import LatencyMip
from stead.solvers.exact.offload import reduced_calls
from stead.testing import chain3


class TestLatencyMip(OffloadContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return LatencyMip(program_seconds=5)


def random_calls(seed, *, units=True) -> Problem:
    """Five operators with ties, zero times, unsupported operators, colocation that may form cycles, room for two."""
    rng = np.random.default_rng(seed)
    seconds = [(float(rng.choice([0, 2, 5])), float(rng.choice([0, 1, 1, 3]))) for _ in range(5)]
    if rng.random() < 0.3:
        seconds[int(rng.integers(5))] = (3.0, np.inf)
    reads = {v: [u for u in range(v) if rng.random() < 0.45] for v in range(5)}
    colocate = {v: "x" for v in range(5) if units and rng.random() < 0.25}
    room = int(rng.choice([25, 35, 2**40]))
    return calls(seconds, reads, room=room, colocate=colocate, copy_bytes=int(rng.choice([0, 1])))


def best_values(problem, most_calls) -> tuple[float, float]:
    """The least seconds of all placements, and of those with at most so many calls per accelerator."""
    choices = [np.flatnonzero(row).tolist() for row in problem.unit_allowed]
    rows = np.array(list(product(*choices)), dtype=np.uint8)[:, problem.units]
    scores = simulate_many(problem, rows)
    tables = Tables(problem)
    overall = within = np.inf
    for row, fits, seconds in zip(
        rows.tolist(), scores.feasible.tolist(), scores.seconds.tolist(), strict=True
    ):
        if not fits:
            continue
        overall = min(overall, seconds)
        calls_made = [piece for piece, d in zip(pieces(tables, row), row, strict=True) if d > 0]
        if max(calls_made, default=0) < most_calls:
            within = min(within, seconds)
    return overall, within


def test_random_problems_are_solved_as_well_as_by_trying_everything():
    for seed in range(40):
        problem = random_calls(seed)
        overall, within = best_values(problem, 1)
        solution = LatencyMip().solve(problem, Budget())
        assert overall <= solution.objective_seconds <= within, seed
        assert solution.bound_seconds <= within, seed
        assert solution.gap == 0, seed
        if solution.scope == "":
            assert solution.objective_seconds == overall, seed


def labels_of(problem) -> CallIdeals:
    """Labels over nodes of a problem without units, all of which the first CPU may run."""
    reduced = reduced_calls(problem)
    host = next(d for d, device in enumerate(problem.cluster) if device.is_host)
    ticks = np.zeros(reduced.count, dtype=np.int64)
    np.add.at(ticks, reduced.node_of, np.rint(problem.costs.seconds[:, host] * 1e12).astype(np.int64))
    return CallIdeals(reduced, ticks.tolist(), [host] * reduced.count)


def test_labels_of_ideals_find_the_best_calls_and_prove_that_none_are_better():
    for seed in range(60):
        problem = random_calls(seed, units=False)
        _, within = best_values(problem, 1)
        labels, optimum = labels_of(problem), round(within * 1e12)
        found = labels.below(optimum + 1, most_steps=10**6, stop=lambda: False)
        assert found.complete, seed
        assert found.ticks == optimum, seed
        assert found.devices is not None
        devices = reduced_calls(problem).lift(found.devices)
        assert simulate(problem, Placement(problem, devices)).objective_ticks == optimum, seed
        nothing = labels.below(optimum, most_steps=10**6, stop=lambda: False)
        assert nothing.complete, seed
        assert nothing.devices is None, seed


def test_labels_stop_where_they_are_told_to():
    labels = labels_of(chain_of_calls())
    assert not labels.below(10**15, most_steps=3, stop=lambda: False).complete
    assert not labels.below(10**15, most_steps=10**6, stop=lambda: True).complete


def test_two_calls_per_accelerator_are_bounded_too():
    for seed in range(10):
        problem = random_calls(seed)
        _, within = best_values(problem, 2)
        solution = LatencyMip(subgraphs=2).solve(problem, Budget())
        assert solution.objective_seconds <= within, seed
        if problem.unit_count == len(problem.graph):
            assert solution.bound_seconds <= within, seed


def test_operators_of_a_unit_run_in_parallel_on_a_cpu():
    # a and b share a device and read nothing of each other: 3 s together on the CPU, 10 s on an accelerator.
    problem = calls([(3, 5), (3, 5)], {}, colocate={0: "x", 1: "x"})
    solution = LatencyMip().solve(problem, Budget())
    assert (solution.objective_seconds, solution.gap) == (3, 0)


def test_a_program_that_is_too_large_is_left_out_with_a_note():
    problem = calls([(5, 1), (5, 1), (5, 1), (5, 1)], {2: [0], 3: [1]}, room=15)
    solution = LatencyMip(max_literals=3).solve(problem, Budget())
    assert solution.gap == 0 or any("no program" in note for note in solution.notes)


def test_it_refuses_what_it_cannot_take():
    assert "offload" in str(LatencyMip().unsupported(chain3()))
    assert "subgraphs = 0" in str(LatencyMip(subgraphs=0).unsupported(chain_of_calls()))


@published
def test_bert24_is_proved_by_labels_alone():
    problem = published_problem("LayerGraphs/bert24_inference")
    verdict = labels_of(problem).below(100_218_500_000, most_steps=2_000, stop=lambda: False)
    assert verdict.complete
    assert verdict.devices is None
    found = labels_of(problem).below(100_218_500_001, most_steps=2_000, stop=lambda: False)
    assert found.ticks == 100_218_500_000


@published
def test_bert24_is_proved_without_any_program():
    solution = LatencyMip().solve(published_problem("LayerGraphs/bert24_inference"), Budget())
    assert solution.objective_seconds * 1e3 == pytest.approx(100.2185, rel=1e-9)
    assert (solution.gap, solution.scope) == (0, "")
