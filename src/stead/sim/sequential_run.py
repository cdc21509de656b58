"""A sequential run as a time line: one operator or transfer at a time over the whole cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.problem.in_ticks import Tables
from stead.sim.timeline import NO_CAUSE, Timeline, transfers_from_rows


def sequential_timeline(problem: Problem, devices: NDArray[np.uint8]) -> Timeline:
    """Operators by index, each followed by the copies of its outputs; nothing waits for a particular thing."""
    tables, on, clock = Tables(problem), devices.tolist(), 0
    start, finish, moved = [], [], []
    for v, d in enumerate(on):
        start.append(clock)
        clock += tables.duration[v][d]
        finish.append(clock)
        for t in tables.outputs[v]:
            for k in tables.destinations(t, on):
                begin, clock = clock, clock + tables.wire(t, d, k) + tables.latency[d][k]
                moved.append((t, d, k, -1, begin, clock))
    return Timeline(
        problem=problem,
        devices=devices,
        execution="sequential",
        start_ticks=np.array(start, dtype=np.int64),
        finish_ticks=np.array(finish, dtype=np.int64),
        order=np.arange(len(devices), dtype=np.int32),
        cause=np.full(len(devices), NO_CAUSE, dtype=np.int32),
        transfers=transfers_from_rows(np.array(moved, dtype=np.int64)),
    )
