"""Contiguous splits: cut one topological order into consecutive pieces, one per device, by dynamic programming.

Notation    n cut positions, i < j two of them, d device, S = operators between i and j
    work[d, i, j]   seconds of S on d
    cross[i]        seconds to send every tensor that crosses position i, over the quickest link of the cluster
    best[used, j]   least value of a split of everything before j over the devices in `used`
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from stead.problem import Problem, Throughput
from stead.solvers.build.schedules import mirrored_groupings
from stead.solvers.few_devices import few_devices
from stead.solvers.search_state import Search
from stead.solvers.solution import Budget, Solution

Used = tuple[int, ...]  # how many devices of each class are taken


@few_devices
@dataclass(frozen=True, slots=True)
class Split:
    """Best cut of the topological order into one piece per device, devices in any order.

    Time per sample is the largest piece, latency the sum of all pieces; crossings are priced with the quickest
    link, so the result is exact on chains with equal links and a good start elsewhere.
    """

    name: ClassVar[str] = "split"
    cuts: int = 256  # positions considered; more are thinned out
    states: int = 4096  # sets of used devices considered; beyond, devices are taken in order of speed

    def unsupported(self, problem: Problem) -> str | None:
        """It takes every problem."""
        return None

    def solve(self, problem: Problem, budget: Budget, seed: int = 0) -> Solution:
        """Score the best split of each order."""
        search = Search(problem, budget, solver=self.name, seed=seed)
        with search.interruptible():
            search.relax()
            for unit_of, order in _orders(problem):
                if search.done:
                    break
                for devices in _splits(problem, unit_of, order, self.cuts, self.states):
                    search.offer(devices)
        return search.solution()


def _orders(problem: Problem) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """(units, order): by first operator, then by last operator where that is another order.

    For pipelines of micro-batches in training units go together with their backward operators: stages that do not
    would wait for each other.
    """
    objective = problem.objective
    if isinstance(objective, Throughput) and objective.microbatches is not None and problem.graph.is_training:
        for unit_of in mirrored_groupings(problem):
            yield unit_of, np.arange(int(unit_of.max(initial=-1)) + 1)
    first = np.arange(problem.unit_count)
    yield problem.units, first
    last = np.zeros(problem.unit_count, dtype=np.int64)
    np.maximum.at(last, problem.units, np.arange(len(problem.graph)))
    by_last = np.argsort(last, kind="stable")
    if not np.array_equal(by_last, first):
        yield problem.units, by_last


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Prices of every piece between two cut positions."""

    positions: NDArray[np.int64]  # [cut]; units before it
    work: NDArray[np.float64]  # [device, cut]; prefix sums of seconds, inf-free
    blocked: NDArray[np.int64]  # [device, cut]; prefix counts of units that may not run there
    weights: NDArray[np.float64]  # [cut]; prefix sums of weight bytes
    cross: NDArray[np.float64]  # [cut]
    capacity: NDArray[np.float64]  # [device]

    def seconds(self, device: int, *, both_ends: bool) -> NDArray[np.float64]:  # [cut, cut]
        """Seconds of the piece from i to j on a device, inf where it cannot be."""
        piece = self.work[device][None, :] - self.work[device][:, None]
        piece = piece + self.cross[None, :]
        if both_ends:
            piece = piece + self.cross[:, None]
        fits = (self.weights[None, :] - self.weights[:, None]) <= self.capacity[device]
        runs = self.blocked[device][None, :] == self.blocked[device][:, None]
        rising = self.positions[:, None] < self.positions[None, :]
        return np.where(fits & runs & rising, piece, np.inf)


def _pieces(
    problem: Problem, unit_of: NDArray[np.int32], order: NDArray[np.int64], cuts: int
) -> _Pieces:
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    where = rank[unit_of]  # [operator]; place of its unit in the order
    count = len(order)
    seconds = np.zeros((count, len(problem.cluster)))
    np.add.at(seconds, where, np.where(problem.allowed, problem.costs.seconds, 0.0))
    blocked = np.zeros((count, len(problem.cluster)), dtype=np.int64)
    np.logical_or.at(blocked, where, ~problem.allowed)
    weights = np.zeros(count)
    graph = problem.graph
    users = np.diff(graph.weight_user_first)
    first_users = (
        graph.weight_users[graph.weight_user_first[:-1]][users > 0] if len(users) else np.zeros(0, int)
    )
    np.add.at(weights, where[first_users], graph.weight_bytes[users > 0])
    cross = _crossing_seconds(problem, where, count)
    positions = _thinned(seconds.mean(axis=1), cross, cuts)
    return _Pieces(
        positions,
        _prefix(seconds)[:, positions],
        _prefix(blocked)[:, positions].astype(np.int64),
        _prefix(weights[:, None])[0, positions],
        cross[positions],
        np.array([device.usable_bytes for device in problem.cluster], dtype=np.float64),
    )


def _prefix(values: NDArray[np.generic]) -> NDArray[np.float64]:  # [column, row + 1]
    total = np.zeros((values.shape[1], values.shape[0] + 1))
    np.cumsum(values.T, axis=1, out=total[:, 1:])
    return total


def _crossing_seconds(problem: Problem, where: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Seconds to send every tensor that is written before and read after each position, over the quickest link."""
    graph, routes = problem.graph, problem.routes
    readers = np.diff(graph.reader_first)
    read = np.flatnonzero(readers > 0)
    if not read.size or len(problem.cluster) < 2:
        return np.zeros(count + 1)
    others = ~np.eye(len(problem.cluster), dtype=bool) & np.isfinite(routes.latency_seconds)
    if not others.any():
        return np.zeros(count + 1)
    latency, rate = routes.latency_seconds[others].min(), routes.bytes_per_second[others].max()
    given = problem.costs.tensor_seconds
    seconds = latency + (graph.tensor_bytes / rate if given is None else given)
    made = where[graph.tensor_producer[read]]  # after its readers where backward operators go with forward ones
    begin = np.minimum(made, np.minimum.reduceat(where[graph.readers], graph.reader_first[:-1][read]))
    end = np.maximum(made, np.maximum.reduceat(where[graph.readers], graph.reader_first[:-1][read]))
    change = np.zeros(count + 2)
    later = end > begin
    np.add.at(change, begin[later] + 1, seconds[read][later])
    np.add.at(change, end[later] + 1, -seconds[read][later])
    return np.maximum(np.cumsum(change)[: count + 1], 0.0)


def _thinned(work: NDArray[np.float64], cross: NDArray[np.float64], cuts: int) -> NDArray[np.int64]:
    """At most `cuts` positions: the cheapest crossing within each of equal shares of the work, and both ends."""
    count = len(work)
    if count + 1 <= cuts:
        return np.arange(count + 1)
    share = np.concatenate([[0.0], np.cumsum(work + work.sum() / count * 1e-3)])
    bucket = np.minimum((share / share[-1] * (cuts - 2)).astype(np.int64), cuts - 3)
    ranked = np.lexsort((cross, bucket))
    chosen = ranked[np.concatenate([[True], np.diff(bucket[ranked]) > 0])]
    return np.unique(np.concatenate([[0], chosen, [count]]))


def _classes(problem: Problem) -> list[list[int]]:
    """Devices that are interchangeable for a split, in groups."""
    groups: dict[tuple[bytes, bytes, int], list[int]] = {}
    for d, device in enumerate(problem.cluster):
        key = problem.costs.seconds[:, d].tobytes(), problem.allowed[:, d].tobytes(), device.usable_bytes
        groups.setdefault(key, []).append(d)
    return list(groups.values())


def _splits(
    problem: Problem, unit_of: NDArray[np.int32], order: NDArray[np.int64], cuts: int, states: int
) -> Iterator[NDArray[np.uint8]]:
    """The best split over any number of devices, then the best for each smaller set that was considered last."""
    if not len(order):
        yield np.zeros(0, dtype=np.uint8)
        return
    pieces = _pieces(problem, unit_of, order, cuts)
    classes = _classes(problem)
    if math.prod(len(group) + 1 for group in classes) > states:
        by_speed = sorted(range(len(problem.cluster)), key=lambda d: float(pieces.work[d, -1]))
        classes = [[d] for d in by_speed]
        found = _in_fixed_order(problem, pieces, classes)
    else:
        found = _over_classes(problem, pieces, classes)
    if found is None:
        return
    unit_devices = np.zeros(len(order), dtype=np.uint8)
    taken = [0] * len(classes)
    for kind, begin, end in found:
        device = classes[kind][taken[kind]]
        taken[kind] += 1
        unit_devices[order[pieces.positions[begin] : pieces.positions[end]]] = device
    yield unit_devices[unit_of]


def _combined(
    problem: Problem, before: NDArray[np.float64], piece: NDArray[np.float64]
) -> NDArray[np.float64]:
    if isinstance(problem.objective, Throughput):
        return np.maximum(before[:, None], piece)
    return before[:, None] + piece


def _prices(problem: Problem, pieces: _Pieces, classes: list[list[int]]) -> list[NDArray[np.float64]]:
    both = isinstance(problem.objective, Throughput)
    return [pieces.seconds(group[0], both_ends=both) for group in classes]


def _over_classes(
    problem: Problem, pieces: _Pieces, classes: list[list[int]]
) -> list[tuple[int, int, int]] | None:
    """Dynamic program over how many devices of each class are used: (class, from cut, to cut) of each piece."""
    prices = _prices(problem, pieces, classes)
    cuts = len(pieces.positions)
    start: Used = (0,) * len(classes)
    best: dict[Used, NDArray[np.float64]] = {start: np.where(np.arange(cuts) == 0, 0.0, np.inf)}
    came: dict[tuple[Used, int], tuple[Used, int, int]] = {}
    for used in sorted(np.ndindex(*(len(group) + 1 for group in classes)), key=sum):
        if sum(used) == 0:
            continue
        value = np.full(cuts, np.inf)
        for kind in range(len(classes)):
            if used[kind] == 0:
                continue
            before: Used = (*used[:kind], used[kind] - 1, *used[kind + 1 :])
            for j in np.flatnonzero(best[before] < value):
                value[j] = best[before][j]
                came[used, int(j)] = (before, -1, int(j))
            reached = _combined(problem, best[before], prices[kind])
            origin = reached.argmin(axis=0)
            least = reached[origin, np.arange(cuts)]
            for j in np.flatnonzero(least < value):
                value[j] = least[j]
                came[used, int(j)] = (before, kind, int(origin[j]))
        best[used] = value
    everything: Used = tuple(len(group) for group in classes)
    if not math.isfinite(best[everything][-1]):
        return None
    return _walk_back(came, everything, cuts - 1)


def _walk_back(
    came: dict[tuple[Used, int], tuple[Used, int, int]], used: Used, j: int
) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    while (used, j) in came:
        before, kind, i = came[used, j]
        if kind >= 0:
            found.append((kind, i, j))
        used, j = before, i
    return found[::-1]


def _in_fixed_order(
    problem: Problem, pieces: _Pieces, classes: list[list[int]]
) -> list[tuple[int, int, int]] | None:
    """The same with devices taken in the given order only."""
    prices = _prices(problem, pieces, classes)
    cuts = len(pieces.positions)
    value = np.where(np.arange(cuts) == 0, 0.0, np.inf)
    origins: list[NDArray[np.int64]] = []
    for price in prices:
        reached = _combined(problem, value, price)
        np.fill_diagonal(reached, value)  # a device may stay empty
        origin = reached.argmin(axis=0)
        value = reached[origin, np.arange(cuts)]
        origins.append(origin)
    if not math.isfinite(value[-1]):
        return None
    found, j = [], cuts - 1
    for kind in range(len(classes) - 1, -1, -1):
        i = int(origins[kind][j])
        if i < j:
            found.append((kind, i, j))
        j = i
    return found[::-1]
