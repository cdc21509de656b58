"""Limits of a grouping: no group too heavy for a device, and not too many groups."""

from __future__ import annotations

import heapq
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from stead.coarsen.colocation import colocate_constraints, forward_operators
from stead.coarsen.grouping import Grouping
from stead.graph import FORWARD, Graph
from stead.graph.components import connected
from stead.graph.paths import module_path
from stead.problem import Problem


def limited(
    problem: Problem, grouping: Grouping, *, most_groups: int = 256, most_share: float | None = None
) -> Grouping:
    """The grouping without groups that are too heavy or that no device may run, and with fewer groups.

    Groups above `most_share` of all seconds (on the fastest device; default half a device's share) or without a
    common device fall apart into inner module calls, level by level, then into rule 1. Above `most_groups`,
    neighbouring calls of one module are joined, lightest first; calls of different modules never are, since joining
    steps of a layer keeps the layers of an unrolled network apart and joining layers does not.
    """
    share = 0.5 / len(problem.cluster) if most_share is None else most_share
    finer = _without_violations(problem, grouping, share)
    return _with_joined_calls(problem, finer, most_groups)


def _fastest_seconds(problem: Problem) -> NDArray[np.float64]:  # [operator]
    """Seconds on the device that takes least for everything it can run."""
    seconds = np.where(problem.allowed, problem.costs.seconds, np.inf)
    finite = np.isfinite(seconds)
    missing = (~finite).sum(axis=0)
    total = np.where(finite, seconds, 0.0).sum(axis=0)
    fastest = int(np.lexsort((total, missing))[0])
    return np.where(finite[:, fastest], seconds[:, fastest], seconds.min(axis=1))


def _without_violations(problem: Problem, grouping: Grouping, share: float) -> Grouping:
    graph = problem.graph
    seconds = _fastest_seconds(problem)
    owner = forward_operators(graph)
    paths = [graph.modules[v].split("/") for v in owner.tolist()]
    ties = colocate_constraints(graph).group.astype(np.int64)
    labels = grouping.group.astype(np.int64)
    deepest = max(map(len, paths), default=0)
    levels = (_either(_numbered(["/".join(path[:n]) for path in paths]), ties) for n in range(1, deepest + 1))
    for finer in chain(levels, (ties,)):
        bad = _violating(problem, labels, seconds, share)[labels]
        if not bad.any():
            break
        parts = np.column_stack([labels, np.where(bad, finer, 0)])
        labels = np.unique(parts, axis=0, return_inverse=True)[1].reshape(-1)
    return Grouping(graph, labels)


def _numbered(names: list[str]) -> NDArray[np.int64]:
    """Equal numbers for equal names."""
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return np.array([number[name] for name in names], dtype=np.int64)


def _either(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Labels that are equal where either of two labellings is, directly or over others."""
    offset = int(first.max()) + 1 if first.size else 0
    count = offset + (int(second.max()) + 1 if second.size else 0)
    return connected(count, first, offset + second)[first]


def _violating(
    problem: Problem, labels: NDArray[np.int64], seconds: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:  # [group]
    count = int(labels.max()) + 1 if labels.size else 0
    heavy = np.bincount(labels, weights=seconds, minlength=count) > share * seconds.sum()
    common = np.ones((count, len(problem.cluster)), dtype=bool)
    np.logical_and.at(common, labels, problem.allowed)
    return np.asarray(heavy | ~common.any(axis=1))


def _with_joined_calls(problem: Problem, grouping: Grouping, most: int) -> Grouping:
    """Neighbouring groups of one module joined, the lightest two first."""
    graph, seconds = problem.graph, _fastest_seconds(problem)
    weight = np.bincount(grouping.group, weights=seconds, minlength=grouping.count).tolist()
    signature = [tuple(row) for row in _common_devices(problem, grouping).tolist()]
    rows = _rows(graph, grouping)
    after: dict[int, int] = {}
    for row in rows.values():
        after.update(pairwise(row))
    before = {b: a for a, b in after.items()}
    queue = [(weight[a] + weight[b], a, b) for a, b in after.items() if signature[a] == signature[b]]
    heapq.heapify(queue)
    into = list(range(grouping.count))
    left = grouping.count
    while left > most and queue:
        total, a, b = heapq.heappop(queue)
        if after.get(a) != b or total != weight[a] + weight[b]:
            continue
        into[b] = a
        weight[a] = total
        left -= 1
        c = after.pop(b, -1)
        del after[a], before[b]
        if c >= 0:
            after[a], before[c] = c, a
            if signature[a] == signature[c]:
                heapq.heappush(queue, (weight[a] + weight[c], a, c))
        if a in before and signature[before[a]] == signature[a]:
            heapq.heappush(queue, (weight[before[a]] + weight[a], before[a], a))
    for g in range(grouping.count):
        while into[g] != into[into[g]]:
            into[g] = into[into[g]]
    return Grouping(graph, np.array(into, dtype=np.int64)[grouping.group])


def _common_devices(problem: Problem, grouping: Grouping) -> NDArray[np.bool_]:
    common = np.ones((grouping.count, len(problem.cluster)), dtype=bool)
    np.logical_and.at(common, grouping.group, problem.allowed)
    return common


def _rows(graph: Graph, grouping: Grouping) -> dict[str, list[int]]:
    """Groups by the module of their first forward operator, in order of the graph; calls of one module follow."""
    first = np.full(grouping.count, -1, dtype=np.int64)
    forward = np.flatnonzero(graph.phases == FORWARD)[::-1]
    first[grouping.group[forward]] = forward
    rows: dict[str, list[int]] = {}
    for g in np.argsort(first, kind="stable").tolist():
        if first[g] >= 0:
            outermost = graph.modules[first[g]].split("/")[0]
            rows.setdefault(module_path(outermost), []).append(g)
    return rows
