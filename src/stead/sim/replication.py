"""Stages that several equal devices share: each takes every n-th sample, and weights are kept equal.

Notation    n devices share a stage, L its load, w its weight bytes, B bytes per second between them
    time per sample     ceil(L / n) + sync
    sync                4 (n - 1) / n * w / B per update: a ring adds up and spreads gradients, each sent and received
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.graph.weights import resident_bytes
from stead.problem import Placement, Problem, Throughput
from stead.problem.ticks import TICKS_PER_SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Sharing:
    """How many devices share each device's stage, and what keeping their weights equal takes."""

    devices: NDArray[np.int64]  # [device]
    sync_ticks: NDArray[np.int64]  # [device]

    def shared(self, ticks: NDArray[np.int64], *, sync: bool = True) -> NDArray[np.int64]:  # [..., device]
        """Loads as seen by one sample."""
        own: NDArray[np.int64] = -(-ticks // self.devices) + (self.sync_ticks if sync else 0)
        return own


def sharing_of(placement: Placement) -> Sharing:
    """The sharing that a placement asks for."""
    problem = placement.problem
    count = len(problem.cluster)
    devices, sync = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    for group in placement.replicas:
        devices[group[0]] = n = len(group)
        held = _weight_bytes(problem, placement.devices == group[0])
        sync[group[0]] = round(sync_ticks_per_byte(problem, group[0]) * held * 4.0 * (n - 1) / n)
    return Sharing(devices, sync)


def sync_ticks_per_byte(problem: Problem, device: int) -> float:
    """Ticks to move one byte of weights of a device per sample; 0 where weights do not change."""
    assert isinstance(problem.objective, Throughput)
    if not problem.graph.is_training:
        return 0.0
    routes = problem.routes
    if problem.cluster.routing == "host":
        rate = float(routes.host_bytes_per_second[:, device].min())
    else:
        others = [d for d in range(len(problem.cluster)) if d != device]
        rate = float(routes.bytes_per_second[device, others].min(initial=np.inf))
    return TICKS_PER_SECOND / rate / problem.objective.samples_per_update


def _weight_bytes(problem: Problem, here: NDArray[np.bool_]) -> int:
    """Bytes of the weights that operators use which are marked."""
    return int(resident_bytes(problem.graph, here, 2)[1])
