"""Parts of a large cluster: which devices stand for the others, and the problem on them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stead.cluster import UNLIMITED_BYTES
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


def window_around(row: DeviceIndices, busiest: int, devices: int, width: int) -> list[int]:
    """So many devices around the busiest: those that hold something beside it, and as many that hold nothing.

    >>> window_around(np.array([0, 0, 4, 5], dtype=np.uint8), 4, 8, 4)
    [0, 2, 3, 4]
    """
    used = np.unique(row).tolist()
    idle = sorted(set(range(devices)) - set(used))
    half = width - min(len(idle), width // 2)
    at = used.index(busiest)
    begin = max(0, min(at - half // 2, len(used) - half))
    chosen = used[begin : begin + half]
    return sorted(chosen + sorted(idle, key=lambda d: (abs(d - busiest), d))[: width - len(chosen)])


def window_problem(
    problem: Problem, row: DeviceIndices, window: Sequence[int], most: int
) -> tuple[Problem, list[int], DeviceIndices]:
    """The problem of dividing anew what the devices of a window hold, its devices, and what they hold now.

    All else stays where it is: on those of the other devices that most is exchanged with, and on the first of these
    what has nothing to do with the window. There operators take no time and memory has no end, so that only what
    happens in the window counts.
    """
    graph = problem.graph
    inside = np.isin(row, window)
    others = _partners(problem, row, inside)[: most - len(window)]
    outside = others or [d for d in range(len(problem.cluster)) if d not in set(window)][:1]
    chosen = [*window, *outside]
    place = np.full(len(problem.cluster), len(window), dtype=np.int64)  # the first of those outside
    place[chosen] = np.arange(len(chosen))
    now = place[row]
    columns = problem.columns[list(window)]
    seconds = np.full((len(graph), len(chosen)), np.inf)
    given = np.where(problem.column_allowed[inside], problem.column_seconds[inside], np.inf)
    seconds[inside, : len(window)] = given[:, columns]
    seconds[np.flatnonzero(~inside), now[~inside]] = 0.0
    cluster = problem.cluster.part(chosen)
    free = {cluster.names[i] for i in range(len(window), len(chosen))}
    cluster = replace(
        cluster,
        devices=tuple(
            replace(device, memory_bytes=UNLIMITED_BYTES, reserve_bytes=0) if device.name in free else device
            for device in cluster.devices
        ),
    )
    costs = Costs(graph, cluster, seconds, tensor_seconds=problem.costs.tensor_seconds)
    together = Constraints(colocate=problem.constraints.colocate)
    small = Problem(graph, cluster, costs, objective=problem.objective, constraints=together)
    return small, chosen, now.astype(np.uint8)


def _partners(problem: Problem, row: DeviceIndices, inside: NDArray[np.bool_]) -> list[int]:
    """Devices outside that exchange tensors with operators inside, those with most bytes first."""
    graph = problem.graph
    tensor = graph.tensor_of_read
    producer, reader = graph.tensor_producer[tensor], graph.readers
    crosses = inside[producer] != inside[reader]
    other = np.where(inside[producer], row[reader], row[producer])[crosses]
    moved = np.bincount(other, weights=graph.tensor_bytes[tensor][crosses] + 1.0, minlength=len(problem.cluster))
    order = np.argsort(-moved, kind="stable")
    return [int(d) for d in order if moved[d] > 0]
