"""What this very placement would take on other devices and links: each point re-simulated, nothing solved anew."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.cluster import Cluster, Device
from stead.costs import Costs, Roofline
from stead.errors import SteadError
from stead.problem import Placement, Problem
from stead.sim import simulate

if TYPE_CHECKING:
    from stead.plan import Plan

FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
MOST_LINKS = 6  # pairs of devices, those that carry the most first

Changed = Callable[[float], Problem]


@dataclass(frozen=True, slots=True)
class Curve:
    """The plan's seconds where one property of the cluster is multiplied by factors."""

    name: str  # of the device or of both ends of a link
    what: str  # "speed", "FLOP/s", "memory bandwidth" or "bandwidth"
    seconds: tuple[float | None, ...]  # [factor]; None where the placement cannot run


def sensitivity(plan: Plan, *, cpu_seconds: float = 2.0) -> tuple[Curve, ...]:
    """As many curves as so much CPU time allows: all links, then every used device, then single links."""
    end = time.process_time() + cpu_seconds
    curves: list[Curve] = []
    for name, what, changed in _questions(plan):
        curves.append(Curve(name, what, tuple(_seconds(plan, changed, factor) for factor in FACTORS)))
        if time.process_time() > end:
            break
    return tuple(curves)


def _seconds(plan: Plan, changed: Changed, factor: float) -> float | None:
    if factor == 1.0:
        return plan.solution.objective_seconds
    try:
        problem = changed(factor)
        placement = Placement(problem, plan.placement.devices, plan.placement.order, plan.placement.replicas)
        seconds = simulate(problem, placement, memory="off").objective_seconds
    except SteadError:  # such as shared stages of devices that are no longer alike
        return None
    return seconds if math.isfinite(seconds) else None


def _questions(plan: Plan) -> Iterator[tuple[str, str, Changed]]:
    problem = plan.problem
    cluster = problem.cluster
    if cluster.links:
        yield "all links", "bandwidth", partial(_linked, problem, frozenset(cluster.names))
    analytic = _is_analytic(problem)
    for d in np.argsort(-plan.trace.busy_seconds, kind="stable").tolist():
        if not (plan.placement.devices == d).any():
            continue
        name = cluster.names[d]
        if not analytic:
            yield name, "speed", partial(_quicker, problem, d)
            continue
        yield name, "FLOP/s", partial(_faster, problem, d)
        if math.isfinite(cluster.devices[d].bytes_per_second):
            yield name, "memory bandwidth", partial(_wider, problem, d)
    for pair in _pairs(plan):
        yield " ↔ ".join(sorted(pair)), "bandwidth", partial(_linked, problem, pair)


def _is_analytic(problem: Problem) -> bool:
    """Whether the costs are those of data sheets, so that a changed device can be priced again."""
    try:
        return np.array_equal(Roofline().costs(problem.graph, problem.cluster).seconds, problem.costs.seconds)
    except SteadError:  # a device without FLOP/s: its costs were given
        return False


def _faster(problem: Problem, d: int, factor: float) -> Problem:
    """The problem with more FLOP/s on one device."""
    rates = problem.cluster.devices[d].flops_per_second
    more = {dtype: rate * factor for dtype, rate in rates.items()}
    return _device(problem, d, replace(problem.cluster.devices[d], flops_per_second=more))


def _wider(problem: Problem, d: int, factor: float) -> Problem:
    """The problem with faster memory on one device."""
    device = problem.cluster.devices[d]
    return _device(problem, d, replace(device, bytes_per_second=device.bytes_per_second * factor))


def _device(problem: Problem, d: int, changed: Device) -> Problem:
    """The problem with one device replaced and priced again."""
    devices = list(problem.cluster.devices)
    devices[d] = changed
    cluster = replace(problem.cluster, devices=tuple(devices))
    alone = Cluster((changed,))
    seconds = problem.costs.seconds.copy()
    seconds[:, d] = Roofline().costs(problem.graph, alone).seconds[:, 0]
    return _priced(problem, cluster, seconds)


def _quicker(problem: Problem, d: int, factor: float) -> Problem:
    """The problem with everything on one device so much faster."""
    seconds = problem.costs.seconds.copy()
    seconds[:, d] /= factor
    return _priced(problem, problem.cluster, seconds)


def _linked(problem: Problem, ends: frozenset[str], factor: float) -> Problem:
    """The problem with wider links between some devices."""
    links = tuple(
        replace(link, bytes_per_second=link.bytes_per_second * factor)
        if link.source in ends and link.target in ends
        else link
        for link in problem.cluster.links
    )
    cluster = replace(problem.cluster, links=links)
    sent = problem.costs.tensor_seconds
    return _priced(problem, cluster, problem.costs.seconds, None if sent is None else sent / factor)


def _priced(
    problem: Problem,
    cluster: Cluster,
    seconds: NDArray[np.float64],
    tensor_seconds: NDArray[np.float64] | None = None,
) -> Problem:
    costs = Costs(
        problem.graph,
        cluster,
        seconds,
        workspace_bytes=problem.costs.workspace_bytes,
        sources=problem.costs.sources,
        tensor_seconds=problem.costs.tensor_seconds if tensor_seconds is None else tensor_seconds,
    )
    return Problem(problem.graph, cluster, costs, objective=problem.objective, constraints=problem.constraints)


def _pairs(plan: Plan) -> list[frozenset[str]]:
    """Both ends of links that carry something, the busiest first; none where all links are one pair anyway."""
    problem, on = plan.problem, plan.placement.devices.astype(np.int64)
    graph, names = problem.graph, problem.cluster.names
    linked = {frozenset((link.source, link.target)) for link in problem.cluster.links}
    if len(linked) < 2 or problem.costs.tensor_seconds is not None:
        return []
    tensor, target = graph.tensor_of_read, on[graph.readers]
    source = on[graph.tensor_producer[tensor]]
    crossing = np.unique(np.stack([tensor, source, target], axis=1)[source != target], axis=0)
    carried: dict[frozenset[str], int] = {}
    for t, a, b in crossing.tolist():
        pair = frozenset((names[a], names[b]))
        carried[pair] = carried.get(pair, 0) + int(graph.tensor_bytes[t])
    found = sorted((pair for pair in carried if pair in linked), key=lambda pair: (-carried[pair], sorted(pair)))
    return found[:MOST_LINKS]
