"""A graph as a chain of blocks, and what each block takes at least, for all devices of its operators.

Take a path. Some operators of it must be done before an operator u can start, the first ones, and some cannot start
before u is done, the last ones; so u lies between two places of the path, `after[u]` and `before[u]`. A block is a
stretch of the path with everything that lies inside: it begins when the operator at its head is done, and the operator
at its end is done no sooner than all of it. Blocks of neighbouring stretches follow each other whatever the order in
which a device works, so what they take at least adds up to a bound. What lies in no block takes memory, but no time.

Notation    i   place on the path; -1 is before the first operator, m behind the last of m
            h   head and e end of a block, as places
            c   configuration: a device for every unit of a block
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from stead.graph import Graph
from stead.problem import Problem
from stead.problem.ticks import to_ticks
from stead.sim.transfer_times import link_ticks

NEVER = np.iinfo(np.int64).max // 8  # ticks of what cannot be; several of them still add up
NOWHERE = -1  # the device before the first block and behind the last


@dataclass(frozen=True, slots=True)
class Block:
    """Operators between two operators of a path, in topological order, the one at the end included."""

    head: int  # operator that it follows; -1: none
    operators: tuple[int, ...]
    end: int  # operator that the next block follows; -1: there is none
    between: tuple[int, ...] = ()  # operators left out whose time on the way between others still counts


def blocks(problem: Problem, path: NDArray[np.int32], most: int, *, thinned: bool = False) -> list[Block]:
    """The stretches of a path, cut wherever that loses nothing, and elsewhere down to `most` configurations.

    Where blocks are `thinned`, a stretch that has more is not cut: the units that do least are left out.
    """
    after, before = _places(problem.graph, path)
    cutting = _Cutting(problem, path, after, before, most, thinned)
    made = (cutting.block(h, e) for h, e in pairwise(cutting.cuts()))
    return [block for block in made if block.operators]


def _places(graph: Graph, path: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # [operator]
    """(after, before): the last place of the path that each operator waits for, and the first that waits for it."""
    after, before = [-1] * len(graph), [len(path)] * len(graph)
    place = {v: i for i, v in enumerate(path.tolist())}
    edges = graph.edges  # sorted by producer; operators are in topological order
    for u, v in edges.tolist():
        after[v] = max(after[v], place.get(u, after[u]))
    for u, v in edges[::-1].tolist():
        before[u] = min(before[u], place.get(v, before[v]))
    return np.array(after, dtype=np.int64), np.array(before, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Cutting:
    """A path on its way to stretches."""

    problem: Problem
    path: NDArray[np.int32]
    after: NDArray[np.int64]  # [operator]
    before: NDArray[np.int64]  # [operator]
    most: int
    thinned: bool

    def cuts(self) -> list[int]:
        """Places where stretches begin and end."""
        last = len(self.path)
        found, waiting = {-1, last}, [(-1, last, np.arange(len(self.after)))]
        while waiting:
            h, e, inside = waiting.pop()
            if e - h < 2:
                continue
            inside = inside[(self.after[inside] >= h) & (self.before[inside] <= e)]
            straddling = np.zeros(e - h + 1, dtype=np.int64)  # [place - h]; how many operators a cut there loses
            np.add.at(straddling, self.after[inside] + 1 - h, 1)
            np.add.at(straddling, self.before[inside] - h, -1)
            lost = np.cumsum(straddling)[1:-1] - 1  # the operator of the path itself is not lost
            fewest = int(lost.min())
            if fewest and (self.thinned or self._fits(inside)):
                continue
            places = h + 1 + np.flatnonzero(lost == fewest)
            if fewest:
                places = places[[len(places) // 2]]
            found |= set(places.tolist())
            waiting += [(a, b, inside) for a, b in pairwise([h, *places.tolist(), e])]
        return sorted(found)

    def block(self, h: int, e: int) -> Block:
        """What lies between two places; what bypasses a stretch in too many ways is left out."""
        inside = (self.after >= h) & (self.before <= e)
        last = len(self.path)
        if e < last:
            inside[self.path[e]] = True
        operators = np.flatnonzero(inside)
        head, end = (int(self.path[i]) if 0 <= i < last else -1 for i in (h, e))
        kept = operators
        if not self._fits(operators):
            on_path = operators[np.isin(operators, self.path)]
            kept = self._busiest(operators, end) if self.thinned else on_path
        between = np.setdiff1d(operators, kept) if self.thinned else ()
        return Block(head, tuple(kept.tolist()), end, tuple(np.asarray(between, dtype=int).tolist()))

    def _busiest(self, operators: NDArray[np.int64], end: int) -> NDArray[np.int64]:
        """Operators of the units that do most, the one at the end included, as many as there are configurations for."""
        problem = self.problem
        least = np.where(problem.allowed, problem.costs.seconds, np.inf).min(axis=1)[operators]
        units, unit_of = np.unique(problem.units[operators], return_inverse=True)
        work = np.bincount(unit_of, weights=least)
        if end >= 0:
            work[unit_of[operators == end]] = np.inf
        ranked = np.argsort(-work, kind="stable")
        choices = np.log(problem.unit_allowed[units[ranked]].sum(axis=1)).cumsum()
        chosen = ranked[choices <= np.log(self.most) + 1e-9]
        if end >= 0 and not len(chosen):
            chosen = ranked[:1]
        return operators[np.isin(unit_of, chosen)]

    def _fits(self, operators: NDArray[np.int64]) -> bool:
        units = np.unique(self.problem.units[operators])
        choices = self.problem.unit_allowed[units].sum(axis=1)
        return float(np.log(choices).sum()) <= float(np.log(self.most)) + 1e-9


# What a block takes


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Every configuration of a block, what it takes at least, and where it ends."""

    devices: NDArray[np.uint8]  # [configuration, operator of the block]
    ticks: Mapping[int, NDArray[np.int64]]  # by device of the head: [configuration]; NEVER where it cannot be
    weight_bytes: NDArray[np.int64]  # [configuration, device]
    running_bytes: NDArray[np.int64]  # [configuration, device]; beside weights, while some operator runs
    end: NDArray[np.int64]  # [configuration]; device of the end, or NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """That an operator waits for another one of its block."""

    place: int  # of the other one in the block; -1: the head of the block
    ticks: NDArray[np.int64]  # [device, device]; of sending
    extra: int  # ticks of what lies between them


class Tables:
    """Tables of blocks of one problem; blocks that are alike share one."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        graph, devices = problem.graph, len(problem.cluster)
        self.ticks = to_ticks(np.where(problem.allowed, problem.costs.seconds, 0.0))  # [operator, device]
        self.weights = _shared_out(graph)  # [operator]
        self.sent = np.zeros((graph.tensor_count, devices, devices), dtype=np.int64)
        for a, b in product(range(devices), repeat=2):
            if a != b:
                reachable = np.isfinite(problem.routes.latency_seconds[a, b])
                self.sent[:, a, b] = link_ticks(problem, a, b) if reachable else NEVER
        apart = ~np.eye(devices, dtype=bool)
        self.quickest = self.sent[:, apart].min(axis=1, initial=NEVER) if devices > 1 else self.sent[:, 0, 0]
        self.least = np.where(problem.allowed, self.ticks, NEVER).min(axis=1, initial=NEVER)  # [operator]
        self.apart = apart.astype(np.int64)
        self.running = self._running_bytes()  # [operator, device]
        self.known: dict[object, Table] = {}

    def _running_bytes(self) -> NDArray[np.int64]:
        """What is held while an operator runs: what it reads, what it writes and its workspace."""
        graph = self.problem.graph
        held = np.zeros(len(graph), dtype=np.int64)
        np.add.at(held, graph.readers, graph.tensor_bytes[graph.tensor_of_read])
        np.add.at(held, graph.tensor_producer, graph.tensor_bytes)
        everywhere = held[:, None] + self.problem.costs.workspace_bytes
        return np.where(self.ticks > 0, everywhere, 0)

    def of(self, block: Block) -> Table:
        """The table of a block."""
        reads = self._reads(block)
        units = self.problem.units[list(block.operators)]
        number = {unit: n for n, unit in enumerate(dict.fromkeys(units.tolist()))}
        head_unit = number.get(int(self.problem.units[block.head]), -1) if block.head >= 0 else -1
        key = (
            self.ticks[list(block.operators)].tobytes(),
            self.weights[list(block.operators)].tobytes(),
            self.running[list(block.operators)].tobytes(),
            self.problem.allowed[list(block.operators)].tobytes(),
            tuple((read.place, read.extra, read.ticks.tobytes()) for own in reads for read in own),
            tuple(len(own) for own in reads),
            tuple(number[unit] for unit in units.tolist()),
            (head_unit, block.head < 0, block.end < 0),
        )
        if key not in self.known:
            self.known[key] = self._made(block, reads, [number[unit] for unit in units.tolist()], head_unit)
        return self.known[key]

    def least_ticks(
        self, block: Block, devices: NDArray[np.uint8], head: int
    ) -> NDArray[np.int64]:  # [configuration]
        """What a block takes at least that begins on `head`, for devices [configuration, operator of the block]."""
        took = np.stack([self.ticks[v][devices[:, n]] for n, v in enumerate(block.operators)], axis=1)
        return self._least_ticks(devices, took, self._reads(block), head)

    def _reads(self, block: Block) -> list[list[_Read]]:  # [operator of the block]
        """What every operator of a block waits for: tensors of others, and others by way of what was left out.

        One way from an operator to another is enough, the one with most work on it: that work takes its least time, and
        where the two are on different devices something on the way is sent over the quickest link at least.
        """
        graph = self.problem.graph
        place = {u: n for n, u in enumerate(block.operators)} | ({block.head: -1} if block.head >= 0 else {})
        ways: dict[int, dict[int, tuple[int, int]]] = {}  # operator left out: {place: (work, sending)}
        found: dict[int, list[_Read]] = {}
        for v in sorted((*block.operators, *block.between)):
            left_out, own = v not in place, found.setdefault(v, [])
            longest: dict[int, tuple[int, int]] = {}
            for t in graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist():
                p, quickest = int(graph.tensor_producer[t]), int(self.quickest[t])
                if p in place and not left_out:
                    own.append(_Read(place[p], self.sent[t], 0))
                before = {place[p]: (0, NEVER)} if p in place and left_out else ways.get(p, {})
                for q, (work, sending) in before.items():
                    way = work, min(sending, quickest)
                    longest[q] = max(longest.get(q, way), way)
            if left_out:
                ways[v] = {q: (work + int(self.least[v]), sending) for q, (work, sending) in longest.items()}
            else:
                own += [_Read(q, self.apart * sending, work) for q, (work, sending) in longest.items()]
        return [found[v] for v in block.operators]

    def _made(
        self, block: Block, reads: list[list[_Read]], unit_of: list[int], head_unit: int
    ) -> Table:
        count = len(self.problem.cluster)
        firsts = [unit_of.index(n) for n in range(max(unit_of) + 1)]
        allowed = [np.flatnonzero(self.problem.allowed[block.operators[first]]) for first in firsts]
        chosen = np.array(list(product(*allowed)), dtype=np.uint8)  # [configuration, unit]
        devices = np.ascontiguousarray(chosen[:, unit_of])
        rows = np.arange(len(devices))
        took = np.stack([self.ticks[v][devices[:, n]] for n, v in enumerate(block.operators)], axis=1)
        weights, running = (np.zeros((len(devices), count), dtype=np.int64) for _ in range(2))
        for n, v in enumerate(block.operators):
            weights[rows, devices[:, n]] += self.weights[v]
            own = self.running[v][devices[:, n]]
            running[rows, devices[:, n]] = np.maximum(running[rows, devices[:, n]], own)
        heads = [NOWHERE] if block.head < 0 else np.flatnonzero(self.problem.allowed[block.head]).tolist()
        ticks = {}
        for head in heads:
            least = self._least_ticks(devices, took, reads, head)
            if head_unit >= 0:
                least = np.where(chosen[:, head_unit] == head, least, NEVER)
            ticks[head] = least
        end = devices[:, -1].astype(np.int64) if block.end >= 0 else np.full(len(devices), NOWHERE)
        return Table(devices, ticks, weights, running, end)

    def _least_ticks(
        self, devices: NDArray[np.uint8], took: NDArray[np.int64], reads: list[list[_Read]], head: int
    ) -> NDArray[np.int64]:  # [configuration]
        """The longest path through a block, or what a device has to do and what must come before and after that."""
        ready = np.zeros(took.shape, dtype=np.int64)  # when each operator can start at best
        for n, own in enumerate(reads):
            for read in own:
                if read.place >= 0:
                    sent = read.ticks[devices[:, read.place], devices[:, n]]
                    arrives = ready[:, read.place] + took[:, read.place] + read.extra + sent
                else:
                    arrives = read.extra + read.ticks[head, devices[:, n]]
                ready[:, n] = np.maximum(ready[:, n], arrives)
        left = took.copy()  # from the start of each operator to the end of the block, at best
        for n in range(len(reads) - 1, -1, -1):
            for read in reads[n]:
                if read.place >= 0:
                    sent = read.ticks[devices[:, read.place], devices[:, n]]
                    behind = took[:, read.place] + read.extra + sent + left[:, n]
                    left[:, read.place] = np.maximum(left[:, read.place], behind)
        least: NDArray[np.int64] = (ready + left).max(axis=1)
        for d in range(len(self.problem.cluster)):
            here = devices == d
            busy = np.where(here, took, 0).sum(axis=1)
            begins = np.where(here, ready, NEVER).min(axis=1)
            follows = np.where(here, left - took, NEVER).min(axis=1)
            crowd = np.where(here.any(axis=1), begins + busy + follows, 0)
            least = np.maximum(least, crowd)
        return np.minimum(least, NEVER)


def _shared_out(graph: Graph) -> NDArray[np.int64]:  # [operator]
    """Bytes of weights; a tied one is shared out among its users, so that no device is charged more than it holds."""
    users = np.diff(graph.weight_user_first)
    total = np.zeros(len(graph), dtype=np.int64)
    np.add.at(total, graph.weight_users, np.repeat(graph.weight_bytes // np.maximum(users, 1), users))
    return total
