"""Views folded into what they look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs

from stead.cluster import Cluster, Device, link_all
from stead.coarsen import fold, is_view
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder, OperatorId
from stead.problem import Latency, Problem
from stead.sim import simulate_many

FEWER = settings(max_examples=settings.default.max_examples * 2 // 5)

# A name, its kind, what it reads, the bytes of each output.
Row = tuple[str, str, tuple[str, ...], tuple[int, ...]]


def built(*rows: Row, kept: str = "", weights: dict[str, tuple[int, tuple[str, ...]]] | None = None) -> Graph:
    """A graph; `x:1` is the second output of x."""
    build = GraphBuilder("views")
    operators: dict[str, OperatorId] = {}
    tensors: dict[str, Any] = {}
    for name, kind, reads, sizes in rows:
        operators[name] = build.operator(name, kind=kind, reads=[tensors[read] for read in reads], flops=1.0)
        for number, size in enumerate(sizes):
            label = f"{name}:{number}" if number else name
            tensors[label] = build.tensor(operators[name], size_bytes=size, kept=label == kept)
    for weight, (size, users) in (weights or {}).items():
        build.weight(weight, size_bytes=size, users=[operators[user] for user in users])
    return build.build()


def tensors(graph: Graph) -> list[tuple[str, str, list[str], int]]:
    """(name, producer, readers, bytes) of every tensor."""
    names = graph.operator_names
    return [(t.name, names[t.producer], [names[v] for v in t.readers], t.size_bytes) for t in graph.tensors()]


def test_readers_of_a_view_as_large_as_its_base_read_the_base() -> None:
    graph = built(("a", "mm", (), (8,)), ("v", "aten.t.default", ("a",), (8,)), ("b", "mm", ("v", "a"), (4,)))
    folded = fold(graph)
    assert folded.graph.operator_names == ("a", "b")
    assert tensors(folded.graph) == [("a", "a", ["b"], 8), ("b", "b", [], 4)]
    assert folded.operator.tolist() == [0, 0, 1]


def test_a_step_of_a_sequence_moves_the_bytes_of_one_step() -> None:
    rows: list[Row] = [("x", "embedding", (), (400,))]
    rows += [(f"x{t}", "aten.select.int", ("x",), (100,)) for t in range(4)]
    rows += [(f"cell{t}", "mm", (f"x{t}",), (1,)) for t in range(4)]
    folded = fold(built(*rows)).graph
    sent = [row for row in tensors(folded) if row[1] == "x"]
    # The whole is read by nobody: its bytes are those of its parts.
    assert sent == [(f"x{t}", "x", [f"cell{t}"], 100) for t in range(4)]


def test_a_base_that_is_read_as_a_whole_keeps_its_bytes() -> None:
    graph = built(("x", "mm", (), (400,)), ("s", "slice", ("x",), (100,)), ("y", "mm", ("x", "s"), (1,)))
    assert [row[3] for row in tensors(fold(graph).graph)] == [400, 100, 1]


def test_what_no_view_shows_stays_with_the_producer() -> None:
    graph = built(("x", "mm", (), (400,)), ("s", "slice", ("x",), (100,)), ("y", "mm", ("s",), (1,)))
    assert tensors(fold(graph).graph) == [("x", "x", [], 300), ("s", "x", ["y"], 100), ("y", "y", [], 1)]


def test_views_of_views_belong_to_the_operator_below_all_of_them() -> None:
    graph = built(
        ("x", "mm", (), (400,)),
        ("s", "slice", ("x",), (100,)),
        ("v", "view", ("s",), (100,)),
        ("w", "select", ("v",), (10,)),
        ("y", "mm", ("w",), (1,)),
    )
    folded = fold(graph)
    assert folded.operator.tolist() == [0, 0, 0, 0, 1]
    assert tensors(folded.graph)[:3] == [("x", "x", [], 300), ("s", "x", [], 90), ("w", "x", ["y"], 10)]
    assert dict(folded.graph.folded) == {"s": "x", "v": "x", "w": "x"}


def test_every_output_of_a_split_is_a_tensor() -> None:
    graph = built(
        ("x", "mm", (), (12,)),
        ("s", "split", ("x",), (8, 4)),
        ("y", "mm", ("s",), ()),
        ("z", "mm", ("s:1",), ()),
    )
    assert tensors(fold(graph).graph) == [("s", "x", ["y"], 8), ("s:1", "x", ["z"], 4)]


def test_an_expanded_view_moves_what_it_was_made_of() -> None:
    graph = built(("x", "mm", (), (4,)), ("e", "expand", ("x",), (400,)), ("y", "mm", ("e",), ()))
    assert tensors(fold(graph).graph) == [("x", "x", ["y"], 4)]


def test_a_view_of_a_weight_makes_its_readers_users() -> None:
    graph = built(
        ("wt", "t", (), (8,)),
        ("x", "mm", (), (4,)),
        ("y", "mm", ("x", "wt"), (4,)),
        ("z", "mm", ("y", "wt"), ()),
        weights={"w": (8, ("wt",))},
    )
    folded = fold(graph).graph
    assert folded.operator_names == ("x", "y", "z")
    assert folded.parameter_bytes.tolist() == [0, 8, 8]
    assert tensors(folded) == [("x", "x", ["y"], 4), ("y", "y", ["z"], 4)]


def test_memory_without_contents_belongs_to_its_only_reader() -> None:
    graph = built(
        ("e", "aten.empty.memory_format", (), (8,)), ("v", "view", ("e",), (8,)), ("f", "fill", ("v",), (8,))
    )
    folded = fold(graph)
    assert folded.graph.operator_names == ("f",)
    assert folded.operator.tolist() == [0, 0, 0]


def test_an_output_of_the_graph_that_is_a_view_is_kept() -> None:
    graph = built(("x", "mm", (), (8,)), ("v", "view", ("x",), (8,)), kept="v")
    assert [(t.name, t.kept) for t in fold(graph).graph.tensors()] == [("x", True)]


def test_a_view_that_reads_from_several_operators_stays() -> None:
    graph = built(
        ("x", "mm", (), (8,)),
        ("i", "arange", (), (8,)),
        ("v", "slice", ("x", "i"), (4,)),
        ("y", "mm", ("v",), ()),
    )
    assert fold(graph).graph == graph


def test_copies_are_no_views() -> None:
    graph = built(
        ("x", "mm", (), (8,)), ("c", "aten.clone.default", ("x",), (8,)), ("r", "Transpose", ("c",), (8,))
    )
    assert fold(graph).graph == graph
    assert not is_view("aten.contiguous.default")
    assert not is_view("reshape")


def test_free_operators_are_folded_with_outputs_of_their_own() -> None:
    graph = built(("x", "mm", (), (8,)), ("p", "pad", ("x",), (16,)), ("y", "mm", ("p",), ()))
    folded = fold(graph, free=np.array([False, True, False])).graph
    assert tensors(folded) == [("p", "x", ["y"], 16)]
    with pytest.raises(BadInput, match="free must be 3 truth values"):
        fold(graph, free=[0, 1, 0])


def test_twins_groups_and_flops_follow() -> None:
    build = GraphBuilder()
    a = build.operator("a", flops=3, colocate="p")
    v = build.operator("v", kind="view", flops=1, reads=[build.tensor(a, size_bytes=8)], colocate="q")
    build.operator("c", reads=[build.tensor(v, size_bytes=8)], colocate="q")
    build.operator("d", colocate="p")
    build.operator("b", phase="backward", twin="v")
    folded = fold(build.build()).graph
    assert folded.operator_names == ("a", "c", "d", "b")
    assert folded.flops.tolist() == [4, 0, 0, 0]
    assert folded.twins.tolist() == [-1, -1, -1, 0]
    assert folded.colocation.tolist() == [0, 0, 0, -1]  # a took over v's group, so both are one


def test_devices_are_lifted_to_views() -> None:
    graph = built(("a", "mm", (), (8,)), ("v", "t", ("a",), (8,)), ("b", "mm", ("v",), (4,)))
    assert fold(graph).lift([1, 0]).tolist() == [1, 1, 0]
    assert fold(graph).lift([[1, 0], [0, 1]]).tolist() == [[1, 1, 0], [0, 0, 1]]


@FEWER
@given(graphs(training=True, colocate=True), st.integers(0, 2**30))
def test_folding_whatever_it_folds_keeps_work_and_order(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    folded = fold(graph, free=rng.random(len(graph)) < 0.5)
    assert folded.graph.flops.sum() == graph.flops.sum()
    assert len(folded.graph) + len(folded.graph.folded) == len(graph)
    # What followed something still does, unless both are one operator now.
    ahead = {(u, v) for u, v in folded.graph.edges.tolist()}
    for u, v in folded.operator[graph.edges].tolist():
        assert u == v or (u, v) in ahead


@FEWER
@given(graphs(), st.integers(0, 2**30))
def test_free_operators_that_stay_with_their_producers_cost_what_they_did(graph: Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    free = rng.random(len(graph)) < 0.5
    folded = fold(graph, free=free)
    cluster = Cluster((Device("d0"), Device("d1")), link_all(["d0", "d1"], bytes_per_second=1e3))
    seconds = np.where(free, 0.0, rng.integers(0, 5, len(graph)))[:, None].repeat(2, axis=1)
    before = Problem(
        graph, cluster, Costs(graph, cluster, seconds), objective=Latency(execution="sequential")
    )
    own = np.zeros((len(folded.graph), 2))
    np.add.at(own, folded.operator, seconds)
    after = Problem(
        folded.graph, cluster, Costs(folded.graph, cluster, own), objective=Latency(execution="sequential")
    )
    rows = rng.integers(0, 2, (8, len(folded.graph))).astype(np.uint8)
    small, large = (
        simulate_many(after, rows, memory="off", threads=1),
        simulate_many(before, folded.lift(rows), memory="off", threads=1),
    )
    assert small.ticks.tolist() == large.ticks.tolist()
