"""Weights where they are held: a weight is resident once wherever at least one of its users is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.graph.arrays import distinct_pairs
from stead.graph.graph import Graph


def resident(graph: Graph, place: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # each [copy]
    """(weight, place) of every copy of a weight, sorted; `place` is the device or group of each operator."""
    return distinct_pairs(graph.weight_of_use, place[graph.weight_users])


def resident_bytes(
    graph: Graph, place: NDArray[Any], count: int, *, among: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:  # [place]
    """Bytes of the weights in each of `count` places; of those `among` weights only.

    >>> from stead.graph import GraphBuilder
    >>> build = GraphBuilder()
    >>> build.weight("tied", size_bytes=8, users=[build.operator(name) for name in "abc"])
    >>> resident_bytes(build.build(), np.array([0, 1, 1]), 2).tolist()
    [8, 8]
    """
    weight, host = resident(graph, place)
    sizes = graph.weight_bytes if among is None else np.where(among, graph.weight_bytes, 0)
    held = np.zeros(count, dtype=np.int64)
    np.add.at(held, host, sizes[weight])
    return held
