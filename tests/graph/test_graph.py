"""Graph and GraphBuilder: what is checked, how things are ordered, what is promised."""

from __future__ import annotations

import numpy as np
import pytest

from stead.errors import BadGraph
from stead.graph import Graph, GraphBuilder


def pair(name: str = "pair") -> Graph:
    """a writes 4 bytes that b reads; both use one weight."""
    build = GraphBuilder(name)
    a = build.operator("a", kind="MatMul", module="net.0", flops=10, moved_bytes=20)
    x = build.tensor(a, size_bytes=4)
    b = build.operator("b", reads=[x])
    build.weight("w", size_bytes=100, users=[a, b])
    return build.build()


def test_operators_come_out_in_the_given_order_where_it_is_topological() -> None:
    assert pair().operator_names == ("a", "b")


def test_operators_given_backwards_are_sorted() -> None:
    build = GraphBuilder()
    late = build.operator("late")
    early = build.operator("early")
    build.read(late, build.tensor(early, size_bytes=1))
    assert build.build().operator_names == ("early", "late")


def test_a_tensor_read_twice_by_one_operator_is_read_once() -> None:
    build = GraphBuilder()
    x = build.tensor(build.operator("a"), size_bytes=1)
    build.operator("b", reads=[x, x])
    assert build.build().readers.tolist() == [1]


def test_control_dependencies_of_one_producer_become_one_tensor_of_no_bytes() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    build.operator("b", after=[a])
    build.operator("c", after=[a])
    graph = build.build()
    assert (graph.tensor_names, graph.tensor_bytes.tolist(), graph.readers.tolist()) == (("^a",), [0], [1, 2])


def test_a_control_dependency_beside_a_data_dependency_is_dropped() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    x = build.tensor(a, size_bytes=8)
    build.operator("b", reads=[x], after=[a])
    assert build.build().tensor_count == 1


def test_a_shared_weight_counts_in_full_for_each_user() -> None:
    assert pair().parameter_bytes.tolist() == [100, 100]


def test_an_operator_view_says_everything() -> None:
    a = pair().operator(0)
    assert (a.name, a.kind, a.module, a.flops, a.moved_bytes, a.reads, a.writes) == (
        "a", "MatMul", "net.0", 10.0, 20.0, (), (0,),
    )  # fmt: skip


def test_twins_and_groups_survive_sorting() -> None:
    build = GraphBuilder()
    backward = build.operator("g", phase="backward", twin="f", colocate="pair")
    forward = build.operator("f", colocate="pair")
    build.read(backward, build.tensor(forward, size_bytes=1))
    graph = build.build()
    assert (graph.operator_names, graph.twins.tolist(), graph.colocation.tolist()) == (
        ("f", "g"),
        [-1, 0],
        [0, 0],
    )


def test_a_group_of_one_is_no_group() -> None:
    build = GraphBuilder()
    build.operator("a", colocate="alone")
    assert build.build().colocation.tolist() == [-1]


def test_arrays_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        pair().tensor_bytes[0] = 1


def test_equal_graphs_have_equal_fingerprints_and_another_name_another_one() -> None:
    assert pair() == pair()
    assert pair() != pair("other")


def test_a_tensor_remembers_shape_and_dtype_and_a_folded_name_its_operator() -> None:
    build = GraphBuilder()
    a = build.operator("a")
    build.tensor(a, size_bytes=8, shape=(2,), dtype="fp32")
    build.fold("a.view", a)
    graph = build.build()
    assert (graph.tensor(0).shape, graph.tensor(0).dtype, dict(graph.folded)) == (
        (2,),
        "fp32",
        {"a.view": "a"},
    )


def test_a_cycle_is_named() -> None:
    build = GraphBuilder()
    a, b = build.operator("a"), build.operator("b")
    build.read(b, build.tensor(a, size_bytes=1))
    build.read(a, build.tensor(b, size_bytes=1))
    with pytest.raises(BadGraph, match=r"cycle: (a -> b -> a|b -> a -> b)"):
        build.build()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "empty name"),
        ({"name": "a", "flops": float("nan")}, "flops must be a finite number"),
        ({"name": "a", "moved_bytes": -1}, "bytes moved must be a finite number"),
        ({"name": "a", "phase": "sideways"}, "phase is one of"),
    ],
)
def test_nonsense_operators_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(BadGraph, match=message):
        GraphBuilder().operator(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [-1, 1.5, True, 2**63, "4"])
def test_nonsense_sizes_are_refused(size: object) -> None:
    build = GraphBuilder()
    a = build.operator("a")
    with pytest.raises(BadGraph, match="bytes must be a whole number"):
        build.tensor(a, size_bytes=size)  # type: ignore[arg-type]


def test_two_operators_of_one_name_are_refused() -> None:
    build = GraphBuilder()
    build.operator("a")
    with pytest.raises(BadGraph, match="two operators are called 'a'"):
        build.operator("a")


def test_an_unknown_twin_is_refused() -> None:
    build = GraphBuilder()
    build.operator("a", twin="b")
    with pytest.raises(BadGraph, match="its twin 'b' does not exist"):
        build.build()


def test_a_long_chain_builds_without_recursion() -> None:
    build = GraphBuilder()
    x = build.tensor(build.operator("0"), size_bytes=1)
    for v in range(1, 20_000):
        x = build.tensor(build.operator(str(v), reads=[x]), size_bytes=1)
    graph = build.build()
    assert np.array_equal(graph.edges[:, 1] - graph.edges[:, 0], np.ones(19_999))
