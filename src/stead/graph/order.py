"""Levels of operators, and how much work lies behind each."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.errors import BadInput
from stead.graph.arrays import distinct_pairs
from stead.graph.graph import Graph


def levels(graph: Graph) -> NDArray[np.int32]:  # [operator]
    """Edges on the longest path from an operator without inputs to each operator.

    >>> from stead.testing import diamond
    >>> levels(diamond().graph).tolist()
    [0, 1, 1, 2]
    """
    return longest_paths(len(graph), *edge_pairs(graph))


def bottom_levels(graph: Graph) -> NDArray[np.int32]:  # [operator]
    """Edges on the longest path from each operator to one whose outputs nobody reads."""
    sources, targets = edge_pairs(graph)
    back = np.argsort(-targets, kind="stable")  # every edge after those behind it
    return longest_paths(len(graph), targets[back], sources[back])


def upward_ranks(
    graph: Graph, seconds: ArrayLike, tensor_seconds: ArrayLike | None = None
) -> NDArray[np.float64]:  # [operator]
    """Seconds from the start of each operator to the end of the graph, each tensor taking its time on every edge."""
    rank = _per_operator("seconds", seconds, len(graph)).tolist()
    move = _tensor_times(graph, tensor_seconds)
    tensor_first, reader_first = graph.tensor_first.tolist(), graph.reader_first.tolist()
    readers = graph.readers.tolist()
    for v in range(len(graph) - 1, -1, -1):
        longest = 0.0
        for t in range(tensor_first[v], tensor_first[v + 1]):
            behind = readers[reader_first[t] : reader_first[t + 1]]
            if behind:
                longest = max(longest, move[t] + max([rank[c] for c in behind]))
        rank[v] += longest
    return np.array(rank, dtype=np.float64)


def edge_pairs(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # each [edge]
    """(producers, readers) of every pair of operators that shares a tensor, each pair once, sorted."""
    producers = np.repeat(graph.tensor_producer, np.diff(graph.reader_first))
    return distinct_pairs(producers, graph.readers)


def longest_paths(count: int, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Longest paths to each node; an edge comes after all edges that lead to its source."""
    longest = [0] * count
    for u, v in zip(sources.tolist(), targets.tolist(), strict=True):
        if longest[u] >= longest[v]:
            longest[v] = longest[u] + 1
    return np.array(longest, dtype=np.int32)


def _per_operator(what: str, given: ArrayLike, count: int) -> NDArray[np.float64]:
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (count,):
        raise BadInput(
            f"{what} must be {count} numbers, one per operator; got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.float64)


def _tensor_times(graph: Graph, given: ArrayLike | None) -> list[float]:
    if given is None:
        return [0.0] * graph.tensor_count
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (graph.tensor_count,):
        raise BadInput(
            f"tensor_seconds must be {graph.tensor_count} numbers, one per tensor; "
            f"got {array.dtype} of shape {array.shape}"
        )
    times: list[float] = array.astype(np.float64).tolist()
    return times
