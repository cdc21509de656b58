"""Parts of a large cluster: which devices stand for the others, and the problem on them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stead.cluster.classes import DeviceIndices, device_type
from stead.costs import Costs
from stead.problem import Constraints, Order, Problem, ProgramOrder
from stead.sim.class_bounds import device_classes


def nodes_of(problem: Problem) -> list[list[int]]:
    """Devices that are one machine, or as near to each other; without hosts or levels every device is a node."""
    cluster = problem.cluster
    if cluster.hosts:
        position = {name: d for d, name in enumerate(cluster.names)}
        return [[position[name] for name in host.devices] for host in cluster.hosts]
    size = cluster.levels[0].size if cluster.levels else 1
    return [list(range(begin, min(begin + size, len(cluster)))) for begin in range(0, len(cluster), size)]


def representatives(problem: Problem, most: int) -> list[int]:
    """At most so many devices that can stand for all: whole nodes, one of each kind first, then the nearest.

    Kinds of nodes are those with the same classes of devices. The first node is the one whose devices are quickest;
    nodes that no longer fit are cut.
    """
    classes, nodes = device_classes(problem), nodes_of(problem)
    pace = np.where(problem.column_allowed, problem.column_seconds, 0.0).sum(axis=0)[problem.columns]  # [device]
    first = min(range(len(nodes)), key=lambda n: (-len(nodes[n]), float(pace[nodes[n]].mean()), n))
    latency, rate = problem.routes.latency_seconds, problem.routes.bytes_per_second
    here = nodes[first][0]
    far = [(float(latency[here, node[0]]), -float(rate[here, node[0]]), n) for n, node in enumerate(nodes)]
    by_distance = [n for *_, n in sorted(far)]
    kinds: dict[tuple[int, ...], int] = {}
    for n in [first, *by_distance]:
        kinds.setdefault(tuple(classes[nodes[n]].tolist()), n)
    wanted = list(dict.fromkeys([first, *kinds.values(), *by_distance]))
    pinned = [problem.cluster.index(device) for _, device in problem.constraints.pin]
    chosen = dict.fromkeys([*pinned, *(d for n in wanted for d in nodes[n])])
    return sorted(list(chosen)[:most])


def part_problem(problem: Problem, devices: Sequence[int]) -> Problem:
    """The problem on some devices alone; pins to others leave their operators nowhere to run."""
    own = list(devices)
    columns = problem.columns[own]
    seconds = np.where(problem.column_allowed, problem.column_seconds, np.inf)[:, columns]
    cluster = problem.cluster.part(own)
    costs = Costs(
        problem.graph,
        cluster,
        seconds,
        workspace_bytes=problem.column_workspace_bytes[:, columns],
        sources=problem.column_sources[:, columns],
        tensor_seconds=problem.costs.tensor_seconds,
    )
    together = Constraints(colocate=problem.constraints.colocate)
    return Problem(problem.graph, cluster, costs, objective=problem.objective, constraints=together)


def lifted(problem: Problem, devices: Sequence[int], row: DeviceIndices) -> DeviceIndices:
    """Devices of the whole cluster from those of a part."""
    whole: DeviceIndices = np.asarray(devices).astype(device_type(len(problem.cluster)))
    return whole[row]


def lifted_order(problem: Problem, devices: Sequence[int], order: Order | None) -> Order | None:
    """An order for the whole cluster from that of a part: where transfers are listed, their numbers name devices."""
    if not isinstance(order, ProgramOrder) or not order.sends or order.order is None:
        return order
    items, count = order.order.astype(np.int64), len(problem.graph)
    tensor, target = np.divmod(items - count, len(devices))
    sent = count + tensor * len(problem.cluster) + np.asarray(devices)[target]
    if sent.max(initial=0) > np.iinfo(np.int32).max:
        return None  # too many transfers to number: the policy of the objective serves them
    return replace(order, order=np.where(items < count, items, sent).astype(np.int32))
