"""Devices that are interchangeable, and placements that mean the same.

Notation    S placements, G groups, K devices
    classes  [K]     devices of one class can be exchanged without changing any run time
    names    [S, K]  new name of every device, such that equal devices are named by first use
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stead.cluster.routes import BY_SENDER
from stead.problem import Problem


def device_classes(problem: Problem) -> NDArray[np.int64]:  # [device]
    """Devices that are interchangeable have the same number: same times, memory, permissions and links."""
    count = len(problem.cluster)
    found = np.arange(count)
    for d in range(count):
        for earlier in range(d):
            if found[earlier] == earlier and _interchangeable(problem, earlier, d):
                found[d] = earlier
                break
    return found


def names_by_first_use(
    rows: NDArray[np.uint8], classes: NDArray[np.int64]
) -> NDArray[np.int64]:  # [row, device]
    """How to rename the devices of every row so that rows that mean the same become the same."""
    names = np.tile(np.arange(len(classes)), (len(rows), 1))
    if len(np.unique(classes)) == len(classes):
        return names
    for row, name in zip(rows, names, strict=True):
        used, first = np.unique(row, return_index=True)
        in_use = used[np.argsort(first)]
        for one in np.unique(classes):
            members = np.flatnonzero(classes == one)
            order = [int(d) for d in in_use if classes[d] == one]
            order += [int(d) for d in members if d not in order]
            name[order] = members
    return names


def canonical(rows: NDArray[np.uint8], classes: NDArray[np.int64]) -> NDArray[np.uint8]:  # [row, group]
    """Rows with equal devices renamed by first use.

    >>> canonical(np.array([[1, 1, 0], [0, 0, 1]], dtype=np.uint8), np.array([0, 0])).tolist()
    [[0, 0, 1], [0, 0, 1]]
    """
    return np.take_along_axis(names_by_first_use(rows, classes), rows.astype(np.int64), axis=1).astype(
        np.uint8
    )


def _interchangeable(problem: Problem, a: int, b: int) -> bool:
    """Whether exchanging two devices changes nothing: their own columns and their links to all others."""
    seconds, devices, routes = problem.costs.seconds, problem.cluster.devices, problem.routes
    if devices[a].usable_bytes != devices[b].usable_bytes or devices[a].is_host != devices[b].is_host:
        return False
    if not np.array_equal(seconds[:, a], seconds[:, b]):
        return False
    if not np.array_equal(problem.allowed[:, a], problem.allowed[:, b]):
        return False
    workspace = problem.costs.workspace_bytes
    if not np.array_equal(workspace[:, a], workspace[:, b]):
        return False
    swap = np.arange(len(devices))
    swap[[a, b]] = b, a
    tables = (routes.latency_seconds, routes.bytes_per_second, routes.gap_seconds, routes.channel == BY_SENDER)
    off = ~np.eye(len(devices), dtype=bool)
    return all(np.array_equal(table[off], table[np.ix_(swap, swap)][off]) for table in tables)
