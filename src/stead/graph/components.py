"""Connected and strongly connected components, for unions of groups and for cycles between them."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray


def connected(count: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int64]:  # [item]
    """The lowest item of each item's component, where every `first[i]` and `second[i]` are joined.

    >>> connected(5, np.array([3, 4]), np.array([1, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    lowest = np.arange(count)
    while True:
        a, b = lowest[first], lowest[second]
        apart = a != b
        if not apart.any():
            return lowest
        np.minimum.at(lowest, np.maximum(a, b)[apart], np.minimum(a, b)[apart])
        while True:  # let every item point at the end of its chain
            jumped = lowest[lowest]
            if np.array_equal(jumped, lowest):
                break
            lowest = jumped


def topological_numbers(count: int, sources: NDArray[Any], targets: NDArray[Any]) -> NDArray[np.int64] | None:
    """A number per node that rises along every edge, close to the given numbering; None if there is a cycle.

    Edges are sorted by source and none leads from a node to itself.
    """
    if (sources < targets).all():
        return np.arange(count)
    first = np.searchsorted(sources, np.arange(count + 1)).tolist()
    children, missing = targets.tolist(), np.bincount(targets, minlength=count).tolist()
    ready = [v for v in range(count) if missing[v] == 0]
    order = []
    while ready:
        v = heapq.heappop(ready)
        order.append(v)
        for child in children[first[v] : first[v + 1]]:
            missing[child] -= 1
            if missing[child] == 0:
                heapq.heappush(ready, child)
    if len(order) < count:
        return None
    numbers = np.empty(count, dtype=np.int64)
    numbers[order] = np.arange(count)
    return numbers


def strongly_connected(
    count: int, sources: NDArray[Any], targets: NDArray[Any]
) -> NDArray[np.int64]:  # [node]
    """A label per node, equal for nodes on a common cycle (Tarjan 1972, without recursion).

    Edges are sorted by source.
    """
    first = np.searchsorted(sources, np.arange(count + 1)).tolist()
    children = targets.tolist()
    found = [-1] * count  # when the search came to a node
    low = [0] * count  # the earliest open node that can be reached from it
    label = [-1] * count
    clock = 0
    open_nodes: list[int] = []
    for root in range(count):
        if found[root] >= 0:
            continue
        path = [(root, first[root])]
        while path:
            v, edge = path.pop()
            if found[v] < 0:
                found[v] = low[v] = clock
                clock += 1
                open_nodes.append(v)
            else:  # back from the child behind the edge before this one
                low[v] = min(low[v], low[children[edge - 1]])
            while edge < first[v + 1]:
                child = children[edge]
                edge += 1
                if found[child] < 0:
                    path += [(v, edge), (child, first[child])]
                    break
                if label[child] < 0:
                    low[v] = min(low[v], found[child])
            else:
                if low[v] == found[v]:
                    while label[v] < 0:
                        label[open_nodes.pop()] = v
    return np.array(label, dtype=np.int64)
