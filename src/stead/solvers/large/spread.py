"""The whole model along all devices of a large cluster: consecutive pieces, as long as their devices are quick.

Units stand in an order of the graph, devices in the order of the cluster, where neighbours are near. A bisection finds
the least time per device with which the pieces reach the end and every piece fits its memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices, device_type
from stead.problem import Problem
from stead.solvers.build.chunks import topological

STEPS = 40  # of the bisection: beyond them nothing changes


def spreads(problem: Problem, devices: Sequence[int]) -> Iterator[DeviceIndices]:
    """Rows [operator] that divide the model over all of some devices, half of them and so on, for a few orders."""
    line = _Line(problem)
    count = len(devices)
    while count >= 1:
        for order in line.orders:
            row = line.divided(order, devices[:count])
            if row is not None:
                yield row
        count //= 2


class _Line:
    """Units with their times by column, what they hold, and orders to stand in."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        units, graph = problem.units, problem.graph
        seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)
        self._seconds = np.zeros((problem.unit_count, seconds.shape[1]))
        np.add.at(self._seconds, units, seconds)
        outputs = np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=len(graph))
        held = np.bincount(units, weights=graph.parameter_bytes + outputs, minlength=problem.unit_count)
        self._bytes = held.astype(np.float64)  # [unit]
        by_level = topological(problem, "level")
        rank = np.empty(len(graph), dtype=np.int64)
        rank[by_level] = np.arange(len(graph))
        first = problem.unit_firsts
        self.orders = [np.arange(problem.unit_count), np.argsort(rank[first], kind="stable")]

    def divided(self, order: NDArray[np.int64], devices: Sequence[int]) -> DeviceIndices | None:
        """Consecutive pieces of an order, or None where a unit may not run where its turn comes or nothing fits."""
        columns = self._problem.columns[list(devices)]
        ahead = np.zeros((self._seconds.shape[1], len(order) + 1))  # [column, units before]
        np.cumsum(self._seconds[order].T, axis=1, out=ahead[:, 1:])
        if not np.isfinite(ahead[:, -1]).all():
            return None
        held = np.concatenate([[0.0], np.cumsum(self._bytes[order])])
        room = self._problem.limit_bytes[list(devices)].astype(np.float64)
        low, high = 0.0, float(ahead[:, -1].max())
        best = _borders(ahead, held, columns, room, high)
        if best is None:
            return None
        for _ in range(STEPS):
            middle = (low + high) / 2
            found = _borders(ahead, held, columns, room, middle)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        where = np.empty(len(order), dtype=np.int64)
        where[order] = np.asarray(devices)[np.searchsorted(best, np.arange(len(order)), side="right")]
        return where[self._problem.units].astype(device_type(len(self._problem.cluster)))


def _borders(
    ahead: NDArray[np.float64], held: NDArray[np.float64], columns: NDArray[np.uint16], room: NDArray[np.float64],
    most: float,
) -> list[int] | None:  # fmt: skip
    """Where each device's piece ends if none takes longer than `most`; None if devices end before the units do."""
    ends: list[int] = []
    begin, count = 0, len(held) - 1
    for c, limit in zip(columns.tolist(), room.tolist(), strict=True):
        by_time = int(np.searchsorted(ahead[c], ahead[c, begin] + most, side="right")) - 1
        by_room = int(np.searchsorted(held, held[begin] + limit, side="right")) - 1
        begin = max(begin, min(by_time, by_room))
        ends.append(begin)
        if begin >= count:
            return ends[:-1]
    return None
