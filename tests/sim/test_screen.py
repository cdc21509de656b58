"""The screen: program_order for many placements at once, with 32-bit time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import problems, topological_orders

from stead import _native
from stead.cluster import Cluster, Device, Link
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder
from stead.problem import Latency, Problem, ProgramOrder
from stead.sim import screen_many, simulate_many

TOLERANCE = 3e-6  # relative


def layered(operators: int, seed: int) -> Graph:
    """Layers of ten operators that read from the layers before; every other operator has two outputs."""
    random = np.random.default_rng(seed)
    build = GraphBuilder("layered")
    tensors: list[Any] = []
    for v in range(operators):
        near = tensors[max(0, len(tensors) - 30) : max(0, len(tensors) - 5)]
        reads = {int(i) for i in random.integers(0, len(near), 2)} if near else set()
        operator = build.operator(f"v{v}", reads=[near[i] for i in sorted(reads)])
        tensors += [
            build.tensor(operator, size_bytes=int(random.integers(0, 10**6))) for _ in range(1 + v % 2)
        ]
    return build.build()


def clustered(graph: Graph, devices: int, contention: str, *, uniform: bool, scale: float = 1e-4) -> Problem:
    """`graph` on devices and links that are all alike or all different."""
    random = np.random.default_rng(devices)
    names = [f"d{d}" for d in range(devices)]
    links = tuple(
        Link(
            a,
            b,
            5e9 if uniform else random.uniform(1e9, 9e9),
            1e-5 if uniform else random.uniform(0, 2e-5),
            1e-6,
        )
        for a in names
        for b in names
        if a != b
    )
    cluster = Cluster(
        tuple(Device(name, kind="gpu", memory_bytes=2**40) for name in names), links, contention=contention
    )
    seconds = random.uniform(0, scale, (len(graph), devices)) * (random.random((len(graph), 1)) > 0.25)
    seconds = np.repeat(seconds[:, :1], devices, axis=1) if uniform else seconds
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Latency())


def random_rows(problem: Problem, rows: int, seed: int = 0) -> NDArray[np.uint8]:
    """Half of the rows are neighbours of one placement, half are random."""
    random = np.random.default_rng(seed)
    shape = (rows, len(problem.graph))
    anything = random.integers(0, len(problem.cluster), shape, dtype=np.uint8)
    keep = random.random(shape) < np.where(np.arange(rows) % 2, 0.98, 0.0)[:, None]
    return np.where(keep, anything[:1], anything)


def exact(problem: Problem, rows: NDArray[np.uint8], order: NDArray[np.int32]) -> NDArray[np.float64]:
    return simulate_many(problem, rows, policy=ProgramOrder(order), memory="off").seconds


def index_order(problem: Problem) -> NDArray[np.int32]:
    return np.arange(len(problem.graph), dtype=np.int32)


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("contention", ["none", "link", "pair", "sender", "receiver", "bus"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 6, 8, 11])
def test_it_agrees_with_program_order_on_instructions_of_any_width(
    devices: int, contention: str, uniform: bool
) -> None:
    problem = clustered(layered(333, seed=devices), devices, contention, uniform=uniform)
    rows, order = random_rows(problem, 77), index_order(problem)
    screened = screen_many(problem, rows, order=order)
    np.testing.assert_allclose(screened, exact(problem, rows, order), rtol=TOLERANCE)
    narrow = _native.screen_many(problem.native, rows, order=order, baseline=True)
    np.testing.assert_array_equal(screened, narrow)


@given(problems(), st.data(), st.integers(1, 40))
def test_it_agrees_with_program_order_on_whatever_a_simulator_may_trip_over(
    problem: Problem, data: st.DataObject, rows: int
) -> None:
    order = data.draw(topological_orders(problem.graph))
    placements = random_rows(problem, rows, seed=data.draw(st.integers(0, 99)))
    expected = exact(problem, placements, order)
    screened = screen_many(problem, placements, order=order)
    np.testing.assert_array_equal(np.isinf(screened), np.isinf(expected))  # cannot run
    finite = np.isfinite(expected)
    # Nothing here is longer than 2**30 ps, so ticks are picoseconds; one may differ where a half is rounded.
    np.testing.assert_allclose(screened[finite], expected[finite], rtol=TOLERANCE, atol=3e-12)
    narrow = _native.screen_many(problem.native, placements, order=order, baseline=True)
    np.testing.assert_array_equal(screened, narrow)


def test_the_value_of_a_row_does_not_depend_on_its_neighbours_or_on_threads() -> None:
    problem = clustered(layered(200, seed=1), 4, "sender", uniform=False)
    rows, order = random_rows(problem, 101), index_order(problem)
    together = screen_many(problem, rows, order=order, threads=1)
    for threads in (0, 2, 7):
        np.testing.assert_array_equal(screen_many(problem, rows, order=order, threads=threads), together)
    for b in (0, 31, 32, 100):
        assert screen_many(problem, rows[b : b + 1], order=order)[0] == together[b]


def test_errors_of_equal_operators_do_not_add_up() -> None:
    """With ticks of about a nanosecond, 0.3 of one in every operator would be 2e-4 of the chain."""
    build = GraphBuilder("chain")
    tensor = build.tensor(build.operator("v0"), size_bytes=10**9)
    for v in range(1, 1000):
        tensor = build.tensor(build.operator(f"v{v}", reads=[tensor]), size_bytes=10**9)
    graph = build.build()
    problem = clustered(graph, 2, "link", uniform=True)
    problem = Problem(graph, problem.cluster, Costs(graph, problem.cluster, np.full((1000, 2), 0.01234567)))
    rows, order = random_rows(problem, 40), index_order(problem)
    rows[0] = 0
    np.testing.assert_allclose(
        screen_many(problem, rows, order=order), exact(problem, rows, order), rtol=TOLERANCE
    )


def test_a_schedule_that_is_short_for_its_problem_is_simulated_exactly() -> None:
    """One device needs 2 us, but sending the tensor would take 100 s: far too much for 32 bits of either."""
    build = GraphBuilder("pair")
    tensor = build.tensor(build.operator("a"), size_bytes=5 * 10**11)
    build.operator("b", reads=[tensor])
    graph = build.build()
    cluster = clustered(graph, 2, "link", uniform=True).cluster
    problem = Problem(graph, cluster, Costs(graph, cluster, np.full((2, 2), 1e-6)))
    rows = np.array([[0, 0], [0, 1]], dtype=np.uint8)
    seconds = screen_many(problem, rows, order=index_order(problem))
    np.testing.assert_allclose(seconds, [2e-6, 100 + 1.2e-5], rtol=1e-7)


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 2], [2, 1, 0], [0, 1, 3]])
def test_an_order_that_is_not_topological_is_refused(order: list[int]) -> None:
    build = GraphBuilder("chain")
    tensor = build.tensor(build.operator("v0"), size_bytes=8)
    for v in (1, 2):
        tensor = build.tensor(build.operator(f"v{v}", reads=[tensor]), size_bytes=8)
    problem = clustered(build.build(), 2, "link", uniform=True)
    with pytest.raises(BadInput):
        screen_many(problem, np.zeros((1, 3), dtype=np.uint8), order=np.array(order, dtype=np.int32))


def test_a_device_out_of_range_is_named_with_row_and_operator() -> None:
    problem = clustered(layered(20, seed=0), 4, "link", uniform=True)
    rows = random_rows(problem, 50)
    rows[40, 7] = 4
    with pytest.raises(ValueError, match="row 40: operator 7 is on device 4"):
        _native.screen_many(problem.native, rows, order=index_order(problem), threads=3)
