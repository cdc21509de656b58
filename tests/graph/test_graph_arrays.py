"""Graphs from arrays: the same graphs as the builder makes, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import graphs

from stead.errors import BadGraph
from stead.graph import Graph
from stead.graph.arrays import distinct_pairs, graph_from_arrays, with_colocation

FEWER = settings(max_examples=settings.default.max_examples * 2 // 5)

PAIR: dict[str, Any] = {
    "operator_names": ["a", "b"],
    "tensor_producer": [0, 0],
    "tensor_bytes": [4, 8],
    "reads": ([0, 1], [1, 1]),
}


def arrays_of(graph: Graph) -> dict[str, Any]:
    """A graph as arguments of `graph_from_arrays`."""
    tensor = np.repeat(np.arange(graph.tensor_count), np.diff(graph.reader_first))
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
    return {
        "operator_names": graph.operator_names,
        "kinds": graph.kinds,
        "modules": graph.modules,
        "dtypes": graph.dtypes,
        "phases": graph.phases,
        "flops": graph.flops,
        "moved_bytes": graph.moved_bytes,
        "twins": graph.twins,
        "colocation": graph.colocation,
        "colocation_names": graph.colocation_names,
        "tensor_producer": graph.tensor_producer,
        "tensor_bytes": graph.tensor_bytes,
        "tensor_kept": graph.tensor_kept,
        "tensor_names": graph.tensor_names,
        "tensor_shapes": graph.tensor_shapes,
        "tensor_dtypes": graph.tensor_dtypes,
        "reads": (tensor[::-1], graph.readers[::-1]),
        "weight_names": graph.weight_names[::-1],
        "weight_bytes": graph.weight_bytes[::-1],
        "weight_uses": (len(graph.weight_bytes) - 1 - weight, graph.weight_users),
        "folded": graph.folded,
    }


@FEWER
@given(graphs(training=True, colocate=True))
def test_a_graph_comes_back_from_its_arrays_in_any_order(graph: Graph) -> None:
    assert graph_from_arrays(graph.name, **arrays_of(graph)) == graph


def test_outputs_are_named_like_the_builder_names_them() -> None:
    assert graph_from_arrays("pair", **PAIR).tensor_names == ("a", "a:1")


def test_a_tensor_read_twice_by_one_operator_has_one_reader() -> None:
    graph = graph_from_arrays("pair", **{**PAIR, "reads": ([0, 0], [1, 1])})
    assert graph.tensor(0).readers == (1,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"operator_names": ["a", "a"]}, "two operators are called 'a'"),
        ({"operator_names": ["a", ""]}, "operator number 2 has an empty name"),
        ({"reads": ([0], [0])}, "operator 'a' reads from 'a', which does not come before it"),
        ({"reads": ([2], [1])}, r"tensors read must lie in 0\.\.1, got 2\.\.2"),
        ({"tensor_producer": [1, 0]}, "tensors must be sorted by their producer"),
        ({"tensor_bytes": [4, -1]}, r"tensor bytes must lie in 0\.\.2\^62"),
        ({"tensor_bytes": [4.0, 8.0]}, "tensor bytes must be 2 whole numbers"),
        ({"flops": [1.0, np.inf]}, "operator 'b': flops must be a finite number"),
        ({"moved_bytes": [1.0]}, "bytes moved must be 2 numbers"),
        ({"phases": [0, 3]}, r"phases must lie in 0\.\.2"),
        ({"twins": [-1, 2]}, r"twins must lie in -1\.\.1"),
        ({"kinds": ["x"]}, "kinds: 2 are needed, 1 are given"),
        ({"weight_names": ["w"], "weight_bytes": [1]}, "weight 'w' has no user"),
    ],
)
def test_what_makes_no_graph_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadGraph, match=message):
        graph_from_arrays("pair", **{**PAIR, **change})


def test_groups_of_one_operator_are_no_colocation() -> None:
    graph = with_colocation(graph_from_arrays("pair", **PAIR), [1, 0], ["x", "y"])
    assert (graph.colocation.tolist(), graph.colocation_names) == ([-1, -1], ())


def test_colocation_groups_are_numbered_as_they_appear() -> None:
    graph = with_colocation(graph_from_arrays("pair", **PAIR), [1, 1], ["x", "y"])
    assert (graph.colocation.tolist(), graph.colocation_names) == ([0, 0], ("y",))


def test_every_pair_is_kept_once_in_order() -> None:
    first, second = distinct_pairs(np.array([2, 0, 2, 0]), np.array([1, 5, 1, 3]))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 3), (0, 5), (2, 1)]
