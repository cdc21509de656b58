"""Contractions that keep the optimum: groups that some best placement has on one device anyway.

Only for objectives that add up: sequential latency and the load of the busiest device. Let g be a group, h a
neighbour, and take a best placement with g on device a and h on device b. If moving g to b makes nothing worse,
whatever a and b are, then some best placement has g and h together, and they can be one group. Tensors between g
and h alone no longer travel; tensors that h writes, or reads too, cost nothing new on b. What may get worse is the
work of g on b, and its other tensors.

Notation    t tensor with producer p and set of reader groups R; a, b devices; K devices
    way(t)      ticks to send t from one device to another; `low` and `high` over all pairs of devices
    gain        what stops travelling: tensors between g and h alone
    others      the remaining tensors of g, without those that h writes, or reads and g does not write
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.coarsen.grouping import Grouping
from stead.errors import BadInput
from stead.graph import FORWARD
from stead.problem import Latency, Problem, Throughput
from stead.problem.ticks import TICKS_PER_SECOND

WRITE, READ = 0, 1  # host memory
MOST_VISITED = 500  # groups looked at to find out whether a contraction makes a cycle

Ticks = float  # whole picoseconds, or inf where there is no way; exact below 2^53


def lossless(
    problem: Problem, *, contiguous: bool = False, cyclic: bool = False, ignore_memory: bool = False
) -> Grouping:
    """The units of a problem, contracted as far as it provably costs nothing.

    The best value over all placements stays the same. With `contiguous` also over placements whose devices follow
    each other without a way back: only groups with a single neighbour are contracted. Groups stay free of cycles
    unless `cyclic` says that they need not be (for `Grouping.colocated`). Where memory may run short nothing is
    contracted, since room may be found only by separating operators; `ignore_memory` leaves that proof to you.

    >>> from stead.testing import chain3
    >>> lossless(chain3(Latency(execution="sequential"))).group.tolist()
    [0, 0, 0]
    """
    units = Grouping(problem.graph, problem.units)
    if not ignore_memory and not memory_suffices(problem):
        return units
    contraction = _Contraction(
        problem, units, contiguous=contiguous, keep_acyclic=units.is_acyclic and not cyclic
    )
    contraction.run()
    return Grouping(problem.graph, contraction.labels()[units.group])


def memory_suffices(problem: Problem) -> bool:
    """Whether everything fits on every single device at once, so that memory rules out no placement."""
    graph = problem.graph
    most = int(graph.weight_bytes.sum()) + int(graph.tensor_bytes.sum())
    workspace = problem.costs.workspace_bytes.sum(axis=0, dtype=np.int64)
    return all(
        most + int(workspace[d]) <= device.usable_bytes for d, device in enumerate(problem.cluster.devices)
    )


@dataclass(slots=True)
class _Tensor:
    """A tensor between groups."""

    producer: int
    readers: set[int]
    late: int  # 0 forward, 1 backward or update: whose load it counts for
    low: Ticks  # over all pairs of devices
    high: Ticks
    sent: tuple[
        Ticks, ...
    ]  # [device]; what it adds to the load of its sender, once per receiver unless through host
    received: tuple[Ticks, ...]  # [device]
    same: bool  # whether the ends of a transfer do not matter to each other


@dataclass(slots=True)
class _Group:
    """A group: what it costs where, and its tensors."""

    seconds: list[tuple[Ticks, Ticks]]  # [device]; forward, late; inf where it may not run
    tensors: set[int] = field(default_factory=set)

    def ticks(self, d: int) -> Ticks:
        """Ticks on a device."""
        return self.seconds[d][0] + self.seconds[d][1]

    def devices(self) -> list[int]:
        """Devices that may run it."""
        return [d for d in range(len(self.seconds)) if math.isfinite(self.ticks(d))]


class _Contraction:
    """Groups that shrink in number until no rule applies."""

    def __init__(self, problem: Problem, units: Grouping, *, contiguous: bool, keep_acyclic: bool) -> None:
        self.rule = _rule(problem)
        self.contiguous, self.keep_acyclic = contiguous, keep_acyclic
        self.tensors = _tensors(problem, units)
        self.groups: dict[int, _Group] = dict(enumerate(_groups(problem, units)))
        for t, tensor in enumerate(self.tensors):
            for g in (tensor.producer, *tensor.readers):
                self.groups[g].tensors.add(t)
        self.into = list(range(units.count))

    def run(self) -> None:
        """Contract until nothing can be contracted."""
        waiting = deque(self.groups)
        queued = set(waiting)
        while waiting:
            g = waiting.popleft()
            queued.discard(g)
            if g not in self.groups:
                continue
            h = next((h for h in self._neighbours(g) if self._may_join(g, h)), -1)
            if h < 0:
                continue
            self._join(g, h)
            for other in (h, *self._neighbours(h)):
                if other not in queued:
                    queued.add(other)
                    waiting.append(other)

    def labels(self) -> NDArray[np.int64]:  # [unit]
        """The group that each unit ended in."""
        for u in range(len(self.into)):
            while self.into[u] != self.into[self.into[u]]:
                self.into[u] = self.into[self.into[u]]
        return np.array(self.into, dtype=np.int64)

    def _neighbours(self, g: int) -> list[int]:
        found = set()
        for t in self.groups[g].tensors:
            tensor = self.tensors[t]
            found |= tensor.readers if tensor.producer == g else {tensor.producer}
        return sorted(found - {g})

    def _may_join(self, g: int, h: int) -> bool:
        """Whether g can always follow h, and should."""
        here, there = self.groups[g], self.groups[h]
        if not set(there.devices()) <= set(here.devices()):
            return False
        if self.contiguous and self._neighbours(g) != [h]:
            return False
        shared = [self.tensors[t] for t in sorted(here.tensors)]
        move = _Move(g, h, here, there, shared)
        return self.rule.costs_nothing(move) and not (self.keep_acyclic and self._makes_cycle(g, h))

    def _makes_cycle(self, g: int, h: int) -> bool:
        """Whether a way between g and h leads over other groups; in doubt it does."""
        return any(self._leads(a, b) for a, b in ((g, h), (h, g)))

    def _leads(self, source: int, target: int) -> bool:
        """Whether a way of at least two edges leads from one group to another."""
        tensors = (self.tensors[t] for t in self.groups[target].tensors)
        if {tensor.producer for tensor in tensors} <= {source, target}:
            return False  # nobody else leads there
        seen = {source, target}
        stack = [g for g in self._readers(source) if g not in seen]
        while stack:
            g = stack.pop()
            if g in seen:
                continue
            seen.add(g)
            if len(seen) > MOST_VISITED:
                return True
            behind = self._readers(g)
            if target in behind:
                return True
            stack += [other for other in behind if other not in seen]
        return False

    def _readers(self, g: int) -> set[int]:
        found: set[int] = set()
        for t in self.groups[g].tensors:
            if self.tensors[t].producer == g:
                found |= self.tensors[t].readers
        return found

    def _join(self, g: int, h: int) -> None:
        gone = self.groups.pop(g)
        kept = self.groups[h]
        self.into[g] = h
        kept.seconds = [(a + c, b + d) for (a, b), (c, d) in zip(kept.seconds, gone.seconds, strict=True)]
        for t in gone.tensors:
            tensor = self.tensors[t]
            if g in tensor.readers:
                tensor.readers.discard(g)
                tensor.readers.add(h)
            if tensor.producer == g:
                tensor.producer = h
            tensor.readers.discard(tensor.producer)
            kept.tensors.add(t)
        kept.tensors = {t for t in kept.tensors if self.tensors[t].readers}


@dataclass(frozen=True, slots=True, eq=False)
class _Move:
    """Moving g from any device a to the device b of its neighbour h."""

    g: int
    h: int
    here: _Group
    there: _Group
    tensors: list[_Tensor]  # of g

    def between(self) -> list[_Tensor]:
        """Tensors that g and h have to themselves."""
        pair = {self.g, self.h}
        return [t for t in self.tensors if {t.producer, *t.readers} == pair]

    def others(self) -> list[_Tensor]:
        """Tensors that may cost something new: neither written by h, nor read by h where g reads them too."""
        return [
            t
            for t in self.tensors
            if t.producer != self.h
            and not (t.producer == self.g and t.readers == {self.h})
            and not (t.producer != self.g and self.h in t.readers)
        ]


class _Sequential:
    """Everything adds up: a contraction costs nothing if the gain covers all that may get slower or start to travel.

    Moving g from a to b changes the sum by at most `seconds(b) - seconds(a) + new - gain`. A tensor that g reads from
    elsewhere is sent to at most one device more: `high`. A tensor that g writes for readers on devices D was sent to
    D without a and is then sent to D without b: where all ways are equal that is at most one more, and none if h
    reads it, since then b is in D; elsewhere count all of its receivers at `high`.
    """

    def __init__(self, devices: int) -> None:
        self.most_receivers = devices - 1

    def costs_nothing(self, move: _Move) -> bool:
        """Whether the sum cannot rise."""
        slower = max(
            (
                move.here.ticks(b) - move.here.ticks(a)
                for b in move.there.devices()
                for a in move.here.devices()
                if a != b
            ),
            default=-math.inf,
        )
        if slower == -math.inf:
            return True  # both have one device, and it is the same
        gain = sum(t.low for t in move.between())
        return gain >= slower + sum(self._new(t, move) for t in move.others())

    def _new(self, tensor: _Tensor, move: _Move) -> Ticks:
        if tensor.producer != move.g:
            return tensor.high
        if tensor.low == tensor.high:
            return 0.0 if move.h in tensor.readers else tensor.high
        return min(len(tensor.readers - {move.h}), self.most_receivers) * tensor.high


class _Loads:
    """The busiest device counts: no device may get more to do.

    Device b gets g's work and its other tensors, and is relieved of the tensors between g and h. Device a loses g's
    work and those tensors too, and may have to send or receive what stayed inside it before. Any other device c sends
    to b or receives from b what it sent to or received from a: the same where ways are equal, or lead through host
    memory. Two cases cannot be covered and forbid the contraction: a tensor of c that others than g read (c may have
    to send it once more), and unequal ways. `overlap` and `duplex` compare work with transfers, so work may not grow;
    `duplex` tells sent from received, so only the gain may change. `fwbw` adds a forward and a backward maximum, so
    each is balanced by itself.
    """

    def __init__(self, load: str, devices: int, *, through_host: bool) -> None:
        self.load, self.through_host = load, through_host
        self.most_receivers = 1 if through_host else devices - 1

    def costs_nothing(self, move: _Move) -> bool:
        """Whether no device gets more to do."""
        between, others = move.between(), move.others()
        if others and (self.load == "duplex" or not all(self._covered(t, move) for t in others)):
            return False
        return all(self._target_is_relieved(b, move, between, others) for b in move.there.devices()) and all(
            self._origin_is_relieved(a, move, between, others) for a in move.here.devices()
        )

    def _covered(self, tensor: _Tensor, move: _Move) -> bool:
        if not tensor.same:
            return False
        return self.through_host or tensor.producer == move.g or tensor.readers == {move.g}

    def _target_is_relieved(self, b: int, move: _Move, between: list[_Tensor], others: list[_Tensor]) -> bool:
        change = [0.0, 0.0]
        for t in between:
            change[t.late] -= t.received[b] if t.producer == move.g else t.sent[b]
        for t in others:
            if t.producer != move.g:
                change[t.late] += t.received[b]
                continue
            receivers = min(len(t.readers - {move.h}), self.most_receivers)
            change[t.late] += receivers * t.sent[b] - (t.received[b] if move.h in t.readers else 0.0)
        return self._no_rise(change, move.here.seconds[b])

    def _origin_is_relieved(self, a: int, move: _Move, between: list[_Tensor], others: list[_Tensor]) -> bool:
        change = [0.0, 0.0]
        for t in between:
            change[t.late] -= t.sent[a] if t.producer == move.g else t.received[a]
        for t in others:
            if t.producer != move.g:
                change[t.late] += t.sent[a]
            else:
                change[t.late] += t.received[a] - (t.sent[a] if move.h in t.readers else 0.0)
        forward, late = move.here.seconds[a]
        return self._no_rise(change, (-forward, -late))

    def _no_rise(self, change: list[Ticks], work: tuple[Ticks, Ticks]) -> bool:
        if self.load == "sum":
            return sum(change) + sum(work) <= 0
        if self.load == "fwbw":
            return change[0] + work[0] <= 0 and change[1] + work[1] <= 0
        return sum(change) <= 0 and sum(work) <= 0


def _rule(problem: Problem) -> _Sequential | _Loads:
    objective, devices = problem.objective, len(problem.cluster)
    if isinstance(objective, Latency) and objective.execution == "sequential":
        return _Sequential(devices)
    if isinstance(objective, Throughput) and objective.microbatches is None:
        return _Loads(objective.load, devices, through_host=problem.cluster.routing == "host")
    raise BadInput(
        f"no contraction is lossless for {objective.describe()}; there are some for sequential latency and for "
        "throughput without micro-batches"
    )


def _groups(problem: Problem, units: Grouping) -> list[_Group]:
    ticks = np.rint(np.where(problem.allowed, problem.costs.seconds, np.inf) * TICKS_PER_SECOND)
    late = problem.graph.phases != FORWARD
    table = np.zeros((units.count, len(problem.cluster), 2))
    np.add.at(table[:, :, 0], units.group[~late], ticks[~late])
    np.add.at(table[:, :, 1], units.group[late], ticks[late])
    return [_Group([(float(f), float(b)) for f, b in row]) for row in table.tolist()]


def _tensors(problem: Problem, units: Grouping) -> list[_Tensor]:
    graph = problem.graph
    prices = _Prices(problem)
    found = []
    first, readers = graph.reader_first.tolist(), units.group[graph.readers].tolist()
    producers = units.group[graph.tensor_producer].tolist()
    late = (graph.phases[graph.tensor_producer] != FORWARD).tolist()
    for t, producer in enumerate(producers):
        outside = set(readers[first[t] : first[t + 1]]) - {producer}
        if outside:
            found.append(_Tensor(producer, outside, int(late[t]), *prices.of(t)))
    return found


class _Prices:
    """What sending each tensor costs, in ticks, as the simulator rounds them."""

    def __init__(self, problem: Problem) -> None:
        routes, devices = problem.routes, len(problem.cluster)
        self.bytes = problem.graph.tensor_bytes.astype(np.float64)
        given = problem.costs.tensor_seconds
        self.given = None if given is None else np.rint(given * TICKS_PER_SECOND)
        different = ~np.eye(devices, dtype=bool)
        ways: list[NDArray[Any]] = [routes.latency_seconds, TICKS_PER_SECOND / routes.bytes_per_second, routes.hops]
        kinds: set[tuple[float, float, float]] = set(
            zip(*(table[different].tolist() for table in ways), strict=True)
        )
        low, high = np.full(len(self.bytes), np.inf), np.zeros(len(self.bytes))
        for latency, per_byte, hops in sorted(kinds):
            ticks = self._ticks(latency, per_byte, hops)
            low, high = np.minimum(low, ticks), np.maximum(high, ticks)
        self.low: list[Ticks] = low.tolist()
        self.high: list[Ticks] = high.tolist()
        self.through_host = problem.cluster.routing == "host"
        if self.through_host:
            self.sent, self.received = self._to_host(problem, WRITE), self._to_host(problem, READ)
        else:
            self.sent = self.received = [(ticks,) * devices for ticks in self.low]

    def of(self, t: int) -> tuple[Ticks, Ticks, tuple[Ticks, ...], tuple[Ticks, ...], bool]:
        """(low, high, sent by device, received by device, whether it does not matter between which devices)."""
        low, high = self.low[t], self.high[t]
        return low, high, self.sent[t], self.received[t], self.through_host or low == high

    def _to_host(self, problem: Problem, way: int) -> list[tuple[Ticks, ...]]:  # [tensor][device]
        latency, rate = problem.routes.host_latency_seconds[way], problem.routes.host_bytes_per_second[way]
        columns = [
            np.zeros(len(self.bytes)) if device.is_host else self._ticks(latency[d], TICKS_PER_SECOND / rate[d], 1)
            for d, device in enumerate(problem.cluster)
        ]
        return [tuple(row) for row in np.stack(columns, axis=1).tolist()]

    def _ticks(self, latency: float, per_byte: float, hops: float) -> NDArray[np.float64]:  # [tensor]
        wire = np.rint(self.bytes * per_byte) if self.given is None else hops * self.given
        return np.asarray(np.rint(latency * TICKS_PER_SECOND) + wire)
