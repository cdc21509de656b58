"""offload-linear, greedy-offload and max-load-split: calls of accelerators."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from small_offloads import OFFLOAD, calls, published, published_problem

from stead.cluster import Cluster, Device, link_both_ways
from stead.costs import Costs
from stead.errors import BadInput, Infeasible
from stead.graph import GraphBuilder
from stead.problem import Problem
from stead.sim import simulate
from stead.solvers import Budget, Solver
from stead.solvers.auto import Auto
from stead.solvers.exact.interval_costs import IntervalCosts, Late
from stead.solvers.exact.latency_mip import LatencyMip
from stead.solvers.exact.offload import GreedyOffload, MaxLoadSplit, OffloadLinear, cut_order, reduced_calls
from stead.testing import chain3
from stead.testing.contracts import SolverContract

TARGETS = {  # milliseconds: offload-linear at most, what is proved that nothing is below
    "LayerGraphs/bert24_inference": (100.2185, 100.2185),
    "LayerGraphs/gnmt_inference": (225.648, 182.435),
    "LayerGraphs/inceptionv3_inference": (1324.212, 195.277),
    "OperatorGraphs/bert_l-3_inference": (408.4745, 187.9),
    "OperatorGraphs/bert_l-12_inference": (765.301, 609.428),
    "OperatorGraphs/resnet50_inference": (651.121, 289.855),
}


def chain_of_calls(**options) -> Problem:
    """v0 -> v1 -> v2 -> v3, 10 s each on the CPU and 1 s on an accelerator; a copy takes 1 s."""
    return calls([(10, 1)] * 4, {1: [0], 2: [1], 3: [2]}, **options)


class OffloadContract(SolverContract):
    def problems(self) -> list[Problem]:
        return [
            chain_of_calls(),
            chain_of_calls(room=25),
            chain_of_calls(room=25, direct=True),
            calls([(2, 1), (3, 9), (4, 9), (1, 1)], {1: [0], 2: [0], 3: [1, 2]}),
            calls([(2, np.inf), (3, 1), (np.inf, 1)], {1: [0], 2: [1]}),
            calls([(9, 1)] * 4, {1: [0], 2: [1], 3: [2]}, colocate={0: "x", 2: "x"}),
            chain3(),
        ]


class TestOffloadLinear(OffloadContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return OffloadLinear(patience=500)


class TestGreedyOffload(OffloadContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return GreedyOffload()


class TestMaxLoadSplit(OffloadContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return MaxLoadSplit()


def test_one_call_is_best_if_everything_fits():
    # 4 x 1 s, nothing to copy.
    assert OffloadLinear().solve(chain_of_calls(), Budget()).objective_seconds == 4


def test_two_calls_copy_between_them():
    # 20 bytes hold two weights: 1 + 1 s, copy out 1 s, copy in 1 s, 1 + 1 s.
    solution = OffloadLinear().solve(chain_of_calls(room=25), Budget())
    assert solution.objective_seconds == 6
    assert simulate(solution.placement.problem, solution.placement).feasible


def test_the_greedy_fills_accelerators_in_order():
    solution = GreedyOffload().solve(chain_of_calls(room=25), Budget())
    assert solution.placement.devices.tolist() == [1, 1, 2, 2]


def test_intervals_cost_what_the_simulator_says():
    problem = chain_of_calls()
    reduced = reduced_calls(problem)
    costs = IntervalCosts(reduced, np.arange(4, dtype=np.int32), positions=100)
    accelerator = next(j for j, kind in enumerate(reduced.kinds) if not kind.is_host)
    seconds = costs.call_ticks(accelerator) / 1e12
    assert seconds[0, 4] == 4  # all: nothing is copied
    assert seconds[1, 3] == 1 + 2 + 1
    assert seconds[0, 1] == 1 + 1
    assert np.isinf(seconds[2, 2])


def test_an_order_may_be_cut_at_fewer_places_than_it_has_nodes():
    problem = calls([(10, 1)] * 60, {v: [v - 1] for v in range(1, 60)}, room=300)
    coarse = OffloadLinear(positions=8, patience=200).solve(problem, Budget())
    assert coarse.objective_seconds < 600


def test_without_room_everything_stays_on_the_cpu():
    assert OffloadLinear(patience=200).solve(chain_of_calls(room=5), Budget()).objective_seconds == 40


def test_no_room_anywhere_is_infeasible_with_bytes():
    problem = chain_of_calls(room=5).with_memory("cpu0", 20)
    with pytest.raises(Infeasible) as caught:
        OffloadLinear(patience=200).solve(problem, Budget())
    assert sum(caught.value.short_bytes.values()) > 0


def test_it_refuses_other_executions_and_accelerators_without_a_cpu_link():
    assert "offload" in str(OffloadLinear().unsupported(chain3()))
    problem = chain_of_calls(direct=True)
    cluster = problem.cluster.with_devices([Device("lonely")])
    seconds = np.concatenate([problem.costs.seconds, np.ones((4, 1))], axis=1)
    lonely = Problem(problem.graph, cluster, Costs(problem.graph, cluster, seconds), objective=OFFLOAD)
    assert "lonely has no link" in str(OffloadLinear().unsupported(lonely))
    with pytest.raises(BadInput, match="does not apply"):
        OffloadLinear().solve(chain3(), Budget())


@cache
def large() -> Problem:
    """A chain of more operators than pipelines are balanced for; 3 s on CPU or accelerator in all."""
    return calls([(1e-4, 1e-4)] * 30_000, {v: [v - 1] for v in range(1, 30_000)})


@pytest.mark.parametrize("solver", [GreedyOffload(), OffloadLinear(), LatencyMip()])
def test_where_time_is_too_short_for_calls_a_large_graph_stays_on_one_device(
    solver: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stead.solvers.exact.offload.reduce", None)  # nothing may be reduced: that cannot be stopped
    found = solver.solve(large(), Budget(0.5))
    assert len(set(found.placement.devices.tolist())) == 1
    assert found.objective_seconds == pytest.approx(3)
    assert found.stopped_by in ("time", "proved")


def test_a_graph_too_large_for_pipelines_is_refused_beforehand():
    assert "more than max_nodes" in str(MaxLoadSplit().unsupported(large()))


def test_intervals_are_not_looked_at_any_more_once_time_is_up():
    asked = iter([False] * 5 + [True])
    with pytest.raises(Late):
        cut_order(reduced_calls(chain_of_calls()), np.arange(4, dtype=np.int32), positions=9, stop=lambda: next(asked))


@published
@pytest.mark.parametrize("name", TARGETS)
def test_published_inputs_are_solved_as_well_as_is_known(name):
    most, least = TARGETS[name]
    problem = published_problem(name)
    solution = OffloadLinear(patience=3000).solve(problem, Budget())
    milliseconds = solution.objective_seconds * 1e3
    assert least * (1 - 1e-9) <= milliseconds <= most
    greedy = GreedyOffload().solve(problem, Budget())
    assert milliseconds <= greedy.objective_seconds * 1e3


@published
def test_bert24_is_proved_for_all_placements():
    solution = OffloadLinear().solve(published_problem("LayerGraphs/bert24_inference"), Budget())
    assert (solution.gap, solution.scope) == (0, "")
    assert solution.objective_seconds * 1e3 == pytest.approx(100.2185, rel=1e-9)


@published
@pytest.mark.parametrize(
    ("name", "milliseconds"),
    [
        ("LayerGraphs/bert24_inference", 108.031),
        ("OperatorGraphs/bert_l-3_inference", 414.441),
        ("OperatorGraphs/resnet50_inference", 1123.653),
    ],
)
def test_the_latency_of_the_best_pipeline_is_about_the_known_one(name, milliseconds):
    # Pipelines of equal load can differ in latency; the known values are of one of them.
    found = MaxLoadSplit().solve(published_problem(name), Budget())
    assert found.objective_seconds * 1e3 <= milliseconds * 1.25


@published
def test_auto_is_not_behind_offload_linear_with_as_many_evaluations():
    """More than 150 units: climbing instead, with what is left of the evaluations, ended 0.7 % later."""
    problem = published_problem("LayerGraphs/inceptionv3_inference")
    budget = Budget(evaluations=20_000)
    alone = OffloadLinear().solve(problem, budget)
    assert Auto().solve(problem, budget).objective_seconds <= alone.objective_seconds


def test_units_around_an_operator_that_only_the_cpu_runs_are_placed_one_by_one():
    # v0, v1 and v4 share the accelerator, since the CPU cannot run v1; v2 between them runs on the CPU only. The call
    # v0, v1 takes 3 ms and 11 us to write v0's tensor, v2 1 ms more, and v4 11 us to read and 1 ms beside v3.
    build = GraphBuilder("no common device")
    v0 = build.operator("v0", colocate="x")
    first = build.tensor(v0, size_bytes=1000)
    build.operator("v1", reads=[first], colocate="x")
    second = build.tensor(build.operator("v2", reads=[first]), size_bytes=1000)
    build.operator("v3", reads=[second])
    build.operator("v4", reads=[second], colocate="x")
    graph = build.build()
    cluster = Cluster(
        (Device("cpu0", kind="cpu"), Device("gpu0")),
        link_both_ways("cpu0", "gpu0", bytes_per_second=1e9, latency_seconds=1e-5),
    )
    seconds = np.array([[1, 1], [np.inf, 2], [1, np.inf], [7, 7], [1, 1]]) * 1e-3
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds), objective=OFFLOAD)
    for solver in (OffloadLinear(), Auto()):
        solution = solver.solve(problem, Budget(evaluations=2000))
        assert solution.objective_seconds == pytest.approx(3e-3 + 11e-6 + 1e-3 + 7e-3)
