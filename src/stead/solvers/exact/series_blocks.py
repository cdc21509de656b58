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


def blocks(problem: Problem, path: NDArray[np.int32], most: int) -> list[Block]:
    """The stretches of a path, cut wherever that loses nothing, and elsewhere down to `most` configurations."""
    after, before = _places(problem.graph, path)
    cutting = _Cutting(problem, path, after, before, most)
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
            if fewest and self._fits(inside):
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
        if not self._fits(operators):
            operators = operators[np.isin(operators, self.path)]
        head, end = (int(self.path[i]) if 0 <= i < last else -1 for i in (h, e))
        return Block(head, tuple(operators.tolist()), end)

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
        reads = [self._reads(v, block) for v in block.operators]
        units = self.problem.units[list(block.operators)]
        number = {unit: n for n, unit in enumerate(dict.fromkeys(units.tolist()))}
        head_unit = number.get(int(self.problem.units[block.head]), -1) if block.head >= 0 else -1
        key = (
            self.ticks[list(block.operators)].tobytes(),
            self.weights[list(block.operators)].tobytes(),
            self.running[list(block.operators)].tobytes(),
            self.problem.allowed[list(block.operators)].tobytes(),
            tuple((place, self.sent[t].tobytes()) for own in reads for place, t in own),
            tuple(len(own) for own in reads),
            tuple(number[unit] for unit in units.tolist()),
            (head_unit, block.head < 0, block.end < 0),
        )
        if key not in self.known:
            self.known[key] = self._made(block, reads, [number[unit] for unit in units.tolist()], head_unit)
        return self.known[key]

    def _reads(self, v: int, block: Block) -> list[tuple[int, int]]:
        """(place of the producer in the block, tensor) of what an operator reads; -1 for the head of the block."""
        graph = self.problem.graph
        place = {u: n for n, u in enumerate(block.operators)} | ({block.head: -1} if block.head >= 0 else {})
        tensors = graph.read_tensors[graph.read_first[v] : graph.read_first[v + 1]].tolist()
        return [(place[p], t) for t in tensors if (p := int(graph.tensor_producer[t])) in place]

    def _made(
        self, block: Block, reads: list[list[tuple[int, int]]], unit_of: list[int], head_unit: int
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
        self, devices: NDArray[np.uint8], took: NDArray[np.int64], reads: list[list[tuple[int, int]]], head: int
    ) -> NDArray[np.int64]:  # [configuration]
        """The longest path through a block, or what a device has to do and what must come before and after that."""
        ready = np.zeros(took.shape, dtype=np.int64)  # when each operator can start at best
        for n, own in enumerate(reads):
            for place, t in own:
                if place >= 0:
                    arrives = ready[:, place] + took[:, place] + self.sent[t][devices[:, place], devices[:, n]]
                else:
                    arrives = self.sent[t][head, devices[:, n]]
                ready[:, n] = np.maximum(ready[:, n], arrives)
        left = took.copy()  # from the start of each operator to the end of the block, at best
        for n in range(len(reads) - 1, -1, -1):
            for place, t in reads[n]:
                if place >= 0:
                    behind = took[:, place] + self.sent[t][devices[:, place], devices[:, n]] + left[:, n]
                    left[:, place] = np.maximum(left[:, place], behind)
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
