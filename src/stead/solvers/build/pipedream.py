"""PipeDream's planner as a baseline: a graph made linear, then cut into stages, without replication.

PipeDream (Narayanan et al. 2019) plans chains of layers. To give it other graphs, Tarnawski et al. 2020 merge the tails
of the edges of every biconnected component of the undirected graph: everything but the operator where the component
ends. What is left hangs together by bridges, and a topological order of it is cut by dynamic programming.

An input that takes no time, such as an attention mask that every layer reads, would join all its readers into one
component. Sources without work are therefore left out while components are sought; they go with their first reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.graph.arrays import distinct_pairs
from stead.graph.components import connected, strongly_connected, topological_numbers
from stead.problem import Problem
from stead.solvers.exact.ideals import offer_stages
from stead.solvers.exact.reduction import Reduced, not_steady, reduce, steady_load
from stead.solvers.few_devices import few_devices
from stead.solvers.rules.settle import started
from stead.solvers.solution import Budget, Solution


@few_devices
@dataclass(frozen=True, slots=True)
class Pipedream:
    """The best cut of the graph once every biconnected component is merged, but for the operator where it ends."""

    name: ClassVar[str] = "pipedream"

    def unsupported(self, problem: Problem) -> str | None:
        """It balances loads of full pipelines."""
        return not_steady(problem)

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Merge, line up, cut."""
        search = started(self, problem, budget, seed)
        with search.interruptible():
            reduced = reduce(problem, merge="off")
            line = contracted(reduced, merged_tails(reduced))
            order = np.arange(line.count, dtype=np.int32)
            cut = _native.linear_dp(line.native, order, load=steady_load(problem))
            if cut.value_ticks >= 0:
                offer_stages(search, line, cut)
            else:
                search.offer(line.lift(np.zeros(line.count, dtype=np.uint8)))
        return search.solution()


def merged_tails(reduced: Reduced) -> NDArray[np.int64]:  # [node]
    """A label per supernode, equal for those that are merged."""
    before, after = reduced.order[:, 0].astype(np.int64), reduced.order[:, 1].astype(np.int64)
    idle = _idle_sources(reduced)
    kept = ~idle[before]
    first: list[int] = []
    second: list[int] = []
    for members in biconnected(reduced.count, before[kept], after[kept]):
        tails = sorted(members)[:-1]  # supernodes are numbered along the order
        first += tails[:-1]
        second += tails[1:]
    for v in np.flatnonzero(idle).tolist():
        readers = after[before == v]
        if readers.size:
            first.append(v)
            second.append(int(readers.min()))
    return connected(reduced.count, np.array(first, dtype=np.int64), np.array(second, dtype=np.int64))


def _idle_sources(reduced: Reduced) -> NDArray[np.bool_]:  # [node]
    """Supernodes without predecessors that take no time anywhere."""
    idle = np.asarray((reduced.ticks <= 0).all(axis=(1, 2)))
    idle[reduced.order[:, 1]] = False
    return idle


def biconnected(count: int, first: NDArray[Any], second: NDArray[Any]) -> Iterator[set[int]]:
    """The nodes of every biconnected component of an undirected graph, bridges included.

    By depth-first search with an explicit stack (Hopcroft and Tarjan 1973).

    >>> a, b = np.array([0, 0, 1, 2]), np.array([1, 2, 2, 3])  # a triangle and a bridge
    >>> [sorted(nodes) for nodes in biconnected(4, a, b)]
    [[2, 3], [0, 1, 2]]
    """
    near: list[list[int]] = [[] for _ in range(count)]
    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        near[a].append(b)
        near[b].append(a)
    found = [-1] * count  # when the search came to a node
    low = [0] * count  # the earliest node that can be reached from below it
    clock = 0
    for root in range(count):
        if found[root] >= 0:
            continue
        found[root] = low[root] = clock
        clock += 1
        edges: list[tuple[int, int]] = []  # of components that are not complete yet
        path = [(root, -1, iter(near[root]))]
        while path:
            v, parent, rest = path[-1]
            for child in rest:
                if child == parent:
                    continue
                if found[child] < 0:
                    edges.append((v, child))
                    found[child] = low[child] = clock
                    clock += 1
                    path.append((child, v, iter(near[child])))
                    break
                if found[child] < found[v]:
                    edges.append((v, child))
                    low[v] = min(low[v], found[child])
            else:
                path.pop()
                if parent >= 0:
                    low[parent] = min(low[parent], low[v])
                    if low[v] >= found[parent]:
                        yield _up_to(edges, (parent, v))


def _up_to(edges: list[tuple[int, int]], last: tuple[int, int]) -> set[int]:
    """Takes edges off the stack until `last`; their ends."""
    nodes: set[int] = set()
    while True:
        edge = edges.pop()
        nodes.update(edge)
        if edge == last:
            return nodes


def contracted(reduced: Reduced, label: NDArray[np.int64]) -> Reduced:
    """The reduced problem with supernodes of one label made one, and with them labels that wait for each other."""
    sources, targets = distinct_pairs(label[reduced.order[:, 0]], label[reduced.order[:, 1]])
    label = strongly_connected(reduced.count, sources, targets)[label]
    names, group = np.unique(label, return_inverse=True)
    group, count = group.reshape(-1), len(names)
    before, after = group[reduced.order[:, 0]], group[reduced.order[:, 1]]
    between = before != after
    sources, targets = distinct_pairs(before[between], after[between])
    numbers = topological_numbers(count, sources, targets)
    assert numbers is not None, "what waits for each other was made one"
    group = numbers[group]
    order = np.stack(distinct_pairs(numbers[sources], numbers[targets]), axis=1).astype(np.int32)
    ticks = np.zeros((count, *reduced.ticks.shape[1:]), dtype=np.int64)
    np.add.at(ticks, group, np.maximum(reduced.ticks, 0))
    barred = np.zeros(ticks.shape, dtype=bool)
    np.logical_or.at(barred, group, reduced.ticks < 0)
    ticks[barred] = -1
    source = group[reduced.tensor_source]
    tensor = np.repeat(np.arange(len(source)), np.diff(reduced.reader_first))
    outside = group[reduced.readers] != source[tensor]
    tensor, readers = distinct_pairs(tensor[outside], group[reduced.readers[outside]])
    leaving, sizes = np.unique(tensor, return_counts=True)
    weight = np.repeat(np.arange(len(reduced.weight_bytes)), np.diff(reduced.user_first))
    weight, users = distinct_pairs(weight, group[reduced.users])
    return replace(
        reduced,
        node_of=group[reduced.node_of].astype(np.int32),
        ticks=ticks,
        order=order,
        tensor_source=source[leaving].astype(np.int32),
        tensor_late=reduced.tensor_late[leaving],
        reader_first=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        readers=readers.astype(np.int32),
        receive_ticks=reduced.receive_ticks[leaving],
        send_ticks=reduced.send_ticks[leaving],
        user_first=np.searchsorted(weight, np.arange(len(reduced.weight_bytes) + 1)).astype(np.int64),
        users=users.astype(np.int32),
        lossless=False,
    )
