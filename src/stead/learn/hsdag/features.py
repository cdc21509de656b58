"""What HSDAG sees of a coarsened problem; everything is relative to the graph, so that a policy can meet another one.

Notation    n groups, K devices, V words, t mean seconds of a group
    words      [n, V]      share of each kind of operator, in a hashed vocabulary (ground/features.py)
    structure  [n, 19]     FLOPs, bytes in, out and of weights, members and degrees as log1p, standardised; t-level,
                           b-level, depth percentile; sin and cos of the position at frequencies 1, 2, 4, 8; fractal
                           dimension (fractal.py), standardised
    cost       [n, 3K + 2] log1p(seconds / t) per device, the same minus device 0, log1p of the seconds that its outputs
                           and its inputs take to another device, against t; all standardised; whether it may run
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.learn.ground.features import LIMIT, VOCABULARY, standardised, word_of
from stead.learn.hsdag.fractal import fractal_dimensions
from stead.problem import Problem
from stead.solvers.search.search import long_lived_bytes

FREQUENCIES = (1, 2, 4, 8)
STRUCTURE = 19  # 7 amounts and degrees, 3 levels, 8 waves, the fractal dimension


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The arrays above, and what parsing and pooling need."""

    words: NDArray[np.float32]  # [n, V]
    structure: NDArray[np.float32]  # [n, STRUCTURE]
    cost: NDArray[np.float32]  # [n, cost_width]
    edges: NDArray[np.int64]  # [edge, 2]; directed, between groups, each once
    seconds: NDArray[np.float64]  # [n]; mean over the devices that may run a group, against the typical
    work: NDArray[np.float64]  # [n]; FLOPs against the mean, for who may not see seconds
    allowed: NDArray[np.bool_]  # [n, K]
    held: NDArray[np.float64]  # [n]; bytes of weights and of outputs that stay


def cost_width(devices: int) -> int:
    """Columns of `Seen.cost`."""
    return 3 * devices + 2


def look(problem: Problem, grouping: Grouping) -> Seen:
    """Everything that is known about the groups of a problem."""
    graph, count = problem.graph, grouping.count
    group = grouping.group.astype(np.int64)

    def total(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(group, weights=values, minlength=count).astype(np.float64)

    tensor = graph.tensor_of_read
    reader, producer = group[graph.readers], group[graph.tensor_producer]
    outside = reader != producer[tensor]
    crossing = np.unique(np.stack([tensor[outside], reader[outside]], axis=1), axis=0).reshape(-1, 2)
    sent = np.unique(crossing[:, 0])
    sizes, ways = graph.tensor_bytes.astype(np.float64), _way_seconds(problem)
    edges = np.unique(np.stack([producer[crossing[:, 0]], crossing[:, 1]], axis=1), axis=0).reshape(-1, 2)

    def flows(amount: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        leaves = np.bincount(producer[sent], weights=amount[sent], minlength=count)
        enters = np.bincount(crossing[:, 1], weights=amount[crossing[:, 0]], minlength=count)
        return leaves.astype(np.float64), enters.astype(np.float64)

    flops = total(graph.flops)
    held = total(graph.parameter_bytes.astype(np.float64))
    amounts = np.stack([flops, *flows(sizes), held, grouping.sizes.astype(np.float64)], axis=1)
    degrees = np.stack([np.bincount(edges[:, side], minlength=count) for side in (1, 0)], axis=1)
    logs = standardised(np.log1p(np.concatenate([amounts, degrees.astype(np.float64)], axis=1)))
    fractal = standardised(fractal_dimensions(count, edges)[:, None])
    structure = np.concatenate([logs, _levels(count, edges), _positions(count), fractal], axis=1)
    allowed = np.ones((count, len(problem.cluster)), dtype=bool)
    np.logical_and.at(allowed, group, problem.allowed)
    usable = np.where(problem.allowed, problem.costs.seconds, 0.0)
    seconds = np.stack([total(column) for column in usable.T], axis=1).reshape(count, -1)
    mean = seconds.sum(axis=1) / np.maximum(allowed.sum(axis=1), 1)
    typical = max(float(mean.mean()) if count else 0.0, 1e-12)
    relative = np.log1p(np.where(allowed, seconds, 0.0) / typical)
    moving = np.log1p(np.stack(flows(ways), axis=1) / typical)
    apart = np.where(allowed & allowed[:, :1], relative - relative[:, :1], 0.0)
    timed = standardised(np.concatenate([relative, apart, moving], axis=1))
    cost = np.concatenate([timed, allowed.astype(np.float64)], axis=1)
    kinds = np.array([word_of(kind) for kind in graph.kinds], dtype=np.int64)
    words = np.bincount(group * VOCABULARY + kinds, minlength=count * VOCABULARY).reshape(count, VOCABULARY)
    return Seen(
        words=(words / np.maximum(grouping.sizes, 1)[:, None]).astype(np.float32),
        structure=_clean(structure),
        cost=_clean(cost),
        edges=edges,
        seconds=mean / typical,
        work=flops / max(float(flops.mean()) if count else 0.0, 1e-12),
        allowed=allowed,
        held=held + total(long_lived_bytes(problem).astype(np.float64)),
    )


def _way_seconds(problem: Problem) -> NDArray[np.float64]:  # [tensor]
    """Seconds that each tensor takes to another device, on the mean of all ways."""
    routes, given = problem.routes, problem.costs.tensor_seconds
    apart = ~np.eye(len(problem.cluster), dtype=bool)
    if not apart.any():
        return np.zeros(problem.graph.tensor_count)
    latency = np.where(np.isfinite(routes.latency_seconds), routes.latency_seconds, 0.0)[apart].mean()
    rates = routes.bytes_per_second[apart]
    slowness = np.where(rates > 0, 1.0 / np.maximum(rates, 1e-30), 0.0).mean()
    wire = problem.graph.tensor_bytes * slowness if given is None else given
    return np.asarray(latency + wire, dtype=np.float64)


def _levels(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:  # [n, 3]
    """t-level, b-level and depth percentile, from 0 to 1.

    Groups are in an order in which they may run unless they depend on each other in a cycle; edges against the order
    are left out then.
    """
    rising = edges[edges[:, 0] < edges[:, 1]]
    top = _longest(count, rising)
    bottom = _longest(count, (count - 1 - rising[:, ::-1]))[::-1]
    depth = max(1.0, float((top + bottom).max(initial=0.0)))
    percentile = np.argsort(np.argsort(top, kind="stable"), kind="stable") / max(1, count - 1)
    return np.stack([top / depth, bottom / depth, percentile], axis=1)


def _longest(count: int, edges: NDArray[np.int64]) -> NDArray[np.float64]:
    longest = [0] * count
    for u, v in edges[np.lexsort((edges[:, 1], edges[:, 0]))].tolist():
        if longest[u] >= longest[v]:
            longest[v] = longest[u] + 1
    return np.array(longest, dtype=np.float64)


def _positions(count: int) -> NDArray[np.float64]:  # [n, 8]
    place = np.arange(count) / max(1, count - 1)
    waves = [wave(np.pi * f * place) for f in FREQUENCIES for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) if waves else np.zeros((count, 0))


def _clean(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.clip(np.nan_to_num(values, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT).astype(np.float32)
