"""A model file cut by a placement: which parts run where, in which order, and what passes between them.

Runtimes that compile whole models run a placement as sub-models, one after another on each device. A segment is the
longest run of operators of one device that needs nothing more from elsewhere once it has begun and owes nothing to
anybody before its end; so nobody waits longer than the timeline of the placement says, and any placement can be run.

    order       a b c d e        of the whole model, each after what it reads
    device      0 0 1 0 1        b is read by c, c by d and e
    segments    [a b] [c] [d] [e]

Everything is told by names of the file's own nodes and tensors. Constants, and what is computed from constants alone,
belong to no segment: each has its own copy of what it reads. Inputs of the model are given to every segment at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stead.errors import BadInput
from stead.graph import Graph
from stead.printing.wording import quoted


@dataclass(frozen=True, slots=True)
class FileNode:
    """A node of a file as far as cutting needs it."""

    name: str
    reads: tuple[str, ...]  # tensors
    writes: tuple[str, ...]  # tensors
    constant: bool = False  # the same in every run


@dataclass(frozen=True, slots=True)
class Segment:
    """A sub-model: a part of a file that runs on one device in one go."""

    device: int
    operators: tuple[int, ...]  # of the graph
    nodes: tuple[str, ...]  # of the file, in its order
    takes: tuple[str, ...]  # tensors from other segments and inputs of the model
    gives: tuple[str, ...]  # tensors for other segments, and results of the model


@dataclass(frozen=True)
class CutFile:
    """Nodes of a file with the operators they belong to, ready to be cut by any placement."""

    nodes: tuple[FileNode, ...]  # in topological order, without constants
    operator: tuple[int, ...]  # [node] the operator of the graph that it is part of
    inputs: tuple[str, ...]  # tensors that the model is given
    results: tuple[str, ...]  # tensors that the model returns

    def segments(self, devices: NDArray[np.uint8], order: Sequence[int]) -> tuple[Segment, ...]:
        """Sub-models in an order in which each comes after those that it takes from."""
        return tuple(self._segment(devices, part) for part in self._parts(devices, order))

    def stages(
        self, devices: NDArray[np.uint8], order: Sequence[int], names: Sequence[str]
    ) -> tuple[Segment, ...]:
        """One sub-model per used device; BadInput if a sample would have to come back to a device."""
        reads = self._operator_edges()
        before: dict[int, set[int]] = {int(d): set() for d in devices}
        for u, v in reads:
            if devices[u] != devices[v]:
                before[int(devices[v])].add(int(devices[u]))
        parts: list[list[int]] = []
        while before:
            free = sorted(d for d, own in before.items() if not own)
            if not free:
                cycle = " and ".join(names[d] for d in sorted(before)[:2])
                raise BadInput(
                    f"not a pipeline: samples go back and forth between {cycle}; a stage must be convex"
                )
            parts.append([v for v in order if devices[v] == free[0]])
            before = {d: own - {free[0]} for d, own in before.items() if d != free[0]}
        made = (self._segment(devices, part) for part in parts)
        return tuple(segment for segment in made if segment.nodes)

    def _operator_edges(self) -> set[tuple[int, int]]:
        writer = {tensor: self.operator[n] for n, node in enumerate(self.nodes) for tensor in node.writes}
        edges = {
            (writer[tensor], self.operator[n])
            for n, node in enumerate(self.nodes)
            for tensor in node.reads
            if tensor in writer
        }
        return {(u, v) for u, v in edges if u != v}

    def _parts(self, devices: NDArray[np.uint8], order: Sequence[int]) -> list[list[int]]:
        """Operators of each segment, in the order in which segments begin."""
        sources: dict[int, list[int]] = {}
        sends: set[int] = set()
        for u, v in self._operator_edges():
            if devices[u] != devices[v]:
                sources.setdefault(v, []).append(u)
                sends.add(u)
        busy = set(self.operator)
        arrived: dict[int, set[int]] = {}  # device: operators whose results it has from elsewhere
        open_part: dict[int, list[int]] = {}  # device: the segment that may still grow
        parts: list[list[int]] = []
        for v in order:
            if v not in busy:
                continue
            d = int(devices[v])
            new = set(sources.get(v, ())) - arrived.setdefault(d, set())
            if new or d not in open_part:
                arrived[d] |= new
                open_part[d] = []
                parts.append(open_part[d])
            open_part[d].append(v)
            if v in sends:
                del open_part[d]
        return parts

    @cached_property
    def _members(self) -> dict[int, list[FileNode]]:
        """Nodes of each operator."""
        found: dict[int, list[FileNode]] = {}
        for node, v in zip(self.nodes, self.operator, strict=True):
            found.setdefault(v, []).append(node)
        return found

    @cached_property
    def _position(self) -> dict[str, int]:
        return {node.name: n for n, node in enumerate(self.nodes)}

    @cached_property
    def _readers(self) -> dict[str, set[int]]:
        """Operators that read a tensor; for a result of the model also -1, the world outside."""
        found: dict[str, set[int]] = {tensor: set() for tensor in self.inputs}
        for node in self.nodes:
            found.update((tensor, set()) for tensor in node.writes)
        for node, v in zip(self.nodes, self.operator, strict=True):
            for tensor in node.reads:
                if tensor in found:
                    found[tensor].add(v)
        for tensor in self.results:
            found.setdefault(tensor, set()).add(-1)
        return found

    def _segment(self, devices: NDArray[np.uint8], operators: Sequence[int]) -> Segment:
        own = set(operators)
        inside = [node for v in operators for node in self._members.get(v, ())]
        inside.sort(key=lambda node: self._position[node.name])
        written = {tensor for node in inside for tensor in node.writes}
        takes = [t for node in inside for t in node.reads if t in self._readers and t not in written]
        gives = [t for node in inside for t in node.writes if self._readers[t] - own]
        return Segment(
            int(devices[operators[0]]),
            tuple(operators),
            tuple(node.name for node in inside),
            tuple(dict.fromkeys(takes)),
            tuple(dict.fromkeys(gives)),
        )


def cut_file(
    graph: Graph, nodes: Iterable[FileNode], inputs: Sequence[str], results: Sequence[str]
) -> CutFile:
    """What is left of a file when constants and dead nodes are gone, joined to the operators of its graph."""
    listed = list(nodes)
    needed = _needed(listed, results)
    index = {name: v for v, name in enumerate(graph.operator_names)}
    kept: list[FileNode] = []
    operator: list[int] = []
    for node in listed:
        if node.constant or not needed.intersection(node.writes):
            continue
        name = node.name if node.name in index else graph.folded.get(node.name, "")
        if name not in index:
            raise BadInput(
                f"node {quoted(node.name)} of the file belongs to no operator of {graph.name}; read it again"
            )
        kept.append(node)
        operator.append(index[name])
    made = set(inputs).union(tensor for node in kept for tensor in node.writes)
    fixed = [tensor for tensor in results if tensor not in made]
    if fixed:
        raise BadInput(
            f"the result {quoted(fixed[0])} is the same in every run; take it out of the model to run it"
        )
    return CutFile(tuple(kept), tuple(operator), tuple(inputs), tuple(results))


def _needed(nodes: Sequence[FileNode], results: Sequence[str]) -> set[str]:
    """Tensors that a result of the model depends on."""
    needed = set(results)
    for node in reversed(nodes):
        if needed.intersection(node.writes):
            needed.update(node.reads)
    return needed


def running_order(graph: Graph, start_seconds: NDArray[np.float64]) -> list[int]:
    """Operators by when a timeline begins them, each after those it reads from, ties in the order of the graph."""
    waits = np.zeros(len(graph), dtype=np.int64)
    children: list[list[int]] = [[] for _ in range(len(graph))]
    for u, v in graph.edges.tolist():
        children[u].append(v)
        waits[v] += 1
    ready = [(float(start_seconds[v]), v) for v in range(len(graph)) if not waits[v]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, v = heapq.heappop(ready)
        order.append(v)
        for child in children[v]:
            waits[child] -= 1
            if not waits[child]:
                heapq.heappush(ready, (float(start_seconds[child]), child))
    return order
