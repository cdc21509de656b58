"""Windows: what a few devices of a full pipeline hold is divided anew among them, all else staying where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster import UNLIMITED_BYTES, Cluster
from stead.cluster.classes import DeviceIndices
from stead.costs import Costs
from stead.graph import FORWARD, Graph
from stead.graph.arrays import graph_from_arrays
from stead.problem import Problem
from stead.solvers.large.parts import lifted
from stead.solvers.large.traffic import Traffic


def window_around(
    traffic: Traffic, busiest: int, node: Sequence[int], width: int, *, skip: int = 0
) -> list[int]:
    """So many devices with the busiest: its node, those it exchanges most with, and as near ones that hold nothing.

    Half of them hold something, where others do not. With `skip` so many others that it exchanges most with are left
    out, which gives another window.
    """
    near = [d for d in node if d != busiest]
    exchanged = traffic.exchanged_seconds(busiest)
    order = np.argsort(-exchanged, kind="stable").tolist()
    partners = [d for d in order if exchanged[d] > 0 and d != busiest and d not in set(near)]
    held = traffic.held  # [device]
    distance = np.abs(np.arange(len(held)) - busiest)
    idle = sorted((d for d in np.flatnonzero(~held).tolist() if d not in set(near)), key=lambda d: distance[d])
    others = partners[skip:] + partners[:skip]
    used = dict.fromkeys([busiest, *near[: width - 1], *others[: width // 2]])
    beside = sorted(np.flatnonzero(held).tolist(), key=lambda d: distance[d])
    return sorted(list(dict.fromkeys([*used, *idle, *others, *beside]))[:width])


@dataclass(frozen=True, slots=True)
class Window:
    """A problem of its own: what some devices hold, and the rest as senders and receivers that cannot move."""

    whole: Problem
    problem: Problem
    devices: tuple[int, ...]  # of the whole cluster; those of the window first
    operators: NDArray[np.int64]  # of the whole graph that may move
    first: int  # the first of them in the window's own graph
    now: DeviceIndices  # [operator of the window]; where everything is

    def placed(self, row: DeviceIndices, found: DeviceIndices) -> DeviceIndices:
        """A placement of the whole graph with what was found for the window."""
        better = row.copy()
        mine = found[self.first : self.first + len(self.operators)]
        better[self.operators] = lifted(self.whole, self.devices, mine)
        return better


def window_problem(problem: Problem, row: DeviceIndices, window: Sequence[int], most: int) -> Window:
    """The problem of dividing anew what the devices of a window hold, on at most so many devices.

    The others that most is exchanged with are there, too: one operator sends all that comes from each, one receives
    all that goes there, neither takes time, and memory has no end. What remains stands on the first of them.
    """
    inside = np.isin(row, window)
    partners = _partners(problem, row, inside)[: most - len(window)]
    outside = partners or [d for d in range(len(problem.cluster)) if d not in set(window)][:1]
    chosen = (*window, *outside)
    place = np.full(len(problem.cluster), len(window), dtype=np.int64)  # the first of those outside
    place[list(chosen)] = np.arange(len(chosen))
    cut = _Cut(problem, inside, place[row], range(len(window), len(chosen)))
    cluster = _without_limits(problem.cluster.part(list(chosen)), len(window))
    columns = problem.columns[list(window)]
    seconds = np.full((cut.count, len(chosen)), np.inf)
    scratch = np.zeros((cut.count, len(chosen)), dtype=np.int64)
    mine = slice(cut.first, cut.first + len(cut.operators))
    allowed, given = problem.column_allowed[cut.operators], problem.column_seconds[cut.operators]
    seconds[mine, : len(window)] = np.where(allowed, given, np.inf)[:, columns]
    scratch[mine, : len(window)] = problem.column_workspace_bytes[cut.operators][:, columns]
    fixed = np.flatnonzero(~cut.moves)
    seconds[fixed, cut.now[fixed]] = 0.0
    graph = cut.graph()
    times = problem.costs.tensor_seconds
    tensor_seconds = None if times is None else times[cut.tensors]
    costs = Costs(graph, cluster, seconds, workspace_bytes=scratch, tensor_seconds=tensor_seconds)
    small = Problem(graph, cluster, costs, objective=problem.objective)
    return Window(problem, small, chosen, cut.operators, cut.first, cut.now.astype(np.uint8))


def _without_limits(cluster: Cluster, first: int) -> Cluster:
    """The same devices, those from the first of the others on with memory without end."""
    free = [replace(device, memory_bytes=UNLIMITED_BYTES, reserve_bytes=0) for device in cluster.devices[first:]]
    return replace(cluster, devices=(*cluster.devices[:first], *free))


class _Cut:
    """The graph of a window: senders, then the operators that may move, then receivers.

    There is a sender for each of the other devices and each phase, as transfers belong to the phase of what they bring.
    """

    def __init__(self, problem: Problem, inside: NDArray[np.bool_], on: NDArray[np.int64], others: range) -> None:
        graph = problem.graph
        self._problem = problem
        self.operators = np.flatnonzero(inside)
        self.first = 2 * len(others)
        self.count = self.first + len(self.operators) + len(others)
        self.moves = np.zeros(self.count, dtype=bool)
        self.moves[self.first : self.first + len(self.operators)] = True
        self.now = np.concatenate([np.repeat(others, 2), on[self.operators], others])
        self._number = np.where(inside, self.first + np.cumsum(inside) - 1, -1)  # [operator of the whole]
        self._sender = 2 * (on - others.start) + (graph.phases != FORWARD)
        self._receiver = self.count - others.stop + on
        self._inside = inside
        self._take_tensors(graph)

    def _take_tensors(self, graph: Graph) -> None:
        """Tensors that the window makes or reads, by producer, and who reads them."""
        inside, producer = self._inside, graph.tensor_producer
        tensor, reader = graph.tensor_of_read, graph.readers
        made = inside[producer]  # [tensor]
        counts = made[tensor] | inside[reader]  # [read]
        wanted = made.copy()
        wanted[tensor[counts]] = True
        tensors = np.flatnonzero(wanted)
        maker = np.where(made[tensors], self._number[producer[tensors]], self._sender[producer[tensors]])
        order = np.argsort(maker, kind="stable")
        self.tensors, self._producer = tensors[order], maker[order]
        number = np.full(graph.tensor_count, -1, dtype=np.int64)
        number[self.tensors] = np.arange(len(self.tensors))
        tensor, reader = tensor[counts], reader[counts]
        self._reads = number[tensor], np.where(inside[reader], self._number[reader], self._receiver[reader])

    def graph(self) -> Graph:
        """All of it as a graph whose names are numbers."""
        whole = self._problem.graph
        mine = slice(self.first, self.first + len(self.operators))
        phases = np.zeros(self.count, dtype=np.uint8)
        phases[1 : self.first : 2] = whole.phases.max(initial=FORWARD)
        phases[mine] = whole.phases[self.operators]
        group = np.full(self.count, -1, dtype=np.int64)
        group[mine] = np.unique(self._problem.units[self.operators], return_inverse=True)[1]
        return graph_from_arrays(
            whole.name,
            operator_names=[str(v) for v in range(self.count)],
            tensor_producer=self._producer,
            tensor_bytes=whole.tensor_bytes[self.tensors],
            tensor_kept=whole.tensor_kept[self.tensors],
            reads=self._reads,
            phases=phases,
            colocation=group,
            colocation_names=[str(g) for g in range(int(group.max(initial=-1)) + 1)],
            **self._weights(whole),
        )

    def _weights(self, whole: Graph) -> dict[str, Any]:
        """Weights of what may move; the rest holds its own elsewhere."""
        uses = self._inside[whole.weight_users]
        weight, user = whole.weight_of_use[uses], whole.weight_users[uses]
        kept, number = np.unique(weight, return_inverse=True)
        return {
            "weight_names": [str(w) for w in range(len(kept))],
            "weight_bytes": whole.weight_bytes[kept],
            "weight_uses": (number, self._number[user]),
        }


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
