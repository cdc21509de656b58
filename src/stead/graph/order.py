"""Orders in which operators may run, levels, and how much work lies before and behind each operator."""

from __future__ import annotations

import heapq
from collections import deque

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


def depth_first_order(graph: Graph) -> NDArray[np.int32]:  # [position]
    """A topological order that goes on with what the last operator made possible (last in, first out).

    >>> from stead.testing import two_towers
    >>> [two_towers().graph.operator_names[v] for v in depth_first_order(two_towers().graph)]
    ['l1', 'l2', 'r1', 'r2', 'head']
    """
    first, children, missing = _children(graph)
    ready = [v for v in range(len(graph) - 1, -1, -1) if missing[v] == 0]
    order = []
    while ready:
        v = ready.pop()
        order.append(v)
        for child in reversed(children[first[v] : first[v + 1]]):
            missing[child] -= 1
            if missing[child] == 0:
                ready.append(child)
    return np.array(order, dtype=np.int32)


def breadth_first_order(graph: Graph) -> NDArray[np.int32]:  # [position]
    """A topological order that takes operators as they become possible (first in, first out)."""
    first, children, missing = _children(graph)
    ready = deque(v for v in range(len(graph)) if missing[v] == 0)
    order = []
    while ready:
        v = ready.popleft()
        order.append(v)
        for child in children[first[v] : first[v + 1]]:
            missing[child] -= 1
            if missing[child] == 0:
                ready.append(child)
    return np.array(order, dtype=np.int32)


def level_order(graph: Graph) -> NDArray[np.int32]:  # [position]
    """Operators by level, those of one level by index."""
    return np.argsort(levels(graph), kind="stable").astype(np.int32)


def priority_order(graph: Graph, priority: ArrayLike) -> NDArray[np.int32]:  # [position]
    """The topological order that always takes the operator of lowest priority among the possible ones."""
    given = _per_operator("priority", priority, len(graph)).tolist()
    first, children, missing = _children(graph)
    ready = [(given[v], v) for v in range(len(graph)) if missing[v] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, v = heapq.heappop(ready)
        order.append(v)
        for child in children[first[v] : first[v + 1]]:
            missing[child] -= 1
            if missing[child] == 0:
                heapq.heappush(ready, (given[child], child))
    return np.array(order, dtype=np.int32)


def random_order(graph: Graph, seed: int) -> NDArray[np.int32]:  # [position]
    """Some topological order; the same for the same seed."""
    return priority_order(graph, np.random.default_rng(seed).random(len(graph)))


def is_topological(graph: Graph, order: ArrayLike) -> bool:
    """Whether every operator occurs once, after everything it reads from."""
    given = np.asarray(order)
    if given.shape != (len(graph),) or not np.array_equal(np.sort(given), np.arange(len(graph))):
        return False
    position = np.empty(len(graph), dtype=np.int64)
    position[given] = np.arange(len(graph))
    sources, targets = edge_pairs(graph)
    return bool((position[sources] < position[targets]).all())


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


def downward_ranks(
    graph: Graph, seconds: ArrayLike, tensor_seconds: ArrayLike | None = None
) -> NDArray[np.float64]:  # [operator]
    """Seconds from the start of the graph to the earliest start of each operator, devices being unlimited."""
    own = _per_operator("seconds", seconds, len(graph)).tolist()
    move = _tensor_times(graph, tensor_seconds)
    producer, read_first = graph.tensor_producer.tolist(), graph.read_first.tolist()
    reads = graph.read_tensors.tolist()
    start = [0.0] * len(graph)
    for v in range(len(graph)):
        for t in reads[read_first[v] : read_first[v + 1]]:
            arrives = start[producer[t]] + own[producer[t]] + move[t]
            if arrives > start[v]:
                start[v] = arrives
    return np.array(start, dtype=np.float64)


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


def _children(graph: Graph) -> tuple[list[int], list[int], list[int]]:
    """(first, children, number of parents) of every operator, as lists: loops over them are twice as fast."""
    sources, targets = edge_pairs(graph)
    first = np.searchsorted(sources, np.arange(len(graph) + 1))
    return first.tolist(), targets.tolist(), np.bincount(targets, minlength=len(graph)).tolist()


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
