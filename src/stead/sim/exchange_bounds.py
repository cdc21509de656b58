"""A device has the neighbours of what it runs, or sends and receives: bounds on the load of full pipelines.

Notation    u, v units, t tensor, c class of equal devices
    p[u,c]  ticks of u on a device of class c
    s[t,c]  least ticks to send t from a device of class c to any other device, r[t,c] to receive it there
    n(u,v)  how often u and v meet: tensors that one of them makes and the other reads

Let v be on device d of class c. Its load has p[v,c]. A tensor that v makes for other units either is sent from d, which
adds s[t,c] or more, or all its readers are on d. A tensor of another unit that v reads either is received, which adds
r[t,c] or more, or its maker u is on d. Every unit u on d adds p[u,c], which is no less than the sum of
floor(p[u,c] / n(u,v)) over the tensors where u and v meet. So no tensor is paid with what another is paid with, and

    load of d  >=  p[v,c] + sum over t that v makes of min(s[t,c], sum over readers u of floor(p[u,c] / n(u,v)))
                          + sum over t that v reads of min(r[t,c], floor(p[u,c] / n(u,v))),  u the maker of t

where a unit that may not run on c costs without end. The least value over the classes that may run v is a bound for
each v, and so is the largest of these. Where compute and traffic overlap, the largest of two or three parts is no less
than a half or a third of their sum; the largest forward and backward load together are no less than those of d.

*A crossing.* If tensors join all units, a device that has some of them but not all sends or receives one tensor at
least. So either one device has everything, or each that has anything computes no longer than T less the quickest
crossing x of any tensor: then T - x is no less than what work takes that is spread over all devices. This is so where
compute and traffic add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import clock
from stead.graph.arrays import distinct_pairs
from stead.graph.components import connected
from stead.problem import Problem, Throughput
from stead.sim.transfer_times import READ, WRITE, way_ticks

PARTS = {"sum": 1, "fwbw": 1, "overlap": 2, "duplex": 3}  # of a load, the largest of which counts
Ways = tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]  # to send and to receive, [tensor]; None without one


def neighbour_bound(
    problem: Problem, unit_ticks: NDArray[np.int64], classes: NDArray[np.int64], end: float = math.inf
) -> int | None:
    """Ticks that some device of a full pipeline is busy at least; None of others, or if it takes beyond `end`.

    `unit_ticks` are [unit, class], -1 where a unit may not run; `classes` [device].
    """
    objective = problem.objective
    if not isinstance(objective, Throughput) or objective.microbatches is not None or not problem.unit_count:
        return None
    meetings = _Meetings(problem)
    least = np.full(problem.unit_count, np.iinfo(np.int64).max)
    for ticks, (send, receive) in zip(unit_ticks.T, _least_ways(problem, classes), strict=True):
        if clock.now() >= end:
            return None
        load = ticks + meetings.sent(ticks, send) + meetings.received(ticks, receive)
        np.minimum(least, load, out=least, where=ticks >= 0)
    return -(-int(least.max()) // PARTS[objective.load])


def crossing_ticks(problem: Problem, classes: NDArray[np.int64]) -> int:
    """Ticks that every device of a full pipeline exchanges unless it has all units or none; 0 if it may do without."""
    objective = problem.objective
    if not isinstance(objective, Throughput) or objective.microbatches is not None or PARTS[objective.load] > 1:
        return 0
    tensors = _Meetings(problem).joining
    if tensors is None:
        return 0
    ways = [way[tensors] for both in _least_ways(problem, classes) for way in both if way is not None]
    return min((int(way.min()) for way in ways), default=0)


class _Meetings:
    """Pairs of a tensor and a unit other than its maker that reads it."""

    def __init__(self, problem: Problem) -> None:
        graph, units = problem.graph, problem.units
        self._units, self._tensors = problem.unit_count, graph.tensor_count
        self._made_by = units[graph.tensor_producer].astype(np.int64)  # [tensor]
        tensor, reader = graph.tensor_of_read, units[graph.readers]
        apart = self._made_by[tensor] != reader
        self._tensor, self._reader = distinct_pairs(tensor[apart], reader[apart])  # [meeting]
        self._maker = self._made_by[self._tensor]
        low, high = np.minimum(self._maker, self._reader), np.maximum(self._maker, self._reader)
        _, pair, often = np.unique(low * self._units + high, return_inverse=True, return_counts=True)
        self._often = often[pair]  # [meeting]

    @property
    def joining(self) -> NDArray[np.int64] | None:
        """Tensors that lead from unit to unit; None unless they join all units."""
        if not self._tensor.size or connected(self._units, self._maker, self._reader).any():
            return None
        return self._tensor

    def sent(self, ticks: NDArray[np.int64], send: NDArray[np.int64] | None) -> NDArray[np.int64]:  # [unit]
        """What is paid on the device of every unit for tensors that it makes, given the ticks of all units there."""
        readers = ticks[self._reader]
        kept = _sums(self._tensor, np.maximum(readers, 0) // self._often, self._tensors)
        stranger = np.bincount(self._tensor[readers < 0], minlength=self._tensors) > 0
        read_elsewhere = np.bincount(self._tensor, minlength=self._tensors) > 0
        paid = np.where(read_elsewhere, _least(kept, stranger, send), 0)
        return _sums(self._made_by, paid, self._units)

    def received(self, ticks: NDArray[np.int64], receive: NDArray[np.int64] | None) -> NDArray[np.int64]:  # [unit]
        """The same for tensors that it reads."""
        makers = ticks[self._maker]
        way = None if receive is None else receive[self._tensor]
        paid = _least(np.maximum(makers, 0) // self._often, makers < 0, way)
        return _sums(self._reader, paid, self._units)


def _least(
    kept: NDArray[np.int64], stranger: NDArray[np.bool_], way: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """The cheaper of keeping and moving tensors, of which one may be out of the question; nothing if both are."""
    if way is None:
        return np.where(stranger, 0, kept)
    return np.where(stranger, way, np.minimum(kept, way))


def _sums(owner: NDArray[np.int64], ticks: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Exact sums by owner; `bincount` would add doubles."""
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, owner, ticks)
    return sums


def _least_ways(problem: Problem, classes: NDArray[np.int64]) -> Iterator[Ways]:
    """For each class no more than what tensors take from one of its devices to another device, and back."""
    routes, by_host = problem.routes, problem.cluster.routing == "host"
    free = np.array([device.is_host for device in problem.cluster], dtype=bool)
    apart = np.isfinite(routes.latency_seconds)
    np.fill_diagonal(apart, False)
    for c in range(int(classes.max()) + 1):
        here = classes == c
        if by_host and free[here].any():
            none = np.zeros(problem.graph.tensor_count, dtype=np.int64)
            yield none, none
        elif by_host:
            host = routes.host_latency_seconds, routes.host_bytes_per_second, np.ones((2, len(here)), dtype=np.int32)
            yield (
                _quickest(problem, [table[WRITE, here] for table in host]),
                _quickest(problem, [table[READ, here] for table in host]),
            )
        else:
            tables = routes.latency_seconds, routes.bytes_per_second, routes.hops
            yield (
                _quickest(problem, [table[here][apart[here]] for table in tables]),
                _quickest(problem, [table[:, here][apart[:, here]] for table in tables]),
            )


def _quickest(problem: Problem, ways: list[NDArray[Any]]) -> NDArray[np.int64] | None:  # [tensor]
    """Ticks on a way with the least latency, the highest rate and the fewest hops of (latency, rate, hops)."""
    latency, rate, hops = ways
    possible = np.isfinite(latency)
    if not possible.any():
        return None
    return way_ticks(
        problem, float(latency[possible].min()), float(rate[possible].max()), hops=int(hops[possible].min())
    )
