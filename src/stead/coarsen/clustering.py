"""Convex clusters: groups without a way out and back, so that the graph of clusters has no cycle.

Notation    n clusters at the moment, numbered so that edges rise; E edges between them
    level       edges on the longest path to a cluster (or, in every second round, from it)
    pair        an edge (u, v) to be contracted, with level(v) = level(u) + 1

Why contracting pairs makes no cycle: an edge that leaves the pair (u, v) of level L ends at level L + 1 or higher, so
a cycle among pairs and single clusters can only lead through pairs of one level, each time from a u to the v of
another pair. These few edges are checked; pairs on a cycle of them are given up. Clusters of one level can be joined
without any check, since every edge rises. Clusters with a single neighbour can always join it.
Herrmann et al., "Multilevel algorithms for acyclic partitioning of directed acyclic graphs", SIAM J. Sci. Comput.
2019, contract by levels likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stead.coarsen.grouping import Grouping
from stead.errors import BadInput
from stead.graph import PHASES, Graph
from stead.graph.order import edge_pairs, longest_paths
from stead.problem import Problem

SLACK = 1.5  # a cluster may hold this many times its equal share of the work, or one operator that is heavier
LEAST_SHARE = 0.1  # an operator counts as at least this share of a mean one, so that free ones spread too
SLOW_ROUND = 0.08  # where a round joins less than this share, rules are relaxed
LIGHT = 0.2  # of what a cluster may hold
CHOOSY = 0.5  # at first, a cluster refuses edges of less than this share of its best one

# The device by which work is guessed where no costs are known.
FLOPS_PER_SECOND = 4.6e12
BYTES_PER_SECOND = 500e9
LAUNCH_SECONDS = 5e-6


def cluster(
    graph: Graph, clusters: int, *, work: ArrayLike | None = None, apart: ArrayLike | None = None
) -> Grouping:
    """Operators in at most so many convex clusters that keep heavy tensors inside and share the work evenly.

    `work` is the weight of each operator (default: a guess from FLOPs and bytes), operators with different labels in
    `apart` never meet (default: phases). There are more clusters than asked for only where these labels demand it.
    Deterministic, near linear in time.

    >>> from stead.workloads.synthetic import synthetic
    >>> grid = synthetic("lstm-grid", operators=1000)
    >>> cluster(grid, 20)
    Grouping('lstm-grid': 991 operators in 20 groups)
    """
    if clusters < 1:
        raise BadInput(f"at least 1 cluster is needed, got {clusters}")
    weight = _guess(graph) if work is None else _work(work, len(graph))
    labels = np.asarray(graph.phases if apart is None else apart)
    if labels.shape != (len(graph),) or labels.dtype.kind not in "biu":
        raise BadInput(
            f"apart must be {len(graph)} labels, one per operator; got {labels.dtype} of {labels.shape}"
        )
    state = _State.of(graph, weight, labels)
    return Grouping(graph, _coarsened(state, clusters))


def cluster_problem(problem: Problem, clusters: int) -> Grouping:
    """Convex clusters for a problem: its seconds are the work, operators with other devices stay apart."""
    usable = np.isfinite(problem.costs.seconds) & problem.allowed
    seconds = np.where(usable, problem.costs.seconds, 0.0).sum(axis=1) / usable.sum(axis=1)
    # Up to 64 devices as one number; that it may wrap round does not matter.
    places = 256 ** np.arange((len(problem.cluster) + 7) // 8)
    where = np.unique(np.packbits(problem.allowed, axis=1).astype(np.int64) @ places, return_inverse=True)[1]
    labels = where.reshape(-1) * len(PHASES) + problem.graph.phases
    return cluster(problem.graph, clusters, work=seconds, apart=labels)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Clusters and the edges between them."""

    cluster: NDArray[np.int64]  # [operator]
    work: NDArray[np.float64]  # [cluster]
    label: NDArray[np.int64]  # [cluster]
    source: NDArray[np.int64]  # [edge]; sorted by source, then target; source < target
    target: NDArray[np.int64]  # [edge]
    bytes: NDArray[np.float64]  # [edge]

    @property
    def count(self) -> int:
        return len(self.work)

    @staticmethod
    def of(graph: Graph, work: NDArray[np.float64], labels: NDArray[np.int64]) -> _State:
        """Every operator a cluster of its own."""
        source, target = edge_pairs(graph)
        tensor = graph.tensor_of_read
        key = source * len(graph) + target
        edge = np.searchsorted(
            key, graph.tensor_producer[tensor].astype(np.int64) * len(graph) + graph.readers
        )
        carried = np.bincount(edge, weights=graph.tensor_bytes[tensor].astype(np.float64), minlength=len(key))
        mean = work.sum() / max(len(work), 1)
        share = np.maximum(work / mean, LEAST_SHARE) if mean > 0 else np.ones(len(work))
        return _State(
            np.arange(len(graph)), share, labels.astype(np.int64), source, target, carried.astype(np.float64)
        )

    def joined(self, number: NDArray[np.int64], count: int) -> _State:
        """The state after every cluster took its new number."""
        source, target = number[self.source], number[self.target]
        outside = source != target
        key = source[outside] * count + target[outside]
        order = np.argsort(key, kind="stable")
        key, carried = key[order], self.bytes[outside][order]
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        label = np.zeros(count, dtype=np.int64)
        label[number] = self.label
        return _State(
            number[self.cluster],
            np.bincount(number, weights=self.work, minlength=count).astype(np.float64),
            label,
            key[begins] // count,
            key[begins] % count,
            np.add.reduceat(carried, begins) if begins.size else carried,
        )

    def reversed(self) -> _State:
        """The same clusters with all edges turned round."""
        last = self.count - 1
        order = np.lexsort((-self.source, -self.target))
        return _State(
            last - self.cluster,
            self.work[::-1],
            self.label[::-1],
            (last - self.target)[order],
            (last - self.source)[order],
            self.bytes[order],
        )


def _coarsened(state: _State, wanted: int) -> NDArray[np.int64]:  # [operator]
    """Rounds of contractions until few enough clusters are left."""
    total = float(state.work.sum())
    limit = max(SLACK * total / wanted, float(state.work.max(initial=0.0)))
    choosy = CHOOSY
    upside_down = False
    while state.count > wanted:
        before = state.count
        state = _pendants_joined(state, limit, state.count - wanted)
        if state.count > wanted:
            state = _pairs_joined(state, limit, state.count - wanted, choosy).reversed()
            upside_down = not upside_down
        if before - state.count < SLOW_ROUND * before and choosy > 0.01:
            choosy /= 4
            continue
        if state.count > wanted and before - state.count < SLOW_ROUND * before:
            state = _levels_joined(state, limit, state.count - wanted)
        if before - state.count < SLOW_ROUND * before:
            if before == state.count and limit > total:
                break  # the labels keep all that is left apart
            limit *= 1.5
    return state.cluster if not upside_down else state.count - 1 - state.cluster


def _pendants_joined(state: _State, limit: float, most: int) -> _State:
    """Light clusters with one neighbour join it as long as it does not get too heavy."""
    n = state.count
    degree = np.bincount(state.source, minlength=n) + np.bincount(state.target, minlength=n)
    hangs = (degree == 1) & (state.work <= LIGHT * limit)
    usable = (hangs[state.source] != hangs[state.target]) & (
        state.label[state.source] == state.label[state.target]
    )
    edges = np.flatnonzero(usable)
    if not edges.size:
        return state
    leaf = np.where(hangs[state.source[edges]], state.source[edges], state.target[edges])
    hub = state.source[edges] + state.target[edges] - leaf
    work = state.work.tolist()
    heaviest = np.argsort(-state.bytes[edges], kind="stable")
    into = np.arange(n)
    for a, b in zip(leaf[heaviest].tolist(), hub[heaviest].tolist(), strict=True):
        if most and work[a] + work[b] <= limit:
            work[b] += work[a]
            into[a] = b
            most -= 1
    stays = into == np.arange(n)
    return state.joined((np.cumsum(stays) - 1)[into], int(stays.sum()))


def _pairs_joined(state: _State, limit: float, most: int, choosy: float) -> _State:
    """Heavy edges between neighbouring levels are contracted, none of which share a cluster."""
    level = longest_paths(state.count, state.source, state.target).astype(np.int64)
    near = np.flatnonzero(level[state.target] == level[state.source] + 1)
    u, v = state.source[near], state.target[near]
    weight = state.work[u] + state.work[v]
    fits = (state.label[u] == state.label[v]) & (weight <= limit)
    # Heavy edges first, between light clusters first: clusters grow at the same pace.
    rating = state.bytes[near] / (state.work[u] * state.work[v])
    best = np.zeros(state.count)
    np.maximum.at(best, u[fits], rating[fits])
    np.maximum.at(best, v[fits], rating[fits])
    order = np.flatnonzero(fits & (rating >= choosy * np.maximum(best[u], best[v])))
    order = order[np.lexsort((weight[order], -rating[order]))]
    pairs = _matching(state.count, u[order], v[order], most)
    pairs = _without_cycles(state.count, pairs, u, v)
    return state.joined(*_numbers(state.count, level, pairs))


def _matching(
    count: int, u: NDArray[np.int64], v: NDArray[np.int64], most: int
) -> NDArray[np.int64]:  # [pair, 2]
    """Edges taken one after another unless one of their ends is taken already."""
    free = [True] * count
    taken: list[tuple[int, int]] = []
    for a, b in zip(u.tolist(), v.tolist(), strict=True):
        if free[a] and free[b]:
            free[a] = free[b] = False
            taken.append((a, b))
            if len(taken) == most:
                break
    return np.array(taken, dtype=np.int64).reshape(-1, 2)


def _without_cycles(
    count: int, pairs: NDArray[np.int64], u: NDArray[np.int64], v: NDArray[np.int64]
) -> NDArray[np.int64]:  # [pair, 2]
    """Pairs that form no cycle, in an order in which they may run; (u, v) are edges between neighbouring levels."""
    first = np.full(count, -1, dtype=np.int64)
    second = first.copy()
    first[pairs[:, 0]] = second[pairs[:, 1]] = np.arange(len(pairs))
    a, b = first[u], second[v]
    across = (a >= 0) & (b >= 0) & (a != b)
    a, b = a[across], b[across]
    order, stuck = _peeled(len(pairs), a, b)
    if stuck.any():
        # What is left is on a cycle or behind one: only edges from lower to higher numbers may stay.
        falls = stuck[a] & stuck[b] & (a > b)
        stuck[b[falls]] = False
        order = np.concatenate([order, np.flatnonzero(stuck)])
    return pairs[order]


def _peeled(
    count: int, a: NDArray[np.int64], b: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(nodes in topological order, nodes on or behind cycles)."""
    by_source = np.argsort(a, kind="stable")
    first = np.searchsorted(a[by_source], np.arange(count + 1)).tolist()
    children = b[by_source].tolist()
    missing = np.bincount(b, minlength=count).tolist()
    order = [node for node in range(count) if missing[node] == 0]
    for node in order:  # grows while it is read
        for child in children[first[node] : first[node + 1]]:
            missing[child] -= 1
            if missing[child] == 0:
                order.append(child)
    stuck = np.ones(count, dtype=bool)
    stuck[order] = False
    return np.array(order, dtype=np.int64), stuck


def _numbers(count: int, level: NDArray[np.int64], pairs: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """New numbers that rise along edges: by level, single clusters before pairs, pairs in the given order."""
    leader = np.arange(count)
    leader[pairs[:, 1]] = pairs[:, 0]
    turn = np.zeros(count, dtype=np.int64)
    turn[pairs[:, 0]] = 1 + np.arange(len(pairs))
    heads = np.flatnonzero(leader == np.arange(count))
    heads = heads[np.lexsort((turn[heads], level[heads]))]
    number = np.empty(count, dtype=np.int64)
    number[heads] = np.arange(len(heads))
    return number[leader], len(heads)


def _levels_joined(state: _State, limit: float, most: int) -> _State:
    """Clusters of one level are joined two by two, such with the same heaviest neighbour first."""
    n = state.count
    level = longest_paths(n, state.source, state.target).astype(np.int64)
    order = np.lexsort((np.arange(n), state.work, _heaviest_neighbour(state), state.label, level))
    same = (level[order][1:] == level[order][:-1]) & (state.label[order][1:] == state.label[order][:-1])
    light = state.work[order][1:] + state.work[order][:-1] <= limit
    into = np.arange(n)
    possible = (same & light).tolist()
    at = 0
    while at < n - 1 and most:
        if possible[at]:
            into[order[at + 1]] = order[at]
            most -= 1
            at += 1
        at += 1
    heads = np.flatnonzero(into == np.arange(n))
    heads = heads[np.argsort(level[heads], kind="stable")]
    number = np.empty(n, dtype=np.int64)
    number[heads] = np.arange(len(heads))
    return state.joined(number[into], len(heads))


def _heaviest_neighbour(state: _State) -> NDArray[np.int64]:  # [cluster]
    """The cluster with which each one shares most bytes; -1 for none."""
    ends = np.concatenate([state.source, state.target])
    others = np.concatenate([state.target, state.source])
    order = np.argsort(np.concatenate([state.bytes, state.bytes]), kind="stable")
    found = np.full(state.count, -1, dtype=np.int64)
    found[ends[order]] = others[order]  # the heaviest is written last
    return found


def _guess(graph: Graph) -> NDArray[np.float64]:
    """Seconds of each operator on a reference device."""
    busy = np.maximum(graph.flops / FLOPS_PER_SECOND, graph.moved_bytes / BYTES_PER_SECOND)
    return np.where(busy > 0, busy + LAUNCH_SECONDS, 0.0)


def _work(given: ArrayLike, count: int) -> NDArray[np.float64]:
    array = np.asarray(given)
    if array.dtype.kind not in "fiu" or array.shape != (count,):
        raise BadInput(
            f"work must be {count} numbers, one per operator; got {array.dtype} of shape {array.shape}"
        )
    if array.size and not (np.isfinite(array).all() and array.min() >= 0):
        raise BadInput("work must be finite and at least 0")
    return array.astype(np.float64)
