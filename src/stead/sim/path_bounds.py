"""A path that no memory can hold: it changes device, and every change takes a transfer.

Notation    v_1 .. v_n  operators of one path; they run in turn, whatever the placement
    p[i, d]     seconds of v_i on d             w[i]    bytes of weights that v_i brings to the path first
    x[i, s, d]  seconds from s to d of the largest tensor that v_i hands to v_(i+1)

A placement cuts the path into runs, each on one device, whose weights fit there. Least time over all cuttings:

    f[j, d] = min over i < j with w[i+1] + .. + w[j] <= M[d] of  g[i, d] + p[i+1, d] + .. + p[j, d]
    g[i, d] = min over s != d of  f[i, s] + x[i, s, d],     g[0, d] = 0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem
from stead.sim.ways import READ, TICKS_PER_SECOND, WRITE, host_ticks, link_ticks

NEVER = float("inf")


def runs_in_memory(problem: Problem, *, host: bool) -> float:
    """The most seconds that one of a few paths takes at least; `host`: tensors pass host memory."""
    if not len(problem.graph):
        return 0.0
    least = np.where(problem.allowed, problem.costs.seconds, np.inf).min(axis=1)
    weights = problem.graph.parameter_bytes.astype(np.float64)
    crossing = _crossing(problem, host=host)
    wishes = [least]
    if weights.any():
        wishes.append(weights)
        wishes.append(least / max(float(least.max()), 1e-30) + weights / float(weights.max()))
    paths = {tuple(heaviest_path(problem, wish)) for wish in wishes}
    return max(_least_ticks(problem, list(path), crossing) for path in sorted(paths)) / TICKS_PER_SECOND


def heaviest_path(problem: Problem, weight: NDArray[np.float64]) -> list[int]:
    """The path of greatest sum of `weight` [operator], in order."""
    total, before = weight.tolist(), [-1] * len(weight)
    own = weight.tolist()
    for producer, reader in problem.graph.edges.tolist():  # sorted by producer, so its total is final
        if total[producer] + own[reader] > total[reader]:
            total[reader], before[reader] = total[producer] + own[reader], producer
    path = []
    v = int(np.argmax(total)) if total else -1
    while v >= 0:
        path.append(v)
        v = before[v]
    return path[::-1]


Crossing = Callable[[int], NDArray[np.float64]]  # tensor -> ticks [source, target]


def _crossing(problem: Problem, *, host: bool) -> Crossing:
    devices = len(problem.cluster)
    if host:
        written = np.stack([host_ticks(problem, WRITE, d) for d in range(devices)], axis=1)
        read = np.stack([host_ticks(problem, READ, d) for d in range(devices)], axis=1)
        return lambda t: (written[t][:, None] + read[t][None, :]).astype(np.float64)
    reachable = np.isfinite(problem.routes.latency_seconds)
    ticks = {
        (s, d): link_ticks(problem, s, d)
        for s in range(devices)
        for d in range(devices)
        if s != d and reachable[s, d]
    }

    def between(t: int) -> NDArray[np.float64]:
        table = np.full((devices, devices), NEVER)
        for (s, d), column in ticks.items():
            table[s, d] = column[t]
        return table

    return between


def _least_ticks(problem: Problem, path: list[int], crossing: Crossing) -> float:
    """Least ticks of a path over all ways to cut it into runs that fit."""
    devices = len(problem.cluster)
    work = np.where(problem.allowed[path], np.rint(problem.costs.seconds[path] * TICKS_PER_SECOND), NEVER)
    sums = _sums(_first_weights(problem, path))
    room = [device.usable_bytes for device in problem.cluster]
    carried = _carried(problem, path)
    # Of every device: where a run may have begun, and with how many ticks before, without the work since.
    starts: list[deque[tuple[int, float]]] = [deque([(0, 0.0)]) for _ in range(devices)]
    done = np.zeros(devices)  # work of the path so far on every device, since it last could not run there
    f = np.full(devices, NEVER)
    for i in range(len(path)):
        for d in range(devices):
            if not np.isfinite(work[i, d]):
                starts[d].clear()
                f[d] = NEVER
                continue
            done[d] += work[i, d]
            waiting = starts[d]
            while waiting and sums[i + 1] - sums[waiting[0][0]] > room[d]:
                waiting.popleft()
            f[d] = waiting[0][1] + done[d] if waiting else NEVER
        if i + 1 < len(path):
            arrive = np.min(f[:, None] + _apart(crossing(carried[i])), axis=0)
            for d in range(devices):
                value = float(arrive[d] - done[d])
                waiting = starts[d]
                while waiting and waiting[-1][1] >= value:
                    waiting.pop()
                waiting.append((i + 1, value))
    return float(f.min())


def _apart(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Crossings between different devices only: a run on the same device goes on instead."""
    table = table.copy()
    np.fill_diagonal(table, NEVER)
    return table


def _first_weights(problem: Problem, path: list[int]) -> list[int]:
    """Bytes of the weights that no earlier operator of the path uses, by operator of the path."""
    graph = problem.graph
    place = {v: i for i, v in enumerate(path)}
    first = [len(path)] * len(graph.weight_bytes)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
    for w, user in zip(weight.tolist(), graph.weight_users.tolist(), strict=True):
        first[w] = min(first[w], place.get(user, len(path)))
    added = [0] * (len(path) + 1)
    for i, size in zip(first, graph.weight_bytes.tolist(), strict=True):
        added[i] += size
    return added[:-1]


def _sums(sizes: list[int]) -> list[int]:
    total = [0]
    for size in sizes:
        total.append(total[-1] + size)
    return total


def _carried(problem: Problem, path: list[int]) -> list[int]:
    """The largest tensor that each operator of a path hands to the next."""
    graph = problem.graph
    given = problem.costs.tensor_seconds
    size = graph.tensor_bytes if given is None else given
    found = []
    for v, following in pairwise(path):
        reads = graph.read_tensors[graph.read_first[following] : graph.read_first[following + 1]]
        between = reads[(reads >= graph.tensor_first[v]) & (reads < graph.tensor_first[v + 1])]
        found.append(int(between[np.argmax(size[between])]))
    return found
