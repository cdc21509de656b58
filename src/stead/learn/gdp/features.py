"""What GDP sees of a problem: nodes, edges, devices and the whole, all relative.

Notation    N nodes (operators, or units made of them), K devices
    words    [N, V]     share of each kind of operator
    numbers  [N, F]     amounts standardised over the graph, shares of its depth and time, shapes
    beside   [N, K, 4]  log seconds on a device against the fastest one; whether it may run there; how far its part of
                        the work is from where the node lies (see shares.py), in the cut that simulates best

Nothing depends on the number of nodes or on the absolute speed of the cluster, and no node has a number of its own.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from stead.coarsen import Grouping
from stead.graph.arrays import distinct_pairs
from stead.learn.gdp.network import GraphInputs, Neighbours, repaired
from stead.learn.gdp.shares import PLACES, device_offsets, node_places
from stead.learn.ground.equal_devices import device_classes, names_by_first_use
from stead.learn.ground.features import (
    DIMENSIONS,
    VOCABULARY,
    OperatorTable,
    clipped,
    log_slowness,
    operator_table,
    standardised,
)
from stead.learn.ground.placed_groups import memory_room
from stead.learn.ground.policy import Cut, Seen
from stead.learn.ground.seq2seq import Room
from stead.problem import Problem
from stead.sim import simulate_many
from stead.solvers.search.search import long_lived_bytes

TURNS = (1, 4)  # of the sine and cosine of a position
POSITION_COLUMNS = 2 * (1 + 2 * len(TURNS))
HALF_TURNS = (1, 2, 4, 8)  # of the sine and cosine of a rank
RANK_COLUMNS = 2 + 2 * len(HALF_TURNS)
FEATURES = 8 + 2 + 3 + 3 + POSITION_COLUMNS + RANK_COLUMNS + DIMENSIONS
POSITIONS = slice(16, 16 + POSITION_COLUMNS + RANK_COLUMNS)  # columns that depend on the order of nodes
SPREAD = 64  # rounds in which nodes without weights take over the rank of neighbours
DEVICE_FEATURES, WHOLE_FEATURES = 5, 5
BESIDE_FEATURES = 4
NEAREST = 3  # the column of the distance from a device's part
ADJACENT = 4  # producers and readers of an operator that a faithful network sees, by number
FAITHFUL_FEATURES = DIMENSIONS + 2 * ADJACENT
LEVELS = slice(10, 12)  # columns that tell how deep a node lies
CUT = "cut"  # the best of some plain cuts, which the network sees; see shares.py
LOOKS = PLACES + 1  # simulations that the features take at most: the cuts, and what passes on one device
MARGIN = 1.1  # memory beyond what weights and lasting outputs need, on top of what one device shows
MOST_REPAIRED = 4096  # units up to which the decoder looks at memory: it walks over them one by one


def graph_inputs(
    problem: Problem,
    nodes: Grouping,
    units: Grouping,
    *,
    faithful: bool = False,
    positions: bool = True,
    looks_at_memory: bool = True,
) -> GraphInputs:
    """All that the network reads; `nodes` are its rows, `units` what is placed and never finer than nodes.

    Without `positions` messages and attention do not know where in the order and how deep a node lies, only whose
    weights it uses: then steps of an unrolled layer look alike to them, however many there are. The head always knows.
    """
    table = operator_table(problem)
    sums = _Sums(nodes)
    seconds, allowed = sums.total(table.seconds), sums.every(problem.allowed)
    relative = log_slowness(seconds, allowed)
    words = np.bincount(sums.group * VOCABULARY + table.kinds, minlength=nodes.count * VOCABULARY)
    shares = words.reshape(nodes.count, VOCABULARY) / sums.sizes
    sources, targets = _edges(table, sums.group)
    beside = np.stack([relative, allowed.astype(np.float64)], axis=2)
    near: tuple[Neighbours, ...]
    if faithful:
        numbers = _faithful_numbers(table, sums, sources, targets)
        near = (_neighbours(np.r_[targets, sources], np.r_[sources, targets], nodes.count),)
    else:
        numbers = _numbers(table, sums, seconds, relative, allowed, (sources, targets))
        if not positions:
            numbers[:, LEVELS] = numbers[:, POSITIONS.start : POSITIONS.start + POSITION_COLUMNS] = 0.0
        near = (
            _neighbours(targets, sources, nodes.count),
            _neighbours(sources, targets, nodes.count),
        )
    unit = None if nodes.count == units.count else torch.from_numpy(_unit_of(nodes, units))
    room, seen = None, Seen()
    if looks_at_memory and units.count <= MOST_REPAIRED:
        passing, simulated = _passing(problem)
        seen = Seen(simulated)
        room = memory_room(problem, units.group, margin=MARGIN * passing)
        room = None if room is None else _merged(room)
    may = _Sums(units).every(problem.allowed)
    if not faithful:
        own, cut = _offsets(problem, units, may, room)
        seen = Seen(seen.evaluations + PLACES, cut)
        beside = np.concatenate([beside, own if unit is None else own[unit.numpy()]], axis=2)
    return GraphInputs(
        words=torch.from_numpy(shares.astype(np.float32)),
        numbers=torch.from_numpy(clipped(numbers)),
        near=near,
        beside=torch.from_numpy(clipped(beside)),
        devices=torch.from_numpy(clipped(_devices(problem, table))),
        whole=torch.from_numpy(clipped(_whole(problem, table))),
        unit=unit,
        allowed=torch.from_numpy(may),
        room=room,
        seen=seen,
    )


class _Sums:
    """Sums over the operators of every node, by segments."""

    def __init__(self, grouping: Grouping) -> None:
        self.group = grouping.group.astype(np.int64)
        self.count = grouping.count
        self.order = np.argsort(self.group, kind="stable")
        self.begins = np.searchsorted(self.group[self.order], np.arange(grouping.count))
        self.sizes = np.maximum(grouping.sizes, 1).astype(np.float64)[:, None]

    def total(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.add.reduceat(values[self.order], self.begins, axis=0))

    def every(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(np.logical_and.reduceat(values[self.order], self.begins, axis=0))

    def most(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.maximum.reduceat(values[self.order], self.begins))

    def first(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(values[self.order[self.begins]])


def _offsets(
    problem: Problem, units: Grouping, may: NDArray[np.bool_], room: Room | None
) -> tuple[NDArray[np.float64], Cut]:  # [M, K, 2]
    """(offsets of the cut that is best of all as the simulator says and their absolute values, that cut).

    Of equal devices the first one has the part that comes first, as in everything that is copied.
    """
    offsets = device_offsets(problem, node_places(problem, units))
    rows = torch.from_numpy(np.where(may[:, :, None], np.abs(offsets), np.inf).argmin(axis=1).T.copy())  # [P, M]
    if room is not None:
        rows = repaired(rows, room, torch.from_numpy(may))
    cuts = rows.numpy().astype(np.uint8)
    scores = simulate_many(problem, units.lift(cuts), threads=1)
    seconds = np.where(scores.feasible, scores.seconds, np.inf)
    best = int(seconds.argmin())
    names = names_by_first_use(cuts[best : best + 1], device_classes(problem))[0]
    found = np.empty(offsets.shape[:2])
    found[:, names] = offsets[:, :, best]
    return np.stack([found, np.abs(found)], axis=2), Cut(CUT, cuts[best], float(seconds[best]))


def _numbers(
    table: OperatorTable,
    sums: _Sums,
    seconds: NDArray[np.float64],
    relative: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    edges: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.float64]:  # [N, FEATURES]
    amounts = sums.total(table.sums)
    may = np.maximum(allowed.sum(axis=1), 1)
    mean_seconds = seconds.sum(axis=1) / may
    share = np.cumsum(mean_seconds) - mean_seconds / 2
    share = share / max(float(mean_seconds.sum()), 1e-30)
    position = np.arange(sums.count) / max(1, sums.count - 1)
    owner = sums.most(table.owner)  # the same for all calls of a module: they share its weights
    rank = _ranks(owner, *edges)
    loads = np.log1p(amounts[:, 4:6] / max(float(amounts[:, 4].mean()), 1e-30))
    spread = [relative.sum(axis=1) / may, relative.max(axis=1, initial=0.0), allowed.mean(axis=1)]
    places = [
        wave
        for where in (position, share)
        for wave in (where, *(f(2 * np.pi * turns * where) for turns in TURNS for f in (np.sin, np.cos)))
    ]
    ranks = [(owner >= 0).astype(np.float64), rank]
    ranks += [f(np.pi * turns * rank) for turns in HALF_TURNS for f in (np.sin, np.cos)]
    return np.concatenate(
        [
            standardised(np.log1p(amounts)),
            loads,
            sums.total(table.means) / sums.sizes,
            np.stack(spread + places + ranks, axis=1),
            standardised(sums.first(table.dims)),
        ],
        axis=1,
    )


def _ranks(
    owner: NDArray[np.int64], sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> NDArray[np.float64]:  # [N]
    """Where the weights of a node stand among all weights, from 0 to 1; without weights the mean of its neighbours."""
    known = owner >= 0
    different = np.unique(owner[known])
    rank = np.where(known, np.searchsorted(different, owner) / max(1, len(different) - 1), 0.0)
    own, other = np.r_[targets, sources], np.r_[sources, targets]
    for _ in range(SPREAD):
        if known.all():
            break
        heard = known[other] & ~known[own]
        if not heard.any():
            break
        count = np.bincount(own[heard], minlength=len(rank))
        total = np.bincount(own[heard], weights=rank[other[heard]], minlength=len(rank))
        fresh = count > 0
        rank = np.where(fresh, total / np.maximum(count, 1), rank)
        known = known | fresh
    return rank


def _faithful_numbers(
    table: OperatorTable, sums: _Sums, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> NDArray[np.float64]:  # [N, FAITHFUL_FEATURES]
    """Shapes and the numbers of adjacent nodes divided by how many there are, -1 where there is none."""
    adjacent = np.full((sums.count, 2 * ADJACENT), -1.0)
    for side, (own, other) in enumerate(((targets, sources), (sources, targets))):
        order = np.argsort(own, kind="stable")
        own, other = own[order], other[order]
        place = np.arange(len(own)) - np.searchsorted(own, own)
        kept = place < ADJACENT
        adjacent[own[kept], side * ADJACENT + place[kept]] = other[kept] / sums.count
    return np.concatenate([standardised(sums.first(table.dims)), adjacent], axis=1)


def _devices(problem: Problem, table: OperatorTable) -> NDArray[np.float64]:  # [K, DEVICE_FEATURES]
    """Speed, memory, links and permissions of every device against the others."""
    fastest = np.where(problem.allowed, table.seconds, np.inf).min(axis=1)
    own = np.where(problem.allowed, table.seconds, fastest[:, None]).sum(axis=0)
    speed = np.log(np.maximum(own, 1e-30) / max(float(fastest.sum()), 1e-30))
    capacity = problem.limit_bytes.astype(np.float64)
    rates = problem.routes.bytes_per_second.copy()
    np.fill_diagonal(rates, np.nan)
    usable = np.isfinite(rates) & (rates > 0)
    mean = np.array(
        [float(row[ok].mean()) if ok.any() else 1.0 for row, ok in zip(rates, usable, strict=True)]
    )
    return np.stack(
        [
            speed,
            np.log(capacity / capacity.max()),
            np.log(mean / mean.max()),
            problem.allowed.mean(axis=0),
            [float(device.is_host) for device in problem.cluster],
        ],
        axis=1,
    )


def _whole(problem: Problem, table: OperatorTable) -> NDArray[np.float64]:  # [WHOLE_FEATURES]
    """Numbers about graph and cluster together: how dear transfers are, how tight memory is."""
    graph, amounts = problem.graph, table.sums.sum(axis=0)
    capacity = sum(map(float, problem.limit_bytes.tolist()))
    needed = float(graph.weight_bytes.sum()) + float(graph.tensor_bytes.sum())
    latency = problem.routes.latency_seconds[~np.eye(len(problem.cluster), dtype=bool)]
    latency = latency[np.isfinite(latency)]
    mean = float(table.seconds.mean()) if table.seconds.size else 0.0
    return np.array(
        [
            math.log(max(amounts[5], 1e-9) / max(amounts[4], 1e-9)),
            math.log1p(float(latency.mean()) / max(mean, 1e-12)) if latency.size else 0.0,
            math.log(max(capacity, 1.0) / max(needed, 1.0)),
            math.log2(len(problem.cluster)),
            float((graph.phases != 0).mean()) if len(graph) else 0.0,
        ]
    )


def _edges(table: OperatorTable, group: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sources, targets = group[table.edges[:, 0]], group[table.edges[:, 1]]
    outside = sources != targets
    return distinct_pairs(sources[outside], targets[outside])


def _neighbours(own: NDArray[np.int64], other: NDArray[np.int64], count: int) -> Neighbours:
    order = np.argsort(own, kind="stable")
    lengths = np.bincount(own, minlength=count)
    return Neighbours(
        torch.from_numpy(other[order].astype(np.int64)), torch.from_numpy(lengths.astype(np.int64))
    )


def _unit_of(nodes: Grouping, units: Grouping) -> NDArray[np.int64]:  # [N]
    found = np.zeros(nodes.count, dtype=np.int64)
    found[nodes.group] = units.group
    return found


def _passing(problem: Problem) -> tuple[float, int]:
    """(peak of a device that runs everything over what stays there, between 1 and 2; simulations that this took)."""
    able = np.flatnonzero(problem.allowed.all(axis=0))
    lasting = float(problem.graph.weight_bytes.sum()) + float(long_lived_bytes(problem).sum())
    if not able.size or lasting <= 0:
        return 1.0, 0
    row = np.full((1, len(problem.graph)), able[0], dtype=np.uint8)
    peak = float(simulate_many(problem, row, memory="peak").peak_bytes[0, able[0]])
    return min(2.0, max(1.0, peak / lasting)), 1


def _merged(room: Room) -> Room:
    """Weights that the same units use counted as one."""
    uses = room.uses.numpy()
    if not uses.shape[1]:
        return room
    _, kept, into = np.unique(uses, axis=1, return_index=True, return_inverse=True)
    total = np.bincount(into.reshape(-1), weights=room.weight_bytes.numpy(), minlength=len(kept))
    return Room(
        torch.from_numpy(uses[:, kept].copy()), torch.from_numpy(total), room.held_bytes, room.capacity
    )
