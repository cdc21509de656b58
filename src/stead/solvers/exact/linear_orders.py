"""Linear orders of supernodes: every prefix of one is closed, so cutting it gives contiguous stages."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stead.graph.order import longest_paths
from stead.solvers.exact.reduction import Reduced


def linear_orders(reduced: Reduced, *, seed: int, drawn: int) -> Iterator[NDArray[np.int32]]:  # [position]
    """Depth first, breadth first, by depth from either end, and `drawn` at random; each once."""
    graph = _Order(reduced)
    seen: set[bytes] = set()
    rng = np.random.default_rng(seed)
    count = reduced.count
    depth = longest_paths(count, graph.sources, graph.targets).astype(np.int64)
    back = np.argsort(-graph.targets, kind="stable")
    height = longest_paths(count, graph.targets[back], graph.sources[back]).astype(np.int64)
    candidates = [
        lambda: graph.depth_first(np.arange(count)),
        lambda: graph.depth_first(-np.arange(count)),
        lambda: graph.by_priority(np.arange(count)),
        lambda: graph.by_priority(depth * count + np.arange(count)),
        lambda: graph.by_priority(-height * count + np.arange(count)),
        lambda: graph.depth_first(height),
    ]
    for number in range(len(candidates) + drawn):
        if number < len(candidates):
            order = candidates[number]()
        elif number % 2:
            order = graph.by_priority(rng.permutation(count))
        else:
            order = graph.depth_first(rng.permutation(count))
        if order.tobytes() not in seen:
            seen.add(order.tobytes())
            yield order


class _Order:
    """The order relation with what walking along it needs."""

    def __init__(self, reduced: Reduced) -> None:
        self.count = reduced.count
        self.sources = reduced.order[:, 0].astype(np.int64)
        self.targets = reduced.order[:, 1].astype(np.int64)
        self.first = np.searchsorted(self.sources, np.arange(self.count + 1)).tolist()
        self.children = self.targets.tolist()
        self.missing = np.bincount(self.targets, minlength=self.count).tolist()

    def by_priority(self, priority: NDArray[np.int64]) -> NDArray[np.int32]:
        """Always the possible node of lowest priority."""
        missing, given = self.missing.copy(), priority.tolist()
        ready = [(given[v], v) for v in range(self.count) if missing[v] == 0]
        heapq.heapify(ready)
        order = []
        while ready:
            _, v = heapq.heappop(ready)
            order.append(v)
            for child in self.children[self.first[v] : self.first[v + 1]]:
                missing[child] -= 1
                if missing[child] == 0:
                    heapq.heappush(ready, (given[child], child))
        return np.array(order, dtype=np.int32)

    def depth_first(self, priority: NDArray[np.int64]) -> NDArray[np.int32]:
        """Go on with what the last node made possible, lowest priority first."""
        missing, given = self.missing.copy(), priority.tolist()
        ready = sorted((v for v in range(self.count) if missing[v] == 0), key=lambda v: -given[v])
        order = []
        while ready:
            v = ready.pop()
            order.append(v)
            opened = []
            for child in self.children[self.first[v] : self.first[v + 1]]:
                missing[child] -= 1
                if missing[child] == 0:
                    opened.append(child)
            ready += sorted(opened, key=lambda child: -given[child])
        return np.array(order, dtype=np.int32)
