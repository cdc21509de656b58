"""How long tensors take from device to device, in the whole picoseconds that the simulator counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND, to_ticks

WRITE, READ = 0, 1  # host memory


def way_ticks(
    problem: Problem, latency_seconds: float, bytes_per_second: float, *, hops: int
) -> NDArray[np.int64]:  # [tensor]
    """Ticks that every tensor takes on one way, its latency included; `hops` counts where tensors have seconds."""
    given = problem.costs.tensor_seconds
    if given is None:
        wire = np.rint(problem.graph.tensor_bytes * (TICKS_PER_SECOND / bytes_per_second)).astype(np.int64)
    else:
        wire = hops * to_ticks(given)
    ticks: NDArray[np.int64] = wire + round(latency_seconds * TICKS_PER_SECOND)
    return ticks


def link_ticks(problem: Problem, source: int, target: int) -> NDArray[np.int64]:  # [tensor]
    """Ticks of every tensor from one device to another, which must be reachable."""
    routes = problem.routes
    return way_ticks(
        problem,
        routes.latency_seconds[source, target],
        routes.bytes_per_second[source, target],
        hops=int(routes.hops[source, target]),
    )


def host_ticks(problem: Problem, way: int, device: int) -> NDArray[np.int64]:  # [tensor]
    """Ticks to write every tensor to host memory, or to read it from there; none for devices that work in it."""
    if problem.cluster.devices[device].is_host:
        return np.zeros(problem.graph.tensor_count, dtype=np.int64)
    routes = problem.routes
    return way_ticks(
        problem, routes.host_latency_seconds[way, device], routes.host_bytes_per_second[way, device], hops=1
    )


def wire_ticks(
    problem: Problem,
    tensor: NDArray[np.signedinteger[Any]],
    source: NDArray[np.signedinteger[Any]],
    target: NDArray[np.signedinteger[Any]],
) -> NDArray[np.int64]:
    """How long transfers occupy their way, latency not included."""
    ticks: NDArray[np.int64]
    if problem.costs.tensor_seconds is not None:
        ticks = to_ticks(problem.costs.tensor_seconds[tensor]) * problem.routes.hops[source, target]
    else:
        ps_per_byte = TICKS_PER_SECOND / problem.routes.bytes_per_second[source, target]
        ticks = np.rint(problem.graph.tensor_bytes[tensor] * ps_per_byte).astype(np.int64)
    return ticks
