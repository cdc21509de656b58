"""The whole model along all devices of a large cluster: consecutive pieces, as long as their devices are quick.

Units stand in an order of the graph, devices in the order of the cluster, where neighbours are near. A bisection finds
the least time per device with which the pieces reach the end and every piece fits its memory. Devices of a full
pipeline also send and receive: there units count with what they exchanged in the division before, round by round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices, device_type
from stead.graph.paths import module_path
from stead.problem import Problem
from stead.solvers.auto_steps import is_full_pipeline
from stead.solvers.build.chunks import topological
from stead.solvers.large.traffic import Seconds, Traffic

TOLERANCE = 1e-4  # of the bisection, relative: finer ones seldom move a border
ROUNDS = 16  # of dividing anew with what was exchanged
VAIN_ROUNDS = 2  # in a row, after which it ends
LEAST_GAIN = 0.002  # of a round, relative


def spreads(problem: Problem, devices: Sequence[int]) -> Iterator[DeviceIndices]:
    """Rows [operator] that divide the model over all of some devices, half of them and so on, for a few orders."""
    line, count = _Line(problem), len(devices)
    if is_full_pipeline(problem):
        for order in line.orders:
            yield from _settling(line, order, devices)
    while count >= 1:
        for order in line.orders:
            row = line.divided(order, devices[:count])
            if row is not None:
                yield row
        count //= 2


def _settling(line: _Line, order: NDArray[np.int64], devices: Sequence[int]) -> Iterator[DeviceIndices]:
    """Divisions each of which counts what was exchanged in those before it, until that no longer helps."""
    exchanged: Seconds = np.zeros(line.problem.unit_count)
    best, vain = np.inf, 0
    for number in range(ROUNDS):
        row = line.divided(order, devices, exchanged)
        if row is None or vain == VAIN_ROUNDS:
            return
        yield row
        traffic = Traffic(line.problem, row)
        busiest = float(traffic.load_seconds.max())
        best, vain = min(best, busiest), 0 if busiest < best * (1 - LEAST_GAIN) else vain + 1
        # Half of what was believed before: without it pieces grow and shrink in turn.
        exchanged = (exchanged + traffic.unit_seconds) / (2 if number else 1)


class _Line:
    """Units with their times by column, what they hold, and orders to stand in."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        units, graph = problem.units, problem.graph
        seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)
        self._seconds = np.zeros((problem.unit_count, seconds.shape[1]))
        np.add.at(self._seconds, units, seconds)
        outputs = np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=len(graph))
        users = np.diff(graph.weight_user_first)
        share = np.repeat(graph.weight_bytes / np.maximum(users, 1), users)  # [use]
        shared = np.bincount(graph.weight_users, weights=share, minlength=len(graph))
        # [unit]; a weight of many users counts for each, which is safe, or is shared out among them, which packs more
        self._safe_bytes, self._shared_bytes = (
            np.bincount(units, weights=weights + outputs, minlength=problem.unit_count).astype(np.float64)
            for weights in (graph.parameter_bytes, shared)
        )
        self.orders = _orders(problem)

    def divided(
        self, order: NDArray[np.int64], devices: Sequence[int], exchanged: Seconds | None = None
    ) -> DeviceIndices | None:
        """Consecutive pieces of an order, or None where a unit may not run where its turn comes or nothing fits.

        Units take what they compute, and what they `exchanged` [unit] if that is given; then the simulator has to say
        whether weights fit that many units share.
        """
        columns = self.problem.columns[list(devices)]
        seconds = self._seconds if exchanged is None else self._seconds + exchanged[:, None]
        ahead = np.zeros((seconds.shape[1], len(order) + 1))  # [column, units before]
        np.cumsum(seconds[order].T, axis=1, out=ahead[:, 1:])
        if not np.isfinite(ahead[:, -1]).all():
            return None
        own_bytes = self._safe_bytes if exchanged is None else self._shared_bytes
        held = np.concatenate([[0.0], np.cumsum(own_bytes[order])])
        room = self.problem.limit_bytes[list(devices)].astype(np.float64)
        low, most = float(ahead[:, -1].min()) / len(devices), float(ahead[:, -1].max())
        high = min(2 * low, most)
        while (best := _borders(ahead, held, columns, room, high)) is None:
            if high >= most:
                return None
            low, high = high, min(2 * high, most)
        while high - low > TOLERANCE * high:
            middle = (low + high) / 2
            found = _borders(ahead, held, columns, room, middle)
            if found is None:
                low = middle
            else:
                high, best = middle, found
        where = np.empty(len(order), dtype=np.int64)
        where[order] = np.asarray(devices)[np.searchsorted(best, np.arange(len(order)), side="right")]
        return where[self.problem.units].astype(device_type(len(self.problem.cluster)))


def _orders(problem: Problem) -> list[NDArray[np.int64]]:  # of units
    """By first operator, by level, and for full pipelines, which need no order to run in, module by module.

    The calls of a module share weights and often what they read: unrolled steps of a layer stand together.
    """
    first = problem.unit_firsts
    level = np.empty(len(problem.graph), dtype=np.int64)
    level[topological(problem, "level")] = np.arange(len(problem.graph))
    orders = [np.arange(problem.unit_count), np.argsort(level[first], kind="stable")]
    if is_full_pipeline(problem):
        calls = [problem.graph.modules[v] for v in first.tolist()]
        paths = {call: module_path(call) for call in set(calls)}
        begins: dict[str, int] = {}
        module = np.array([begins.setdefault(paths[call], unit) for unit, call in enumerate(calls)], dtype=np.int64)
        orders.append(np.argsort(module, kind="stable"))
    return list({order.tobytes(): order for order in orders}.values())


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
