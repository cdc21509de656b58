"""Graph parsing: every node picks a neighbour or itself, and picked edges join nodes into groups.

Notation    n nodes, m pairs of neighbours, S samples, directions ignored
    other   [2m + n]  choices of all nodes, those of node v at first[v] .. first[v + 1] - 1, sorted; v itself is one
    picks   [S, n]    the neighbour that each node picks; itself: it would rather stay alone
    labels  [S, n]    the lowest node of the group of each node

Without limits the groups are the components of the picked edges: one Boruvka round if everybody picks the best of
symmetric scores. Limits are looked at edge by edge, in a given order; they never see scores, so that the probability
of a partition is that of its picks. All limits can only be broken by joining more, so a component that keeps them as a
whole needs no such look.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stead.graph.components import connected


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Who is next to whom in an undirected graph, everybody next to himself included."""

    first: NDArray[np.int64]  # [n + 1]
    other: NDArray[np.int64]  # [2m + n]
    pairs: NDArray[np.int64]  # [m, 2]; lower node first, sorted: the place of a pair is its id
    pair: NDArray[np.int64]  # [2m + n]; the pair that a choice means, m where it is the node itself

    @staticmethod
    def of(count: int, edges: NDArray[np.int64]) -> Neighbours:
        """From edges [edge, 2] in any direction, any number of times."""
        given = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        given = given[given[:, 0] != given[:, 1]]
        pairs = np.unique(np.sort(given, axis=1), axis=0).reshape(-1, 2)
        number, own = np.arange(len(pairs)), np.arange(count)
        owner = np.concatenate([pairs[:, 0], pairs[:, 1], own])
        other = np.concatenate([pairs[:, 1], pairs[:, 0], own])
        pair = np.concatenate([number, number, np.full(count, len(pairs))])
        order = np.lexsort((other, owner))
        first = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(owner, minlength=count), out=first[1:])
        return Neighbours(first, other[order], pairs, pair[order])

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self.first) - 1

    @property
    def owner(self) -> NDArray[np.int64]:  # [2m + n]
        """The node that each choice belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def entries(self, picks: NDArray[np.int64]) -> NDArray[np.int64]:  # [..., n]
        """Where the choices lie that were picked."""
        count = len(self)
        keys = self.owner * count + self.other  # sorted
        return np.searchsorted(keys, np.arange(count) * count + picks)


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """What a group may not become."""

    allowed: NDArray[np.bool_]  # [n, device]; a group needs a device that all its members may use
    held: NDArray[np.float64]  # [n]; bytes that a node brings along
    most_held: float
    min_groups: int = 1

    def of_groups(self, number: NDArray[np.int64], count: int) -> Limits:
        """The same limits for groups, from the number of every node's group."""
        allowed = np.ones((count, self.allowed.shape[1]), dtype=bool)
        np.logical_and.at(allowed, number, self.allowed)
        held = np.bincount(number, weights=self.held, minlength=count).astype(np.float64)
        return Limits(allowed, held, self.most_held, self.min_groups)


def partitions(picks: NDArray[np.int64], limits: Limits) -> NDArray[np.int64]:
    """Labels [S, n] that follow from picks, pairs joined by id.

    >>> ample = Limits(np.ones((4, 2), dtype=bool), np.zeros(4), 1.0)
    >>> partitions(np.array([[1, 1, 3, 2], [0, 1, 2, 3]]), ample).tolist()
    [[0, 0, 2, 2], [0, 1, 2, 3]]
    """
    samples, count = picks.shape
    offset = np.arange(samples)[:, None] * count
    flat = connected(samples * count, np.arange(samples * count), (picks + offset).reshape(-1))
    labels: NDArray[np.int64] = flat.reshape(samples, count) - offset
    for row in np.flatnonzero(_broken(labels, flat, limits)).tolist():
        own = np.arange(count)
        pairs = np.unique(np.sort(np.stack([own, picks[row]], axis=1), axis=1), axis=0)
        labels[row] = joined(count, pairs[pairs[:, 0] != pairs[:, 1]], limits)
    return labels


def joined(count: int, pairs: NDArray[np.int64], limits: Limits) -> NDArray[np.int64]:
    """Labels [n] when pairs are joined one after another unless a limit stands against it."""
    parent = list(range(count))

    def top(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    groups = count
    masks = [int.from_bytes(np.packbits(row).tobytes(), "big") for row in limits.allowed]
    held = limits.held.tolist()
    for u, v in pairs.tolist():
        a, b = sorted((top(u), top(v)))
        if a == b:
            continue
        if groups <= limits.min_groups:
            break
        if not masks[a] & masks[b] or held[a] + held[b] > limits.most_held:
            continue
        parent[b] = a
        masks[a] &= masks[b]
        held[a] += held[b]
        groups -= 1
    return np.array([top(v) for v in range(count)], dtype=np.int64)


def _broken(labels: NDArray[np.int64], flat: NDArray[np.int64], limits: Limits) -> NDArray[np.bool_]:  # [S]
    """Samples whose components break a limit somewhere."""
    samples, count = labels.shape
    broken = (labels == np.arange(count)).sum(axis=1) < limits.min_groups
    if not limits.allowed.all():
        common = np.ones((samples * count, limits.allowed.shape[1]), dtype=bool)
        np.logical_and.at(common, flat, np.tile(limits.allowed, (samples, 1)))
        broken |= ~common.any(axis=1).reshape(samples, count).all(axis=1)
    if limits.held.sum() > limits.most_held:
        held = np.bincount(flat, weights=np.tile(limits.held, samples), minlength=samples * count)
        broken |= (held > limits.most_held).reshape(samples, count).any(axis=1)
    return np.asarray(broken)
