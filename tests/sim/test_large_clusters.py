"""Clusters of more than 64 devices: the core and the specification agree bit for bit, and bounds by classes hold."""

from __future__ import annotations

import numpy as np
import pytest
from hand import ask
from numpy.typing import NDArray

from stead import _native
from stead.cluster import Cluster, Device, Level
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.problem import (
    Fifo,
    Latency,
    Objective,
    Placement,
    Policy,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.problem.in_ticks import Tables
from stead.sim import lower_bounds, simulate, simulate_many
from stead.sim.spec.loads import loads, sequential
from stead.sim.spec.memory import standing_peaks

COUNTS = (65, 128, 260)


def large(seed: int, devices: int, *, objective: Objective | None = None, shared: bool = True) -> Problem:
    """A random graph on two classes of devices in nodes of five; equal devices share columns of costs or do not."""
    rng = np.random.default_rng(seed)
    build, tensors = GraphBuilder("random"), []
    operators = []
    for v in range(60):
        read = {int(t) for t in rng.integers(max(0, v - 12), v, 2)} if v else set()
        operators.append(build.operator(f"v{v}", reads=[tensors[t] for t in sorted(read)]))
        tensors.append(build.tensor(operators[v], size_bytes=int(rng.choice([0, 1000, 4000, 12345])), kept=v % 17 == 0))
    for w in range(8):
        users = sorted({int(v) for v in rng.integers(0, 60, 3)})
        build.weight(f"w{w}", size_bytes=1000 * (w + 1), users=[operators[v] for v in users])
    graph = build.build()
    cluster = Cluster(
        tuple(Device(f"d:{d}", memory_bytes=int(rng.choice([9_000, 2**40]))) for d in range(devices)),
        levels=(Level("node", 5, 7.6e9, 1e-6, 5e-7), Level("cluster", -(-devices // 5) * 5, 1e9, 2.5e-6)),
        contention=("link", "pair", "sender", "receiver", "bus", "none")[seed % 6],  # type: ignore[arg-type]
    )
    columns = rng.integers(0, 2, devices)
    columns[:2] = 0, 1
    seconds = rng.choice([0.0, 1e-6, 2e-6, 1.23456789012345e-6], (60, 2))
    workspace = rng.choice([0, 300, 5000], (60, 2))
    if not shared:
        seconds, workspace, columns = seconds[:, columns], workspace[:, columns], np.arange(devices)
    costs = Costs(graph, cluster, seconds, workspace_bytes=workspace, columns=columns)
    return Problem(graph, cluster, costs, objective=objective)


def drawn(seed: int, problem: Problem) -> NDArray[np.uint16]:
    rng = np.random.default_rng([seed, 1])
    return rng.integers(0, len(problem.cluster), len(problem.graph)).astype(np.uint16)


def policies(problem: Problem, on: NDArray[np.uint16], seed: int) -> list[Policy]:
    graph, rng = problem.graph, np.random.default_rng([seed, 2])
    count, devices = len(graph), len(problem.cluster)
    items: list[int] = []
    for v in range(count):  # every transfer right before its first reader
        for t in graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist():
            item = count + t * devices + int(on[v])
            if on[graph.tensor_producer[t]] != on[v] and item not in items:
                items.append(item)
        items.append(v)
    return [
        Fifo(),
        Priority(rng.permutation(count).astype(np.int32)),
        Priority(rng.permutation(count).astype(np.int32), rng.permutation(graph.tensor_count).astype(np.int32)),
        ProgramOrder(np.arange(count, dtype=np.int32)),
        ProgramOrder(np.array(items, dtype=np.int32), sends=True),
    ]


@pytest.mark.parametrize("devices", COUNTS)
@pytest.mark.parametrize("seed", range(6))
def test_the_core_agrees_with_the_specification(devices: int, seed: int) -> None:
    problem = large(seed, devices)
    on = drawn(seed, problem)
    for policy in policies(problem, on, seed):
        assert ask("native", problem, on, policy) == ask("reference", problem, on, policy)


@pytest.mark.parametrize("devices", COUNTS)
def test_loads_and_runs_one_by_one_agree_with_the_specification(devices: int) -> None:
    problem = large(1, devices, objective=Throughput())
    on, tables = drawn(1, problem), Tables(problem)
    found, expected = _native.loads_many(problem.native, on[None, :]), loads(tables, on.tolist())
    assert found.compute_ticks[0].tolist() == expected.compute
    assert found.received_ticks[0].tolist() == expected.received
    assert found.sent_ticks[0].tolist() == expected.sent
    peaks = simulate_many(problem, on[None, :], memory="peak").peak_bytes[0]
    assert peaks.tolist() == standing_peaks(tables, on.tolist())
    in_turn = problem.with_objective(Latency("sequential"))
    assert simulate_many(in_turn, on[None, :]).ticks[0] == sequential(Tables(in_turn), on.tolist()).makespan


def test_shared_columns_change_nothing_but_memory() -> None:
    small, whole = large(3, 128), large(3, 128, shared=False)
    on = drawn(3, small)
    assert small.costs.column_seconds.shape == (60, 2)
    assert np.array_equal(small.costs.seconds, whole.costs.seconds)
    assert np.array_equal(small.allowed, whole.allowed)
    one, other = (simulate(problem, Placement(problem, on)) for problem in (small, whole))
    assert one.objective_ticks == other.objective_ticks
    assert one.peak_bytes.tolist() == other.peak_bytes.tolist()
    assert [bound.seconds for bound in lower_bounds(small)] == [bound.seconds for bound in lower_bounds(whole)]


def test_no_random_placement_beats_the_bounds_by_classes() -> None:
    for seed in range(4):
        for objective in (Latency(), Throughput(), Latency("sequential")):
            problem = large(seed, 65, objective=objective)
            rows = np.random.default_rng(seed).integers(0, 65, (200, 60)).astype(np.uint8)
            rows[:65] = np.arange(65, dtype=np.uint8)[:, None]  # everything on one device, too
            least = float(simulate_many(problem, rows, memory="off").seconds.min())
            bounds = lower_bounds(problem)
            assert bounds
            assert all(0 <= bound.seconds <= least for bound in bounds)


def test_what_takes_few_devices_refuses_more() -> None:
    problem = large(0, 65)
    with pytest.raises(ValueError, match="list scheduling takes at most 64 devices, got 65"):
        _native.list_schedules(problem.native, problem.units, variants=[], limit_bytes=problem.limit_bytes)
    with pytest.raises(TypeError, match="uint8 or uint16"):
        _native.simulate(problem.native, np.zeros(60, np.int64))
    with pytest.raises(BadInput, match="no device 65"):
        simulate_many(problem, np.full((1, 60), 65, np.uint16))
