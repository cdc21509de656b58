"""series: chains of blocks, bounds that hold for every placement and order, proofs under tight memory."""

from __future__ import annotations

import numpy as np
import pytest

from stead import Costs, GraphBuilder, Latency, Placement, Problem, simulate
from stead.cluster import Cluster, Device, link_all
from stead.placing.loading import load
from stead.sim import best_bound
from stead.sim.bounds import heaviest_path, least_seconds
from stead.solvers import Budget, Solver, solver
from stead.solvers.exact.series import Series
from stead.solvers.exact.series_blocks import Tables, blocks
from stead.solvers.exact.series_reach import series_in_vain
from stead.testing import chain3, diamond, tiny_cluster, two_towers
from stead.testing.contracts import SolverContract
from stead.workloads import synthetic
from stead.workloads.demo import demo_graph


class TestSeries(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Series()


def chain_of(problem: Problem) -> list[list[str]]:
    """The blocks of a problem by names."""
    path = heaviest_path(problem, least_seconds(problem))
    names = problem.graph.operator_names
    return [[names[v] for v in block.operators] for block in blocks(problem, path, 1024)]


def test_a_chain_is_cut_behind_every_operator() -> None:
    assert chain_of(chain3()) == [["a"], ["b"], ["c"]]


def test_what_lies_between_two_operators_of_a_path_is_one_block() -> None:
    # b and c lie between a and d, so the block behind a is all of them.
    assert chain_of(diamond()) == [["a"], ["b", "c", "d"]]


def test_towers_without_a_common_head_are_one_block() -> None:
    assert chain_of(two_towers()) == [["l1", "r1", "l2", "r2", "head"]]


def test_a_block_that_is_too_large_is_cut_where_least_is_lost() -> None:
    problem = two_towers()
    path = heaviest_path(problem, least_seconds(problem))
    found = blocks(problem, path, 4)
    assert max(len(block.operators) for block in found) <= 2
    assert sum(len(block.operators) for block in found) < len(problem.graph)


def test_a_thinned_block_keeps_the_time_of_what_is_left_out() -> None:
    problem = two_towers()
    path = heaviest_path(problem, least_seconds(problem))
    (block,) = blocks(problem, path, 8, thinned=True)
    names = problem.graph.operator_names
    assert [names[v] for v in block.operators] == ["l1", "r1", "head"]
    assert [names[v] for v in block.between] == ["l2", "r2"]
    table = Tables(problem).of(block)
    took = dict(zip(map(tuple, table.devices.tolist()), table.ticks[-1].tolist(), strict=True))
    # l1, 2 s of l2, head; from one device to the other something on the way is sent: 2.5 s more
    assert took[0, 0, 0] == 5e12
    assert took[1, 0, 0] == took[0, 1, 0] == 7.5e12


def test_thinning_bounds_what_cutting_loses() -> None:
    problem = two_towers()
    assert Series(max_configurations=8).solve(problem, Budget()).bound_seconds >= 5.0


def test_a_block_takes_its_longest_path_or_what_one_device_must_do() -> None:
    # Behind a on d0: b (2 s) and c (3 s) on d0, then d (1 s): the path takes 4 s, d0 has 6 s of work.
    problem = diamond()
    path = heaviest_path(problem, least_seconds(problem))
    table = Tables(problem).of(blocks(problem, path, 1024)[1])
    together = table.devices.tolist().index([0, 0, 0])
    apart = table.devices.tolist().index([0, 1, 0])
    assert table.ticks[0][together] == 6e12
    assert table.ticks[0][apart] == (2.5 + 3 + 2.5 + 1) * 1e12  # a's tensor to c, c, c's tensor back, d


def tight() -> Problem:
    """Three operators in turn with weights of 8 bytes each, and room for two of them on the quick device."""
    build, tensor = GraphBuilder("tight"), None
    for name in "abc":
        operator = build.operator(name, reads=[] if tensor is None else [tensor])
        tensor = build.tensor(operator, size_bytes=4)
        build.weight(f"{name}.weight", size_bytes=8, users=[operator])
    graph, cluster = build.build(), tiny_cluster(2)
    problem = Problem(graph, cluster, Costs(graph, cluster, [[1.0, 3.0]] * 3))
    return problem.with_memory("d0", 16 + 8)


def test_memory_that_forces_a_change_is_in_the_bound() -> None:
    # The first or the last operator goes to d1: 3 s there, one transfer of 2.5 s, two seconds on d0.
    solution = Series().solve(tight(), Budget())
    assert solution.objective_seconds == 7.5
    assert solution.bound_seconds == 7.5
    assert solution.bound_name == "series of blocks"


def test_the_demo_is_proved_optimal() -> None:
    problem = load(demo_graph(), "3090,3060").problem(Latency())
    solution = Series().solve(problem, Budget())
    assert solution.objective_seconds == solution.bound_seconds
    assert round(solution.objective_seconds * 1e3, 4) == 21.1863
    assert simulate(problem, solution.placement).feasible
    assert best_bound(problem).seconds < 0.9 * solution.bound_seconds


def test_auto_asks_it_and_takes_over_what_it_proves() -> None:
    problem = load(demo_graph(), "3090,3060").problem(Latency())
    solution = solver("auto").solve(problem, Budget(evaluations=3000))
    assert solution.gap == 0
    assert solution.bound_name == "series of blocks"


def test_tied_weights_are_charged_to_no_device_twice() -> None:
    build = GraphBuilder("tied")
    build.weight("w", size_bytes=9, users=[build.operator(name) for name in "ab"])
    graph, cluster = build.build(), tiny_cluster(2)
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((2, 2))))
    assert Tables(problem).weights.tolist() == [4, 4]


def test_labels_that_are_too_many_end_it_with_what_is_known() -> None:
    problem = load(demo_graph(), "3090,3060").problem(Latency())
    solution = Series(max_labels=2).solve(problem, Budget())
    assert solution.bound_seconds == best_bound(problem).seconds
    assert simulate(problem, Placement(problem, solution.placement.devices)).feasible


def test_the_bound_is_below_every_placement_under_every_lump() -> None:
    rng = np.random.default_rng(0)
    problem = load("zoo:bert-base", "3090,3060").problem(Latency())
    problem = problem.with_memory("3090", int(0.6 * problem.graph.weight_bytes.sum()) + 2**27)
    bound = Series().solve(problem, Budget()).bound_seconds
    for _ in range(50):
        trace = simulate(problem, Placement(problem, rng.integers(0, 2, len(problem.graph))))
        assert not trace.feasible or trace.objective_seconds >= bound


@pytest.mark.parametrize("seed", range(6))
def test_what_is_said_to_be_in_vain_would_be(seed: int) -> None:
    # With the bounds that hold anyway, and with worse ones that series would have to beat.
    graph = synthetic(("layered", "lstm-grid", "inception")[seed % 3], operators=60, seed=seed)
    held = int(graph.weight_bytes.sum()) + int(graph.tensor_bytes.sum())
    vain = 0
    for share in (0.75, 2.0):  # of everything that a device can hold
        names = ["d0", "d1", "d2"]
        devices = tuple(Device(name, memory_bytes=int(share * held)) for name in names)
        cluster = Cluster(devices, link_all(names, bytes_per_second=5e9, latency_seconds=1e-5))
        seconds = np.random.default_rng(seed).choice([1e-5, 5e-5, 2e-4], size=(len(graph), 1)) * [1.0, 1.0, 1.5]
        problem = Problem(graph, cluster, Costs(graph, cluster, seconds))
        by_series = Series().solve(problem, Budget(seconds=20.0))
        known = best_bound(problem).seconds
        if series_in_vain(problem, known):
            vain += 1
            assert by_series.bound_seconds == known
        if by_series.bound_seconds > known:
            assert not series_in_vain(problem, np.nextafter(by_series.bound_seconds, 0.0))
    assert vain or seed % 3 == 2


@pytest.mark.parametrize("name", ["chain", "demo"])
def test_chains_are_never_in_vain(name: str) -> None:
    problem = chain3() if name == "chain" else load(demo_graph(), "3090,3060").problem(Latency())
    assert series_in_vain(problem, np.inf) == ""
