"""A time limit at 50,000 operators: what every solver takes beyond it; minutes, so with STEAD_SLOW=1 alone.

All threads share one core here and the clock is the CPU time of the process: work in other threads counts, the load of
the machine does not.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache

import pytest
from goals import NAMES, OBJECTIVES, PAIRS

from stead import clock
from stead.errors import Infeasible
from stead.graph import Graph, GraphBuilder
from stead.placing.loading import load
from stead.problem import Latency, Problem
from stead.solvers import Budget, solver
from stead.workloads import synthetic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept on one core here"),
]
OPERATORS = 50_000
LIMIT_SECONDS, GRACE_SECONDS = 1.0, 1.0


@pytest.fixture(autouse=True)
def one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    with clock.read_from(time.process_time):
        yield
    os.sched_setaffinity(0, before)


@cache
def problem(objective: str) -> Problem:
    graph = synthetic("lstm-grid", operators=OPERATORS, training=objective != "offload")
    return load(graph, "3090,3060,cpu").problem(OBJECTIVES[objective])


@cache
def wide_problem() -> Problem:
    """As many operators side by side, on many devices."""
    build = GraphBuilder("star")
    read = build.tensor(build.operator("first", flops=1e6), size_bytes=1000)
    written = [
        build.tensor(build.operator(f"v{v}", reads=[read], flops=1e9 * (1 + v % 7)), size_bytes=1000)
        for v in range(OPERATORS - 2)
    ]
    build.operator("last", reads=written, flops=1e6)
    return load(build.build(), "60x A100-80GB").problem(Latency())


def tied_graph() -> Graph:
    """A chain in which every operator of the first half shares its weight with one of the second."""
    build, operators = GraphBuilder("ties"), []
    reads = []
    for v in range(OPERATORS):
        operators.append(build.operator(f"m{v // 100}.l{v}.x", reads=reads, flops=1e9))
        reads = [build.tensor(operators[-1], size_bytes=1000)]
    for v in range(OPERATORS // 2):
        build.weight(f"w{v}", size_bytes=2_000_000, users=[operators[v], operators[v + OPERATORS // 2]])
    return build.build()


@cache
def tied_problem() -> Problem:
    return load(tied_graph(), "3090,3060,cpu").problem(Latency())


def check(name: str, given: Problem) -> None:
    """A solver ends within a second of its limit, with a placement or without; so it does if it refuses."""
    chosen = solver(name)
    begin = time.process_time()
    if chosen.unsupported(given) is None:
        with suppress(Infeasible):
            chosen.solve(given, Budget(LIMIT_SECONDS), 0)
    assert time.process_time() - begin < LIMIT_SECONDS + GRACE_SECONDS


@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_no_solver_works_longer_than_a_second_beyond_its_limit(name: str, objective: str) -> None:
    check(name, problem(objective))


@pytest.mark.parametrize("name", NAMES)
def test_many_devices_and_operators_side_by_side_make_no_solver_late(name: str) -> None:
    check(name, wide_problem())


@pytest.mark.parametrize("name", NAMES)
def test_many_shared_weights_make_no_solver_late(name: str) -> None:
    check(name, tied_problem())
