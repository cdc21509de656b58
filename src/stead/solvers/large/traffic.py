"""What the devices of a placement send and receive, tensor by tensor, and how busy a full pipeline keeps them.

Seconds are about those of the simulator: enough to divide work by, never a result.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.transfer_times import wire_ticks

Seconds = NDArray[np.float64]


class Traffic:
    """Every transfer of a placement, once for each tensor and device that reads it elsewhere."""

    def __init__(self, problem: Problem, row: DeviceIndices) -> None:
        graph = problem.graph
        self._problem, self._on = problem, row.astype(np.int64)
        tensor, reader = graph.tensor_of_read, graph.readers
        source, target = self._on[graph.tensor_producer[tensor]], self._on[reader]
        crossing = np.flatnonzero(source != target)
        key = tensor[crossing] * len(problem.cluster) + target[crossing]
        order = np.argsort(key, kind="stable")  # readers of a tensor stand in order: the first one is charged
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = np.diff(key[order]) != 0
        first = crossing[order[begins]]
        self._tensor, self._reader = tensor[first], reader[first]  # [transfer]
        self._source, self._target = source[first], target[first]
        latency = problem.routes.latency_seconds[self._source, self._target]
        wire = wire_ticks(problem, self._tensor, self._source, self._target) / TICKS_PER_SECOND
        self._seconds: Seconds = latency + wire

    @cached_property
    def unit_seconds(self) -> Seconds:  # [unit]
        """Seconds that devices send and receive for every unit; what several of one device read, for the first."""
        units, count = self._problem.units, self._problem.unit_count
        makers = self._problem.graph.tensor_producer[self._tensor]
        return _sums(units[makers], self._seconds, count) + _sums(units[self._reader], self._seconds, count)

    @cached_property
    def load_seconds(self) -> Seconds:  # [device]
        """Seconds that every device computes, sends and receives."""
        problem, count = self._problem, len(self._problem.cluster)
        computed = _sums(self._on, problem.costs.seconds_on(self._on), count)
        return computed + _sums(self._source, self._seconds, count) + _sums(self._target, self._seconds, count)

    @property
    def held(self) -> NDArray[np.bool_]:  # [device]
        """Devices that hold anything."""
        held: NDArray[np.bool_] = np.bincount(self._on, minlength=len(self._problem.cluster)) > 0
        return held

    def exchanged_seconds(self, device: int) -> Seconds:  # [device]
        """Seconds of all transfers between a device and every other one."""
        count = len(self._problem.cluster)
        to, fro = self._source == device, self._target == device
        sent = _sums(self._target[to], self._seconds[to], count)
        return sent + _sums(self._source[fro], self._seconds[fro], count)


def _sums(owner: NDArray[np.signedinteger[Any]], seconds: Seconds, count: int) -> Seconds:
    """Seconds by owner."""
    sums: Seconds = np.bincount(owner, weights=seconds, minlength=count).astype(np.float64)
    return sums
