"""A problem as lists, bytes and whole picoseconds: what the specifications read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.problem.ticks import MOST_TICKS, TICKS_PER_SECOND

IMPOSSIBLE = -1  # duration of an operator that cannot run there, latency of a way that does not exist
WRITE, READ = 0, 1  # host memory


class Tables:
    """Operators v, tensors t, devices s, d, k and ways between them.

    The index of an operator is its topological rank and breaks ties. Time is whole picoseconds ("ticks").
    """

    def __init__(self, problem: Problem) -> None:
        graph, routes, cluster = problem.graph, problem.routes, problem.cluster
        seconds = np.where(problem.allowed, problem.costs.seconds, np.inf)
        self.operators, self.devices = len(graph), len(cluster)

        self.duration = _ticks_table(seconds)  # [operator][device]
        self.workspace: list[list[int]] = problem.costs.workspace_bytes.tolist()  # [operator][device]
        self.phase: list[int] = graph.phases.tolist()  # 0 forward, 1 backward, 2 update
        self.outputs = [range(a, b) for a, b in pairwise(graph.tensor_first.tolist())]  # tensors
        self.inputs = _rows(graph.read_first, graph.read_tensors)  # tensors, increasing

        self.producer: list[int] = graph.tensor_producer.tolist()
        self.readers = _rows(graph.reader_first, graph.readers)  # operators, increasing
        self.tensor_bytes: list[int] = graph.tensor_bytes.tolist()
        self.kept: list[int] = graph.tensor_kept.tolist()
        given = problem.costs.tensor_seconds
        self.tensor_ticks = None if given is None else [ticks(x) for x in given.tolist()]  # over one hop

        self.weight_bytes: list[int] = graph.weight_bytes.tolist()
        self.weight_users = _rows(graph.weight_user_first, graph.weight_users)

        self.latency = _ticks_table(routes.latency_seconds)  # [source][target]
        self.gap = _ticks_table(routes.gap_seconds)
        self.ps_per_byte = _inverse_rates(routes.bytes_per_second)
        self.hops: list[list[int]] = routes.hops.tolist()
        self.channel: list[list[int]] = routes.channel.tolist()  # -1: no queue; -2: the sender carries

        self.through_host = cluster.routing == "host"
        self.is_host = [device.is_host for device in cluster]
        self.host_latency = _ticks_table(routes.host_latency_seconds)  # [write, read][device]
        self.host_ps_per_byte = _inverse_rates(routes.host_bytes_per_second)

    def wire(self, t: int, s: int, k: int) -> int:
        """How long t occupies the way from s to k, latency not included."""
        if self.tensor_ticks is not None:
            return self.hops[s][k] * self.tensor_ticks[t]
        return round(self.tensor_bytes[t] * self.ps_per_byte[s][k])

    def host_ticks(self, direction: int, t: int, d: int) -> int:
        """How long t takes between d and host memory; a host device computes there and pays nothing."""
        if self.is_host[d]:
            return 0
        if self.tensor_ticks is not None:
            return self.tensor_ticks[t] + self.host_latency[direction][d]
        wire = round(self.tensor_bytes[t] * self.host_ps_per_byte[direction][d])
        return wire + self.host_latency[direction][d]

    def destinations(self, t: int, on: Sequence[int]) -> list[int]:
        """Other devices with a reader of t, in the order of their first reader."""
        return [k for k in dict.fromkeys(on[v] for v in self.readers[t]) if k != on[self.producer[t]]]

    def resident_weights(self, on: Sequence[int]) -> list[int]:  # [device]
        """Bytes of the weights on each device: once wherever at least one user is."""
        resident = [0] * self.devices
        for size, users in zip(self.weight_bytes, self.weight_users, strict=True):
            for d in {on[v] for v in users}:
                resident[d] += size
        return resident

    def unsupported(self, on: Sequence[int]) -> int | None:
        """The first operator that cannot run where it is placed."""
        return next((v for v in range(self.operators) if self.duration[v][on[v]] == IMPOSSIBLE), None)

    def unreachable(self, on: Sequence[int], *, through_host: bool = False) -> tuple[int, int, int] | None:
        """The first (source, target, tensor) without a way."""
        for t, p in enumerate(self.producer):
            for k in self.destinations(t, on):
                host_ways = (self.host_latency[0][on[p]], self.host_latency[1][k])
                if IMPOSSIBLE in (host_ways if through_host else (self.latency[on[p]][k],)):
                    return on[p], k, t
        return None


def ticks(seconds: float) -> int:
    """Whole picoseconds, halves to the even neighbour; no more than the core counts."""
    if math.isinf(seconds):
        return IMPOSSIBLE
    long = seconds * TICKS_PER_SECOND
    return round(long) if long < MOST_TICKS else MOST_TICKS


def _ticks_table(seconds: NDArray[np.float64]) -> list[list[int]]:
    return [[ticks(x) for x in row] for row in seconds.tolist()]


def _inverse_rates(bytes_per_second: NDArray[np.float64]) -> list[list[float]]:
    return [[TICKS_PER_SECOND / rate for rate in row] for row in bytes_per_second.tolist()]


def _rows(first: NDArray[np.int32], items: NDArray[np.int32]) -> list[list[int]]:
    """A flat array and the places where its rows begin, as a list of lists."""
    return [items[a:b].tolist() for a, b in pairwise(first.tolist())]
