"""Groups: the smaller graph, the smaller problem, what stays exact and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import problems

from stead.cluster import Cluster, Device, link_all
from stead.coarsen import Grouping, colocate_units, single_groups, unit_groups
from stead.costs import Costs, Source
from stead.errors import BadGraph, BadInput, Infeasible
from stead.graph import Graph, GraphBuilder
from stead.problem import Constraints, Latency, Objective, Placement, Problem, Throughput
from stead.sim import simulate, simulate_many
from stead.testing import chain3, diamond, tiny_cluster, two_towers
from stead.workloads.synthetic import synthetic
from stead.workloads.zoo import parse

ADDING_UP = [
    Latency(execution="sequential"),
    *(Throughput(load=load) for load in ("sum", "overlap", "duplex", "fwbw")),
]


def two_to_two() -> Graph:
    """a and b write for c and d: a 4 bytes for both, b 1 for both and 2 for d alone; a and c share a weight."""
    build = GraphBuilder("two")
    a = build.operator("a", kind="x", flops=3, module="m.0")
    b = build.operator("b", kind="y", flops=5, moved_bytes=7, module="m.1")
    ta = build.tensor(a, size_bytes=4)
    tb, tbd = build.tensor(b, size_bytes=1), build.tensor(b, size_bytes=2)
    c = build.operator("c", reads=[ta, tb])
    d = build.operator("d", reads=[ta, tb, tbd])
    build.weight("shared", size_bytes=10, users=[a, c])
    build.weight("also", size_bytes=20, users=[b, d])
    build.weight("own", size_bytes=40, users=[b])
    build.tensor(d, size_bytes=8, kept=True)
    return build.build()


def priced(graph: Graph, seconds: Any, cluster: Cluster | None = None, **options: Any) -> Problem:
    """A problem with given seconds."""
    cluster = cluster or tiny_cluster()
    return Problem(graph, cluster, Costs(graph, cluster, seconds), **options)


def test_groups_are_numbered_in_an_order_in_which_they_may_run() -> None:
    grouping = Grouping(two_towers().graph, [9, 4, 9, 4, 9])
    assert grouping.group.tolist() == [1, 0, 1, 0, 1]
    assert grouping.is_acyclic


def test_an_operator_of_its_own_keeps_everything() -> None:
    for problem in (chain3(), diamond(), two_towers()):
        single = single_groups(problem.graph)
        assert single.coarse_graph == problem.graph
        assert single.coarse(problem).costs.fingerprint == problem.costs.fingerprint


def test_tensors_to_the_same_groups_become_one() -> None:
    grouping = Grouping(two_to_two(), [0, 0, 1, 2])
    tensors = [(t.name, t.producer, t.readers, t.size_bytes) for t in grouping.coarse_graph.tensors()]
    assert tensors == [("a+1", 0, (1, 2), 5), ("b:1", 0, (2,), 2), ("d", 2, (), 8)]


def test_tensors_inside_a_group_vanish_and_outputs_of_the_graph_stay() -> None:
    coarse = Grouping(two_to_two(), [0, 0, 0, 0]).coarse_graph
    assert [(t.size_bytes, t.kept) for t in coarse.tensors()] == [(8, True)]


def test_weights_with_the_same_groups_of_users_become_one() -> None:
    coarse = Grouping(two_to_two(), [0, 0, 1, 1]).coarse_graph
    weights = dict(zip(coarse.weight_names, coarse.weight_bytes.tolist(), strict=True))
    assert weights == {"own": 40, "shared+1": 30}
    assert coarse.parameter_bytes.tolist() == [70, 30]


def test_a_group_adds_up_and_is_called_after_its_first_operator() -> None:
    group = Grouping(two_to_two(), [0, 0, 1, 2]).coarse_graph.operator(0)
    assert (group.name, group.kind, group.flops, group.moved_bytes, group.module) == ("a+1", "y", 8, 7, "m")


def test_names_lead_back() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    b = build.operator("b", reads=[build.tensor(a, size_bytes=1)])
    build.operator("a+1", reads=[build.tensor(b, size_bytes=1)])
    build.fold("view of b", b)
    coarse = Grouping(build.build(), [0, 0, 1]).coarse_graph
    assert coarse.operator_names == ("a+1+", "a+1")
    assert dict(coarse.folded) == {"view of b": "a+1+", "a": "a+1+", "b": "a+1+"}


def test_groups_whose_members_must_share_a_device_must_too() -> None:
    build = GraphBuilder()
    for name, group in (("a", "x"), ("b", ""), ("c", "x"), ("d", "y"), ("e", "y")):
        build.operator(name, colocate=group)
    coarse = Grouping(build.build(), [0, 1, 2, 3, 3]).coarse_graph
    assert coarse.colocation.tolist() == [0, -1, 0, -1]
    assert coarse.colocation_names == ("x",)


def test_a_backward_group_belongs_to_the_group_of_most_of_its_forward_operators() -> None:
    build = GraphBuilder()
    for name in ("f0", "f1", "f2"):
        build.operator(name)
    for name, twin in (("b2", "f2"), ("b1", "f1"), ("b0", "f0")):
        build.operator(name, phase="backward", twin=twin)
    coarse = Grouping(build.build(), [0, 0, 1, 2, 2, 2]).coarse_graph
    assert coarse.phases.tolist() == [0, 0, 1]
    assert coarse.twins.tolist() == [-1, -1, 0]


def test_groups_that_need_each_other_are_refused_with_advice() -> None:
    cyclic = Grouping(chain3().graph, [0, 1, 0])
    assert not cyclic.is_acyclic
    with pytest.raises(
        BadGraph, match=r"2 groups need each other's results, such as those of 'a' and 'b'.*fused\(\)"
    ):
        _ = cyclic.coarse_graph


def test_fused_joins_exactly_the_groups_on_a_cycle() -> None:
    build = GraphBuilder()
    last: list[Any] = []
    for v in range(6):
        last = [build.tensor(build.operator(f"v{v}", reads=last), size_bytes=1)]
    grouping = Grouping(build.build(), [0, 1, 2, 1, 3, 4])
    assert grouping.fused().group.tolist() == [0, 1, 1, 1, 2, 3]


@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(st.lists(st.integers(0, 4), min_size=9, max_size=9), st.integers(0, 50))
def test_fused_groups_never_need_each_other(labels: list[int], seed: int) -> None:
    graph = synthetic("layered", operators=9, seed=seed, width=2)
    grouping = Grouping(graph, labels)
    assert grouping.fused().is_acyclic
    assert grouping.is_acyclic == (grouping.fused() == grouping)


def test_phases_of_a_training_unit_are_cut_apart_and_stay_together() -> None:
    graph = synthetic("transformer", layers=2, training=True)
    units = Grouping(graph, [int(path.startswith(("layers.1", "norm", "head"))) for path in graph.modules])
    assert not units.is_acyclic
    problem = priced(graph, np.ones((len(graph), 2)))
    pieces = units.by_phase().coarse(units.colocated(problem))
    assert (len(pieces.graph), pieces.unit_count) == (6, 2)


def test_updates_that_hand_each_other_a_tied_gradient_are_cut_into_operators() -> None:
    graph = parse("gpt2-small", phase="train").graph()
    units = colocate_units(graph)
    assert not units.is_acyclic
    pieces = units.by_phase()
    assert pieces.is_acyclic
    reduces = [v for v in range(len(graph)) if graph.kinds[v] == "AllReduce"]
    assert [int(pieces.sizes[pieces.group[v]]) for v in reduces] == 4 * [1]


def test_devices_are_lifted_row_by_row_and_lowered() -> None:
    grouping = Grouping(two_towers().graph, [0, 1, 0, 1, 1])
    assert grouping.lift([[0, 1], [1, 0]]).tolist() == [[0, 1, 0, 1, 1], [1, 0, 1, 0, 0]]
    assert grouping.lower([0, 1, 0, 1, 1]).tolist() == [0, 1]


def test_groups_of_groups_are_groups() -> None:
    first = Grouping(two_towers().graph, [0, 1, 0, 1, 2])
    assert first.then(Grouping(first.coarse_graph, [0, 1, 1])).group.tolist() == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("devices", "message"),
    [([0], "2 devices are needed"), ([0, 1024], "must lie in"), ([0.0, 1.0], "float64")],
)
def test_devices_that_do_not_fit_are_refused(devices: Sequence[float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Grouping(two_towers().graph, [0, 1, 0, 1, 1]).lift(devices)


def test_a_grouping_needs_a_number_per_operator() -> None:
    with pytest.raises(BadInput, match="a grouping needs 3 group numbers"):
        Grouping(chain3().graph, [0, 1])


def test_a_grouping_of_another_graph_is_refused() -> None:
    with pytest.raises(BadInput, match="the problem is about"):
        single_groups(chain3().graph).coarse(diamond())


# The coarse problem


def test_seconds_add_up_and_the_weakest_source_counts() -> None:
    graph, cluster = chain3().graph, tiny_cluster()
    costs = Costs(graph, cluster, [[1, 2], [2, 4], [1, 2]], sources=[[2, 2], [1, 2], [2, 2]])
    coarse = Grouping(graph, [0, 0, 1]).coarse(Problem(graph, cluster, costs))
    assert coarse.costs.seconds.tolist() == [[3, 6], [1, 2]]
    assert coarse.costs.sources.tolist() == [
        [Source.IMPORTED, Source.MEASURED],
        [Source.MEASURED, Source.MEASURED],
    ]


def test_the_workspace_of_a_group_is_its_worst_moment() -> None:
    graph, cluster = chain3().graph, tiny_cluster()
    costs = Costs(graph, cluster, np.ones((3, 2)), workspace_bytes=[[0, 0], [0, 1], [5, 0]])
    coarse = Grouping(graph, [0, 0, 0]).coarse(Problem(graph, cluster, costs))
    # While b runs it holds the tensors of a and b (4 + 4), while c runs that of b; c's output leaves the group.
    assert coarse.costs.workspace_bytes.tolist() == [[5 + 4, 1 + 8]]


def test_a_group_may_run_where_all_its_operators_may() -> None:
    problem = chain3().with_constraints(Constraints(pin=(("a", "d0"),), colocate=(("b", "c"),)))
    coarse = Grouping(problem.graph, [0, 1, 2]).coarse(problem)
    assert coarse.allowed.tolist() == [[True, False], [True, True], [True, True]]
    assert coarse.units.tolist() == [0, 1, 1]
    assert Grouping(problem.graph, [0, 0, 1]).coarse(problem).allowed.tolist() == [
        [True, False],
        [True, False],
    ]


def test_a_group_that_no_device_may_run_is_refused() -> None:
    problem = chain3().with_constraints(Constraints(pin=(("a", "d0"), ("b", "d1"))))
    with pytest.raises(BadInput, match=r"no device may run all of group 'a\+1'"):
        Grouping(problem.graph, [0, 0, 1]).coarse(problem)


def test_groups_of_both_phases_are_refused_where_phases_count() -> None:
    graph = synthetic("transformer", layers=1, training=True)
    problem = priced(graph, np.ones((len(graph), 2)), objective=Throughput(load="fwbw"))
    with pytest.raises(BadInput, match=r"tells forward from backward.*by_phase\(\)"):
        Grouping(graph, np.zeros(len(graph), dtype=int)).coarse(problem)


@st.composite
def grouped_problems(draw: Any, objective: Objective) -> tuple[Problem, Grouping, Problem]:
    try:
        problem = draw(problems(objective=objective, most_operators=8, training=True, colocate=True))
        labels = draw(st.lists(st.integers(0, 4), min_size=len(problem.graph), max_size=len(problem.graph)))
        grouping = Grouping(problem.graph, np.array(labels, dtype=np.int64))
        if objective == Throughput(load="fwbw"):
            grouping = grouping.by_phase()
        grouping = grouping.fused()
        return problem, grouping, grouping.coarse(problem)
    except (BadInput, Infeasible):  # groups without a common device
        assume(False)
        raise


@pytest.mark.parametrize("objective", ADDING_UP, ids=lambda objective: objective.describe())
def test_values_that_add_up_stay_the_same_to_the_picosecond(objective: Objective) -> None:
    @settings(max_examples=settings.default.max_examples * 2 // 5)
    @given(grouped_problems(objective), st.integers(0, 2**30))
    def check(case: tuple[Problem, Grouping, Problem], seed: int) -> None:
        problem, grouping, coarse = case
        assume(len(problem.graph) > 0)
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(problem.cluster), (10, coarse.unit_count)).astype(np.uint8)[
            :, coarse.units
        ]
        small, large = (
            simulate_many(coarse, rows, memory="off", threads=1),
            simulate_many(problem, grouping.lift(rows), memory="off", threads=1),
        )
        assert small.ticks.tolist() == large.ticks.tolist()
        assert small.status.tolist() == large.status.tolist()

    check()


def test_tensors_stay_apart_where_each_of_them_pays_a_latency() -> None:
    graph = two_to_two()
    seconds = np.zeros((4, 2))
    slow = priced(
        graph, seconds, objective=Latency(execution="sequential")
    )  # 2 bytes per second, 0.5 s latency
    grouping = Grouping(graph, [0, 0, 1, 1])
    apart, merged = grouping.coarse(slow), grouping.coarse(slow, merge=True)
    assert (apart.graph.tensor_count, merged.graph.tensor_count) == (4, 2)
    values = [simulate(p, Placement(p, [0, 1])).objective_seconds for p in (apart, merged)]
    assert values == [7 / 2 + 3 * 0.5, 7 / 2 + 0.5]


def test_tensors_are_merged_where_transfers_add_up() -> None:
    graph = two_to_two()
    cluster = Cluster((Device("d0"), Device("d1")), link_all(["d0", "d1"], bytes_per_second=2.0))
    problem = priced(graph, np.zeros((4, 2)), cluster, objective=Latency(execution="sequential"))
    assert Grouping(graph, [0, 0, 1, 1]).coarse(problem).graph.tensor_count == 2


def test_dataflow_latency_is_not_kept() -> None:
    problem = two_towers()
    grouping = Grouping(problem.graph, [0, 1, 0, 1, 1])  # r1, r2 and head on one device
    fine = simulate(problem, Placement(problem, grouping.lift([0, 1]))).objective_seconds
    coarse = grouping.coarse(problem)
    assert fine == 4 + 2.5 + 1
    # As one operator, the right tower waits for the left one, which only the head needs.
    assert simulate(coarse, Placement(coarse, [0, 1])).objective_seconds == 4 + 2.5 + 5


def test_bound_groups_are_exact_for_dataflow_too() -> None:
    problem = two_towers()
    grouping = Grouping(problem.graph, [0, 1, 0, 1, 1])
    bound = grouping.colocated(problem)
    assert (bound.unit_count, bound.units.tolist()) == (2, [0, 1, 0, 1, 1])
    assert simulate(bound, Placement(bound, grouping.lift([0, 1]))).objective_seconds == 7.5


def test_binding_groups_respects_what_is_bound_already() -> None:
    build = GraphBuilder()
    for name, group in (("a", "x"), ("b", ""), ("c", "x"), ("d", "")):
        build.operator(name, colocate=group)
    graph = build.build()
    bound = Grouping(graph, [0, 0, 1, 2]).colocated(priced(graph, np.ones((4, 2))))
    assert bound.units.tolist() == [0, 0, 0, 1]
    assert bound.graph.colocation_names == ("x",)


def test_the_units_of_a_problem_are_groups() -> None:
    problem = chain3().with_constraints(Constraints(colocate=(("a", "c"),)))
    assert unit_groups(problem).group.tolist() == [0, 1, 0]


def test_an_empty_graph_has_no_groups() -> None:
    graph = GraphBuilder("empty").build()
    grouping = Grouping(graph, [])
    assert (grouping.count, len(grouping.coarse_graph), grouping.lift([]).tolist()) == (0, 0, [])


def test_equal_groupings_are_equal_whatever_their_labels() -> None:
    graph = chain3().graph
    assert Grouping(graph, [5, 5, 2]) == Grouping(graph, [0, 0, 1])
    assert len({Grouping(graph, [5, 5, 2]), Grouping(graph, [0, 0, 1]), Grouping(graph, [0, 1, 2])}) == 2
