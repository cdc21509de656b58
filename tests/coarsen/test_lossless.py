"""Contractions that keep the optimum: by hand, and against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stead.cluster import Cluster, Device, Link, link_all
from stead.coarsen import Grouping, lossless, memory_suffices, unit_groups
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import PHASES, GraphBuilder
from stead.problem import Latency, Objective, Placement, Problem, Throughput
from stead.sim import simulate, simulate_many
from stead.testing import chain3, diamond, tiny_cluster, tiny_problem, two_towers

SEQUENTIAL = Latency(execution="sequential")
LOADS = [Throughput(load=load) for load in ("sum", "overlap", "duplex", "fwbw")]
CASES = 200


def pair(first: list[float], second: list[float], objective: Objective) -> Problem:
    """a -> b, a crossing takes 2.5 s."""
    graph = tiny_problem({"a": 0, "b": 0}, {"b": ["a"]}).graph
    cluster = tiny_cluster()
    return Problem(graph, cluster, Costs(graph, cluster, [first, second]), objective=objective)


def value(problem: Problem, *devices: int) -> float:
    return simulate(problem, Placement(problem, devices)).objective_seconds


def test_equal_devices_leave_nothing_to_separate_in_sequence() -> None:
    for problem in (chain3(SEQUENTIAL), diamond(SEQUENTIAL), two_towers(SEQUENTIAL)):
        assert len(lossless(problem)) == 1


def test_a_crossing_that_pays_off_stays_possible() -> None:
    apart = pair([1, 10], [10, 1], SEQUENTIAL)  # 1 + 2.5 + 1 apart, 11 together
    assert (value(apart, 0, 1), value(apart, 0, 0)) == (4.5, 11)
    assert len(lossless(apart)) == 2
    assert len(lossless(pair([1, 3], [3, 1], SEQUENTIAL))) == 1  # 4.5 apart, 4 together


def test_a_light_operator_joins_its_only_neighbour() -> None:
    light, heavy = pair([2, 2], [5, 5], Throughput()), pair([3, 3], [5, 5], Throughput())
    assert (value(light, 0, 1), value(light, 0, 0)) == (7.5, 7)
    assert (value(heavy, 0, 1), value(heavy, 0, 0)) == (7.5, 8)
    assert (len(lossless(light)), len(lossless(heavy))) == (1, 2)


def test_work_never_grows_where_it_overlaps_with_transfers() -> None:
    for load in ("overlap", "duplex"):
        problem = pair([2, 2], [5, 5], Throughput(load=load))
        assert (value(problem, 0, 1), value(problem, 0, 0)) == (5, 7)
        assert len(lossless(problem)) == 2
        assert len(lossless(pair([0, 0], [5, 5], Throughput(load=load)))) == 1


def test_the_middle_of_a_chain_joins_the_heavier_tensor() -> None:
    build = GraphBuilder()
    x = build.operator("x")
    g = build.operator("g", reads=[build.tensor(x, size_bytes=2)])  # 1.5 s
    build.operator("h", reads=[build.tensor(g, size_bytes=10)])  # 5.5 s
    graph, cluster = build.build(), tiny_cluster()
    seconds = [[9, 9], [4, 4], [9, 9]]
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=Throughput())
    # 4 + 1.5 <= 5.5: with h, the device of h is not busier than before.
    assert lossless(problem).group.tolist() == [0, 1, 1]
    assert lossless(problem, contiguous=True).group.tolist() == [0, 1, 2]


def test_a_free_operator_does_not_follow_where_it_cannot_run() -> None:
    problem = pair([0, np.inf], [100, 1], Throughput())  # b is far better where a cannot be
    assert value(problem, 0, 1) == 3.5
    assert len(lossless(problem)) == 2


def test_nothing_is_contracted_where_memory_may_run_short() -> None:
    problem = chain3(SEQUENTIAL)
    assert memory_suffices(problem)
    tight = problem.with_memory("d1", 11)  # three tensors of 4 bytes
    assert not memory_suffices(tight)
    assert len(lossless(tight)) == 3
    assert len(lossless(tight, ignore_memory=True)) == 1


def test_groups_stay_free_of_cycles_unless_they_need_not() -> None:
    # a -> b -> c and a heavy tensor a -> c: joining a and c costs nothing but closes a cycle over b.
    build = GraphBuilder()
    a = build.operator("a")
    small, large = build.tensor(a, size_bytes=1), build.tensor(a, size_bytes=100)
    b = build.operator("b", reads=[small])
    build.operator("c", reads=[large, build.tensor(b, size_bytes=1)])
    graph, cluster = build.build(), tiny_cluster()
    seconds = [[1, 9], [5, 1], [1, 9]]  # b is better alone on d1
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=SEQUENTIAL)
    assert lossless(problem).is_acyclic
    assert lossless(problem, cyclic=True).group.tolist() == [0, 1, 0]
    assert len(lossless(problem)) == 3


@pytest.mark.parametrize("objective", [Latency(), Latency(execution="offload"), Throughput(microbatches=4)])
def test_objectives_that_do_not_add_up_are_refused(objective: Objective) -> None:
    graph, cluster = chain3().graph, Cluster((Device("cpu", kind="cpu"),))
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((3, 1))), objective=objective)
    with pytest.raises(BadInput, match="no contraction is lossless"):
        lossless(problem)


def random_problem(seed: int, objective: Objective) -> Problem | None:
    """Two to six operators on two or three devices: ties, zeros, exclusions, colocation, all kinds of links."""
    rng = np.random.default_rng(seed)
    count, devices = int(rng.integers(2, 7)), int(rng.integers(2, 4))
    build = GraphBuilder()
    tensors = []
    phases = sorted(rng.choice([0, 0, 0, 1], count).tolist()) if rng.random() < 0.5 else [0] * count
    for v in range(count):
        fan = min(len(tensors), int(rng.choice([0, 1, 1, 1, 2, 3])))
        reads = [tensors[i] for i in rng.choice(len(tensors), fan, replace=False)] if fan else []
        if fan == 1 and rng.random() < 0.6:
            reads = tensors[-1:]
        operator = build.operator(
            f"v{v}", reads=reads, phase=PHASES[phases[v]], colocate="x" if rng.random() < 0.12 else ""
        )
        tensors += [
            build.tensor(operator, size_bytes=int(rng.choice([0, 1, 3, 10, 40])))
            for _ in range(int(rng.choice([1, 1, 1, 2])))
        ]
    graph = build.build()
    through_host = rng.random() < 0.35
    names = [f"d{d}" for d in range(devices)]
    if rng.random() < 0.6:
        links = link_all(names, bytes_per_second=1.0, latency_seconds=float(rng.choice([0, 0, 1, 2])))
    else:
        pairs = [(a, b) for a in names for b in names if a != b and rng.random() < 0.95]
        links = tuple(
            Link(a, b, float(rng.choice([1.0, 2.0, 0.5])), float(rng.choice([0, 1, 3]))) for a, b in pairs
        )
    cluster = Cluster(
        tuple(Device(name, kind="cpu" if through_host and name == "d0" else "gpu") for name in names),
        links,
        routing="host" if through_host else "direct",
    )
    seconds = rng.choice([0, 0, 1, 2, 5, 20], (count, devices)).astype(float)
    if rng.random() < 0.5:
        seconds = np.repeat(seconds[:, :1], devices, axis=1)
    barred = np.flatnonzero(rng.random(count) < 0.12)
    seconds[barred, rng.integers(0, devices, len(barred))] = np.inf
    given = rng.choice([0, 1, 4, 12], graph.tensor_count).astype(float) if rng.random() < 0.2 else None
    try:
        return Problem(
            graph, cluster, Costs(graph, cluster, seconds, tensor_seconds=given), objective=objective
        )
    except Infeasible:  # colocated operators without a common device
        return None


def optimum(problem: Problem) -> int | None:
    """The least ticks of all placements."""
    choices = itertools.product(range(len(problem.cluster)), repeat=problem.unit_count)
    scores = simulate_many(
        problem, np.array(list(choices), dtype=np.uint8)[:, problem.units], memory="off", threads=1
    )
    possible = scores.ticks[scores.status == 0]
    return int(possible.min()) if possible.size else None


@pytest.mark.parametrize("objective", [SEQUENTIAL, *LOADS], ids=lambda objective: objective.describe())
def test_the_optimum_of_the_contracted_problem_is_the_optimum(objective: Objective) -> None:
    contracted = cases = seed = 0
    while cases < CASES:
        seed += 1
        problem = random_problem(seed, objective)
        if problem is None:
            continue
        cases += 1
        units = unit_groups(problem)
        best = optimum(problem)
        smaller, smallest = lossless(problem), lossless(problem, cyclic=True)
        contracted += units.count - smaller.count
        if smallest.count < units.count:
            assert optimum(smallest.colocated(problem)) == best, f"seed {seed}"
        if units.is_acyclic and smaller.count < units.count:
            coarse = smaller.by_phase().coarse(smaller.colocated(problem))
            assert optimum(coarse) == best, f"seed {seed}, coarse"
    assert contracted > CASES // 5  # the rules do apply


def contiguous_optimum(problem: Problem, grouping: Grouping) -> int | None:
    """The least ticks of placements under which devices follow each other without a way back."""
    choices = np.array(
        list(itertools.product(range(len(problem.cluster)), repeat=grouping.count)), dtype=np.uint8
    )
    rows = grouping.lift(choices)
    scores = simulate_many(problem, rows, memory="off", threads=1)
    possible = [
        ticks
        for row, ticks, status in zip(rows, scores.ticks.tolist(), scores.status.tolist(), strict=True)
        if status == 0 and Grouping(problem.graph, row).is_acyclic
    ]
    return min(possible, default=None)


@pytest.mark.parametrize("objective", LOADS[:2], ids=lambda objective: objective.describe())
def test_pendants_keep_the_best_contiguous_placement_too(objective: Objective) -> None:
    contracted = 0
    for seed in range(60):
        problem = random_problem(seed, objective)
        if problem is None or len(problem.graph) > 5 or problem.unit_count < len(problem.graph):
            continue
        grouping = lossless(problem, contiguous=True)
        contracted += len(problem.graph) - grouping.count
        assert contiguous_optimum(problem, grouping) == contiguous_optimum(problem, unit_groups(problem))
    assert contracted > 5
