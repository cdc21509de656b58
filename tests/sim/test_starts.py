"""Start times of many placements equal those of traces."""

from __future__ import annotations

import numpy as np
import pytest

from stead.problem import Latency, Placement, PlacetoDispatch, Priority, Throughput
from stead.sim import StartTimes, simulate, simulate_many
from stead.sim.core_calls import placeto_graph
from stead.sim.published_placeto import simulate_placeto
from stead.testing import diamond, two_towers


@pytest.mark.parametrize("objective", [Latency(), Latency(policy=Priority())])
def test_starts_and_ends_are_those_of_a_trace(objective: Latency) -> None:
    problem = two_towers(objective)
    rows = np.random.default_rng(0).integers(0, 2, (16, 5)).astype(np.uint8)
    start, finish = StartTimes(problem).of(rows)
    for n, row in enumerate(rows):
        trace = simulate(problem, Placement(problem, row))
        assert start[n].tolist() == trace.start_seconds.tolist()
        assert finish[n].tolist() == trace.finish_seconds.tolist()


@pytest.mark.parametrize("memory_bytes", [2**40, 5])
def test_one_run_tells_value_and_times(memory_bytes: int) -> None:
    problem = two_towers().with_memory("d1", memory_bytes)
    rows = np.array(list(np.ndindex(2, 2, 2, 2, 2)), dtype=np.uint8)
    times = StartTimes(problem)
    scores, start, finish = times.scored(rows)
    plain = simulate_many(problem, rows, memory="peak")
    for name in ("ticks", "seconds", "status", "peak_bytes"):
        assert np.array_equal(getattr(scores, name), getattr(plain, name))
    assert np.array_equal(start, times.of(rows)[0])
    assert np.array_equal(finish, times.of(rows)[1])
    assert (scores.over_bytes.max(axis=1) > 0).tolist() == (scores.status == 1).tolist()


def test_the_published_simulator_has_start_times_too() -> None:
    problem = diamond(Latency(policy=PlacetoDispatch()))
    start, finish = StartTimes(problem).of(np.array([[0, 1, 0, 1]], dtype=np.uint8))
    found = simulate_placeto(placeto_graph(problem), [0, 1, 0, 1], 2)
    assert np.array_equal(start[0], found.start_us * 1e-6)
    assert np.array_equal(finish[0] - start[0], problem.costs.seconds[:, 0])


def test_throughput_shows_the_time_line_of_fifo() -> None:
    rows = np.array([[0, 1, 0, 1, 0]], dtype=np.uint8)
    assert StartTimes(two_towers(Throughput())).of(rows)[0].tolist() == [[0.0, 0.0, 2.0, 2.0, 6.5]]


def test_a_row_that_cannot_run_has_no_times() -> None:
    from stead.problem import Constraints

    problem = two_towers().with_constraints(Constraints(pin=(("l1", "d0"),)))
    rows = np.array([[1, 1, 1, 1, 1]], dtype=np.uint8)
    assert not StartTimes(problem).of(rows)[1].any()
