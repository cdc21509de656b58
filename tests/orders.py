"""Orders of operators for tests: whether one is topological, and some topological one."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.graph import Graph


def is_topological(graph: Graph, order: ArrayLike) -> bool:
    """Whether every operator occurs once, after everything it reads from."""
    given = np.asarray(order)
    if given.shape != (len(graph),) or not np.array_equal(np.sort(given), np.arange(len(graph))):
        return False
    position = np.argsort(given)
    return bool((position[graph.edges[:, 0]] < position[graph.edges[:, 1]]).all())


def random_order(graph: Graph, seed: int) -> NDArray[np.int32]:  # [position]
    """Some topological order; the same for the same seed."""
    rng = np.random.default_rng(seed)
    waits = {v: {u for u, w in graph.edges.tolist() if w == v} for v in range(len(graph))}
    order: list[int] = []
    while waits:
        chosen = int(rng.choice([v for v, before in waits.items() if before <= set(order)]))
        del waits[chosen]
        order.append(chosen)
    return np.array(order, dtype=np.int32)
