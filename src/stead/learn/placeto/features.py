"""What Placeto sees of a problem that does not change during an episode: groups, who reaches whom, shares of bytes.

Notation    N groups, K devices
    near   [2, N, N]  column v: weights of the predecessors, then of the successors of v
    reach  [P, N, N]  row v: weights of the ancestors, the descendants and the peers of v (neither of both)

Weights of a group sum to 1 or are none with mean pooling; with sum pooling every one is 0 or 1.

A training graph whose backward operators stay with their forward operators has groups that all depend on each other:
everything would be an ancestor of everything and nothing a peer. Such a graph is seen through its forward operators
alone, unless the raw quotient is asked for (`raw`, the method as published).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stead.coarsen import Grouping
from stead.graph.arrays import distinct_pairs
from stead.graph.components import strongly_connected
from stead.learn.ground.features import FORWARD
from stead.learn.ground.placed_groups import memory_room
from stead.learn.ground.seq2seq import Room
from stead.problem import Problem

PARTS = 3  # ancestors, descendants, peers


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The arrays of the notation above, and the amounts that features are made of."""

    order: NDArray[np.int64]  # [step]; the group that is visited
    seconds: NDArray[np.float32]  # [group, device]; 0 where it cannot run
    fastest: NDArray[np.float32]  # [group]; seconds on its fastest device
    out_bytes: NDArray[np.float32]  # [group]; read outside of the group
    bytes: NDArray[np.float32]  # [group]; weights and outputs
    from_shares: NDArray[
        np.float32
    ]  # [group, group]; share of the bytes that v reads by where they come from
    to_shares: NDArray[np.float32]  # [group, group]; share of the readers of v
    peers: NDArray[np.bool_]  # [group, group]
    allowed: NDArray[np.bool_]  # [group, device]
    near: Tensor
    has: Tensor  # [2, 1, 1, N]; 1 where a group has such neighbours
    reach: Tensor
    room: Room | None  # None where everything fits on any device
    first: NDArray[np.int64]  # [group]; where its operators begin in `by_group`
    by_group: NDArray[np.int64]  # [operator]; sorted by group

    @property
    def groups(self) -> int:
        """N."""
        return len(self.fastest)

    @property
    def devices(self) -> int:
        """K."""
        return int(self.allowed.shape[1])

    def spans(
        self, start: NDArray[np.float64], finish: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(first start, last end) [row, group] of groups from those of operators."""
        return (
            np.minimum.reduceat(start[:, self.by_group], self.first, axis=1),
            np.maximum.reduceat(finish[:, self.by_group], self.first, axis=1),
        )


@dataclass(frozen=True, slots=True)
class View:
    """Switches of what is seen."""

    mean: bool = True  # pooling
    split: bool = True  # ancestors, descendants and peers apart; otherwise all other groups together
    peers: bool = True
    raw: bool = False  # edges of all operators, also where that makes cycles
    shuffle: int = -1  # seed of a random order of visits; -1: topological

    @property
    def parts(self) -> int:
        """Aggregators of `reach`."""
        return (PARTS if self.peers else PARTS - 1) if self.split else 1


def inputs_of(problem: Problem, grouping: Grouping, view: View) -> Inputs:
    """All of it, by segment sums over operators."""
    group, count, graph = grouping.group.astype(np.int64), grouping.count, problem.graph
    by_group = np.argsort(group, kind="stable")
    first = np.searchsorted(group[by_group], np.arange(count))
    forward = not grouping.is_acyclic and not view.raw
    edges, shares = _edges(problem, group, count, forward)
    before, after = reachable(count, edges)
    apart = ~(before | after | np.eye(count, dtype=bool))
    near = np.stack([_matrix(count, edges[:, ::-1]), _matrix(count, edges)])
    sets = [before, after, apart][: view.parts] if view.split else [~np.eye(count, dtype=bool)]
    allowed = np.ones((count, len(problem.cluster)), dtype=bool)
    np.logical_and.at(allowed, group, problem.allowed)
    seconds = np.zeros(allowed.shape)
    np.add.at(seconds, group, np.where(problem.allowed, problem.costs.seconds, 0.0))
    seconds = np.where(allowed, seconds, 0.0)
    written = np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=len(graph))
    held = np.bincount(group, weights=written + graph.parameter_bytes, minlength=count)
    return Inputs(
        order=visits(problem, grouping, view.shuffle),
        seconds=seconds.astype(np.float32),
        fastest=np.asarray(np.where(allowed, seconds, np.inf).min(axis=1)).astype(np.float32),
        out_bytes=_outside(problem, group, count).astype(np.float32),
        bytes=held.astype(np.float32),
        from_shares=_rows(shares),
        to_shares=_rows(_matrix(count, edges)),
        peers=apart,
        allowed=allowed,
        near=torch.from_numpy(_rows(near) if view.mean else near.astype(np.float32))
        .transpose(1, 2)
        .contiguous(),
        has=torch.from_numpy(np.asarray(near.any(axis=2), dtype=np.float32)[:, None, None, :]),
        reach=torch.from_numpy(_rows(np.stack(sets)) if view.mean else np.stack(sets).astype(np.float32)),
        room=memory_room(problem, grouping.group),
        first=first,
        by_group=by_group,
    )


def visits(problem: Problem, grouping: Grouping, shuffle: int = -1) -> NDArray[np.int64]:  # [step]
    """Groups as they are visited: as they may run; where they depend on each other, by mean forward position."""
    count = grouping.count
    if shuffle >= 0:
        return np.random.default_rng(shuffle).permutation(count)
    if grouping.is_acyclic:
        return np.arange(count)
    group, position = grouping.group.astype(np.int64), np.arange(len(problem.graph), dtype=np.float64)
    forward = (problem.graph.phases == FORWARD).astype(np.float64)
    total = np.bincount(group, weights=position * forward, minlength=count)
    number = np.bincount(group, weights=forward, minlength=count)
    mean = np.where(number > 0, total / np.maximum(number, 1), float(len(position)))
    return np.argsort(mean, kind="stable")


def reachable(
    count: int, edges: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # [group, group] twice
    """(ancestors, descendants) of every group, itself left out; groups on a cycle are both to each other.

    >>> before, after = reachable(3, np.array([[0, 1], [1, 2]]))
    >>> before[2].tolist(), after[2].tolist()
    ([True, True, False], [False, False, False])
    """
    label = strongly_connected(count, edges[:, 0], edges[:, 1]) if len(edges) else np.arange(count)
    names, part = np.unique(label, return_inverse=True)
    part = part.reshape(-1)
    across = part[edges]
    across = across[across[:, 0] != across[:, 1]]
    sources: list[list[int]] = [[] for _ in names]
    readers: list[list[int]] = [[] for _ in names]
    for a, b in np.unique(across, axis=0).tolist():
        sources[b].append(a)
        readers[a].append(b)
    members = [0] * len(names)  # bit sets of groups
    for v, p in enumerate(part.tolist()):
        members[p] |= 1 << v
    seen = [0] * len(names)
    missing = [len(s) for s in sources]
    ready = [p for p, n in enumerate(missing) if n == 0]
    for p in ready:  # grows: parts in an order in which they may run
        for source in sources[p]:
            seen[p] |= seen[source] | members[source]
        for reader in readers[p]:
            missing[reader] -= 1
            if missing[reader] == 0:
                ready.append(reader)
    width = (count + 7) // 8
    packed = b"".join((seen[p] | members[p]).to_bytes(width, "little") for p in part.tolist())
    bits = np.frombuffer(packed, dtype=np.uint8).reshape(count, width)
    before = np.unpackbits(bits, axis=1, count=count, bitorder="little").astype(bool)
    np.fill_diagonal(before, False)
    return before, before.T.copy()


def _edges(
    problem: Problem, group: NDArray[np.int64], count: int, forward: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(pairs of groups [edge, 2], bytes [reader, producer]): a tensor counts once per group that reads it."""
    graph = problem.graph
    tensor = graph.tensor_of_read
    source, target = graph.tensor_producer[tensor], graph.readers
    seen = np.ones(len(tensor), dtype=bool)
    if forward:
        seen = (graph.phases[source] == FORWARD) & (graph.phases[target] == FORWARD)
    seen &= group[source] != group[target]
    tensor, reader = distinct_pairs(tensor[seen], group[target[seen]])
    producer = group[graph.tensor_producer[tensor]]
    total = np.bincount(
        reader * count + producer, weights=graph.tensor_bytes[tensor], minlength=count * count
    )
    first, second = distinct_pairs(producer, reader)
    return np.stack([first, second], axis=1).astype(np.int64), total.reshape(count, count).astype(np.float64)


def _outside(problem: Problem, group: NDArray[np.int64], count: int) -> NDArray[np.float64]:  # [group]
    """Bytes of tensors that another group reads, each once."""
    graph = problem.graph
    tensor = graph.tensor_of_read
    source = group[graph.tensor_producer[tensor]]
    leaves = np.unique(tensor[source != group[graph.readers]])
    total = np.bincount(
        group[graph.tensor_producer[leaves]], weights=graph.tensor_bytes[leaves], minlength=count
    )
    return total.astype(np.float64)


def _matrix(count: int, pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
    found = np.zeros((count, count), dtype=bool)
    found[pairs[:, 0], pairs[:, 1]] = True
    return found


def _rows(values: NDArray[np.generic]) -> NDArray[np.float32]:
    """Rows divided by their sums; empty ones stay empty."""
    given = values.astype(np.float64)
    total = given.sum(axis=-1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(given, total, out=np.zeros_like(given), where=total > 0)
    return shares.astype(np.float32)
