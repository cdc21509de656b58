"""Clusters: convex, balanced, deterministic, and quick on large graphs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stead.coarsen import Grouping, cluster, cluster_problem
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder, TensorId
from stead.problem import Constraints, Problem
from stead.testing import tiny_cluster
from stead.workloads.synthetic import synthetic

FAMILIES = ("layered", "series-parallel", "fork-join", "lstm-grid", "transformer", "inception")


def chain(sizes: list[int]) -> Graph:
    """Operators joined by tensors of these sizes."""
    build = GraphBuilder("chain")
    last: list[TensorId] = []
    for v, size in enumerate([*sizes, 0]):
        last = [build.tensor(build.operator(f"v{v}", reads=last), size_bytes=size)]
    return build.build()


def crossing_bytes(grouping: Grouping) -> int:
    """Bytes between clusters, once per receiving cluster."""
    coarse = grouping.coarse_graph
    return int((coarse.tensor_bytes * np.diff(coarse.reader_first)).sum())


def test_a_chain_is_cut_at_its_lightest_tensor() -> None:
    assert cluster(chain([9, 9, 1, 9, 9]), 2).group.tolist() == [0, 0, 0, 1, 1, 1]
    assert cluster(chain([9, 1, 9, 9, 1, 9]), 3).group.tolist() == [0, 0, 1, 1, 1, 2, 2]


def test_a_heavy_operator_stays_alone() -> None:
    work = [12, 1, 1, 1, 1]
    assert cluster(chain([9, 1, 1, 1]), 2, work=work).group.tolist() == [0, 1, 1, 1, 1]


def test_leaves_join_what_they_hang_on() -> None:
    build = GraphBuilder()
    last: list[TensorId] = []
    for v in range(3):
        constants = [build.tensor(build.operator(f"c{v}.{n}"), size_bytes=1) for n in range(5)]
        last = [build.tensor(build.operator(f"v{v}", reads=[*last, *constants]), size_bytes=1)]
    grouping = cluster(build.build(), 3)
    assert grouping.sizes.tolist() == [6, 6, 6]


def test_a_wide_fork_is_shared_out() -> None:
    build = GraphBuilder()
    source = build.tensor(build.operator("fork"), size_bytes=4)
    ends = [build.tensor(build.operator(f"v{n}", reads=[source]), size_bytes=4) for n in range(200)]
    build.operator("join", reads=ends)
    grouping = cluster(build.build(), 10)
    assert grouping.count == 10
    assert grouping.is_acyclic
    assert grouping.sizes.max() <= 50


@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(
    st.sampled_from(FAMILIES), st.integers(10, 120), st.integers(0, 10**6), st.integers(1, 12), st.booleans()
)
def test_clusters_never_need_each_other(
    family: str, operators: int, seed: int, wanted: int, training: bool
) -> None:
    graph = synthetic(family, operators=operators, seed=seed, training=training)
    grouping = cluster(graph, wanted, apart=np.zeros(len(graph), dtype=int))
    assert grouping.is_acyclic
    assert grouping.count == min(wanted, len(graph))


@settings(max_examples=settings.default.max_examples * 2 // 5)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 4))
def test_different_labels_never_meet(seed: int, wanted: int, labels: int) -> None:
    graph = synthetic("layered", operators=60, seed=seed, width=6)
    apart = np.random.default_rng(seed).integers(0, labels, len(graph))
    grouping = cluster(graph, wanted, apart=apart)
    assert grouping.is_acyclic
    assert all(len(set(apart[grouping.members(g)].tolist())) == 1 for g in range(grouping.count))


def test_phases_are_kept_apart() -> None:
    graph = synthetic("transformer", operators=500, training=True)
    grouping = cluster(graph, 20)
    phases = [set(graph.phases[grouping.members(g)].tolist()) for g in range(grouping.count)]
    assert grouping.count == 20
    assert all(len(own) == 1 for own in phases)


def test_no_cluster_does_much_more_than_its_share() -> None:
    graph = synthetic("transformer", operators=2000)
    work = np.bincount(cluster(graph, 40, work=graph.flops).group, weights=graph.flops)
    assert work.max() <= 2.5 * work.mean()


@pytest.mark.parametrize("family", ["layered", "series-parallel", "fork-join", "transformer", "inception"])
def test_clusters_exchange_less_than_equal_stretches_of_the_order(family: str) -> None:
    graph = synthetic(family, operators=2000)
    stretches = Grouping(graph, np.arange(len(graph)) * 20 // len(graph))
    assert crossing_bytes(cluster(graph, 20)) < crossing_bytes(stretches)


def test_operators_of_a_problem_meet_only_where_they_may_run_on_the_same_devices() -> None:
    graph, devices = chain([1] * 5), tiny_cluster()
    constraints = Constraints(pin=(("v2", "d1"),))
    problem = Problem(graph, devices, Costs(graph, devices, np.ones((6, 2))), constraints=constraints)
    grouping = cluster_problem(problem, 3)
    assert grouping.group.tolist() == [0, 0, 1, 2, 2, 2]
    assert grouping.coarse(problem).allowed.tolist() == [[True, True], [False, True], [True, True]]


def test_the_same_graph_gives_the_same_clusters() -> None:
    graph = synthetic("layered", operators=3000, seed=5)
    assert (
        cluster(graph, 50).group.tobytes()
        == cluster(synthetic("layered", operators=3000, seed=5), 50).group.tobytes()
    )


def test_a_hundred_thousand_operators_take_seconds() -> None:
    graph = synthetic("layered", operators=100_000)
    begin = time.process_time()
    grouping = cluster(graph, 500)
    assert time.process_time() - begin < 10  # about 0.7 on an idle core
    assert (grouping.count, grouping.is_acyclic) == (500, True)


def test_more_clusters_than_operators_leave_them_alone() -> None:
    assert cluster(chain([1, 1]), 10).count == 3
    assert cluster(GraphBuilder().build(), 1).count == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": 0}, "at least 1 cluster"),
        ({"clusters": 1, "work": [1.0]}, "work must be 3 numbers"),
        ({"clusters": 1, "work": [1.0, -1.0, 0.0]}, "at least 0"),
        ({"clusters": 1, "apart": [0.5, 1, 2]}, "apart must be 3 labels"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        cluster(chain([1, 1]), **options)  # type: ignore[arg-type]
