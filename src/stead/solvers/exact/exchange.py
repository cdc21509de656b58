"""The best exchange between two devices, by minimum cut; with two devices in all, the best placement there is.

Everything on other devices stays. Source side of the cut = device a, sink side = device b:

    unit v                      S -> v   its ticks on b, and of its outputs from b to third devices
                                v -> T   the same on a
    tensor of u, readers c      u -> A   ticks a to b,  A -> c unlimited     (u on a, some reader on b)
                                B -> u   ticks b to a,  c -> B unlimited     (u on b, some reader on a)

If u stays on a third device, S and T stand for it. One auxiliary node per direction per tensor makes a tensor cost
once, however many readers it has; an arc per edge would charge every reader. Units that may be on one side only are
one node with S or T, so that no arc from S or into T needs an unlimited capacity.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.solvers.exact.sequential import NO_WAY, SequentialCosts

S, T = 0, 1
MOST_TICKS = 2**62


@dataclass(slots=True)
class _Network:
    """Arcs of a flow network, collected in bulk."""

    tails: list[NDArray[np.int64]] = field(default_factory=list)
    heads: list[NDArray[np.int64]] = field(default_factory=list)
    capacities: list[NDArray[np.int64]] = field(default_factory=list)
    constant: int = 0  # paid by every cut

    def add(self, tails: ArrayLike, heads: ArrayLike, capacities: ArrayLike) -> None:
        """Add arcs; those from S to T only count, loops and empty ones vanish."""
        tail, head, capacity = np.broadcast_arrays(
            *(np.asarray(part, dtype=np.int64) for part in (tails, heads, capacities))
        )
        always = (tail == S) & (head == T)
        self.constant += int(capacity[always].sum())
        useful = ~always & (tail != head) & (tail != T) & (head != S) & (capacity != 0)
        self.tails.append(tail[useful])
        self.heads.append(head[useful])
        self.capacities.append(capacity[useful])

    def cut(self, nodes: int) -> tuple[int, NDArray[np.bool_]]:
        """The value of a minimum cut and which nodes are on the side of S."""
        from ortools.graph.python import max_flow  # type: ignore[import-untyped, unused-ignore]

        tails, heads = np.concatenate(self.tails), np.concatenate(self.heads)
        capacities = np.concatenate(self.capacities)
        finite = capacities != NO_WAY
        total = int(capacities[finite].sum())
        capacities = np.where(finite, capacities, total + 1)
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tails.astype(np.int32), heads.astype(np.int32), capacities)
        on_source = np.zeros(nodes, dtype=bool)
        on_source[S] = True
        if not len(tails) or not (tails == S).any() or not (heads == T).any():
            return self.constant, self._unreached(on_source, tails, heads)
        status = flow.solve(S, T)
        assert status == flow.OPTIMAL, status
        on_source[flow.get_source_side_min_cut()] = True
        return self.constant + int(flow.optimal_flow()), on_source

    @staticmethod
    def _unreached(
        on_source: NDArray[np.bool_], tails: NDArray[np.int64], heads: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """With no arc from S or none into T nothing is cut if every node joins the side that has arcs."""
        if (tails == S).any():
            on_source[:] = True
            on_source[T] = False
        return on_source


def exchange(
    costs: SequentialCosts, devices: NDArray[np.int64], a: int, b: int
) -> tuple[int, NDArray[np.int64]] | None:
    """Length of the best run in which units of a and b may change places, and its devices; None if there is none.

    With two devices in all it is the shortest run of all placements.
    """
    movable = (devices == a) | (devices == b)
    node = _nodes(costs, movable, a, b)
    network = _Network()
    _add_units(network, costs, devices, node, a, b)
    count = int(max(node.max(initial=T), T)) + 1
    count = _add_tensors(network, costs, devices, node, (a, b), count)
    value, on_source = network.cut(count)
    moved = np.where(movable, np.where(on_source[np.maximum(node, 0)], a, b), devices)
    ticks = costs.ticks(moved)
    if ticks is None:
        return None
    fixed = int(costs.unit_ticks[~movable, devices[~movable]].sum()) + _between_others(costs, devices, a, b)
    assert ticks == value + fixed, "the cut must cost what the run costs"
    return ticks, moved


def longest_total(costs: SequentialCosts) -> int:
    """A number of ticks that no run exceeds: capacities must stay far below 2^63."""
    total = int(costs.unit_ticks.max(axis=1).sum()) if len(costs.unit_ticks) else 0
    pairs = [(s, d) for s in range(costs.devices) for d in range(costs.devices) if s != d]
    return total + sum(int(np.maximum(costs.way(s, d), 0).sum()) for s, d in pairs)


def _nodes(costs: SequentialCosts, movable: NDArray[np.bool_], a: int, b: int) -> NDArray[np.int64]:  # [unit]
    """The node of every unit: S or T if it may be on one side only, -1 if it stays on a third device."""
    node = np.full(len(movable), -1, dtype=np.int64)
    free = movable & costs.allowed[:, a] & costs.allowed[:, b]
    node[movable & ~costs.allowed[:, b]] = S
    node[movable & ~costs.allowed[:, a]] = T
    node[free] = T + 1 + np.arange(int(free.sum()))
    return node


def _add_units(
    network: _Network,
    costs: SequentialCosts,
    devices: NDArray[np.int64],
    node: NDArray[np.int64],
    a: int,
    b: int,
) -> None:
    here = np.flatnonzero(node >= 0)
    network.add(S, node[here], costs.unit_ticks[here, b])
    network.add(node[here], T, costs.unit_ticks[here, a])
    tensor, target = costs.transfers(devices)
    source = costs.reads.source[tensor]
    outwards = (node[source] >= 0) & (target != a) & (target != b)
    for d in np.unique(target[outwards]).tolist():
        which = outwards & (target == d)
        ends = node[source[which]]
        network.add(S, ends, costs.way(b, d)[tensor[which]])
        network.add(ends, T, costs.way(a, d)[tensor[which]])


def _add_tensors(
    network: _Network,
    costs: SequentialCosts,
    devices: NDArray[np.int64],
    node: NDArray[np.int64],
    pair: tuple[int, int],
    count: int,
) -> int:
    """Arcs of tensors with a reader on a or b; the number of nodes then."""
    reads, (a, b) = costs.reads, pair
    relevant = node[reads.reader] >= 0
    tensors, of = np.unique(reads.of[relevant], return_inverse=True)
    reader = node[reads.reader[relevant]]
    source = node[reads.source[tensors]]
    to_b = count + np.arange(len(tensors))
    to_a = to_b + len(tensors)
    to_b[of[reader == T]], to_a[of[reader == S]] = T, S  # some reader is there for sure
    ways_b, ways_a = costs.way(a, b)[tensors], costs.way(b, a)[tensors]
    for s in np.unique(devices[reads.source[tensors]][source < 0]).tolist():
        stays = (source < 0) & (devices[reads.source[tensors]] == s)
        ways_b[stays], ways_a[stays] = costs.way(s, b)[tensors[stays]], costs.way(s, a)[tensors[stays]]
    network.add(np.where(source >= 0, source, S), to_b, ways_b)
    network.add(to_a, np.where(source >= 0, source, T), ways_a)
    network.add(to_b[of], reader, NO_WAY)
    network.add(reader, to_a[of], NO_WAY)
    return count + 2 * len(tensors)


def _between_others(costs: SequentialCosts, devices: NDArray[np.int64], a: int, b: int) -> int:
    """Ticks of transfers that no exchange of a and b can change."""
    tensor, target = costs.transfers(devices)
    origin = devices[costs.reads.source[tensor]]
    apart = (origin != a) & (origin != b) & (target != a) & (target != b)
    pairs = np.unique(np.stack([origin[apart], target[apart]], axis=1), axis=0).tolist()
    return sum(int(costs.way(s, d)[tensor[apart & (origin == s) & (target == d)]].sum()) for s, d in pairs)
