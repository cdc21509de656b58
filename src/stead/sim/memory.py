"""What lives on a device, from when to when: the blocks behind a peak.

The core computes peaks only; this module says what they are made of, for one placement at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.cluster.classes import DeviceIndices
from stead.graph import Graph
from stead.graph.weights import resident
from stead.problem import Problem
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.timeline import Timeline
from stead.sim.violations import Block, Peak

KINDS = ("weights", "activations", "received", "workspace")
ALWAYS = np.iinfo(np.int64).max
LARGEST_BLOCKS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Bytes on one device as a step function: `bytes[i]` from `at[i]` to `at[i + 1]`."""

    at: NDArray[np.int64]  # ticks; without a time line: how many operators of the device have run
    bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SplitCurve:
    """A `Curve` by what the bytes are; at every step the three sum to what the curve holds."""

    at: NDArray[np.int64]  # as in Curve
    weights_bytes: NDArray[np.int64]  # without caches of keys and values
    kv_bytes: NDArray[np.int64]  # of those
    activation_bytes: NDArray[np.int64]  # outputs, received copies and workspace

    @property
    def bytes(self) -> NDArray[np.int64]:
        """All three together."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Half-open intervals of bytes on devices."""

    graph: Graph
    kind: NDArray[np.uint8]  # index into KINDS
    index: NDArray[np.int64]  # weight, tensor, tensor or operator
    device: NDArray[np.int64]
    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    bytes: NDArray[np.int64]

    def curve(self, device: int) -> Curve:
        """Bytes held on a device over time; at equal times frees come before allocations."""
        at, held = self._held(device, np.zeros(len(self.kind), dtype=np.int64), 1)
        return Curve(at, held[0])

    def split_curve(self, device: int) -> SplitCurve:
        """The same curve, parted into weights, caches of keys and values, and all that comes and goes."""
        part = np.where(self.kind == KINDS.index("weights"), 0, 2)
        weights = np.flatnonzero(part == 0)
        part[weights] = self.graph.is_kv_cache[self.index[weights]].astype(np.int64)
        at, held = self._held(device, part, 3)
        return SplitCurve(at, *held)

    def _held(
        self, device: int, part: NDArray[np.int64], parts: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """When bytes on a device change, and how many of every part it then holds [part, step]."""
        own = (self.device == device) & (self.begin < self.end)
        passing = own & (self.end < ALWAYS)
        times = np.concatenate([[0], self.begin[own], self.end[passing]])
        changes = np.concatenate([[0], self.bytes[own], -self.bytes[passing]])
        of = np.concatenate([[0], part[own], part[passing]])
        at, slot = np.unique(times, return_inverse=True)
        net = np.zeros((parts, len(at)), dtype=np.int64)
        np.add.at(net, (of, slot), changes)
        return at, np.cumsum(net, axis=1)

    def alive(self, device: int, at: int) -> NDArray[np.int64]:
        """Blocks that a device holds at a moment, largest first."""
        held = np.flatnonzero((self.device == device) & (self.begin <= at) & (at < self.end))
        return held[np.lexsort((held, -self.bytes[held]))]

    def name(self, block: int) -> str:
        """Name of the weight, tensor or operator that a block belongs to."""
        names = (
            self.graph.weight_names,
            self.graph.tensor_names,
            self.graph.tensor_names,
            self.graph.operator_names,
        )
        return str(names[self.kind[block]][self.index[block]])


def timed_blocks(timeline: Timeline) -> Blocks:
    """Blocks of a run: outputs from start to last use, copies from the begin of their transfer."""
    problem, on, sent = timeline.problem, timeline.devices.astype(np.int64), timeline.transfers
    graph = problem.graph
    producer, tensor, reader = graph.tensor_producer, graph.tensor_of_read, graph.readers
    home = on[producer]
    until = timeline.finish_ticks[producer].copy()
    local = on[reader] == home[tensor]
    np.maximum.at(until, tensor[local], timeline.finish_ticks[reader[local]])
    np.maximum.at(until, sent.tensor, sent.arrive_ticks)
    until[graph.tensor_kept.astype(bool)] = timeline.makespan_ticks
    copy, last_use = _last_use(tensor * len(problem.cluster) + on[reader], timeline.finish_ticks[reader])
    which = np.searchsorted(copy, sent.tensor.astype(np.int64) * len(problem.cluster) + sent.target)
    return _joined(
        problem,
        on,
        (np.arange(graph.tensor_count), home, timeline.start_ticks[producer], until),
        (sent.tensor, sent.target, sent.begin_ticks, last_use[which]),
        (timeline.start_ticks, timeline.finish_ticks),
    )


def standing_blocks(problem: Problem, devices: DeviceIndices) -> Blocks:
    """Blocks without a time line: every device runs its operators by index, over and over.

    A tensor that leaves stays to the end of its device's turn, one that comes is there from its beginning.
    """
    graph, on = problem.graph, devices.astype(np.int64)
    producer, tensor, reader = graph.tensor_producer, graph.tensor_of_read, graph.readers
    place, turn = places(on, len(problem.cluster))
    home = on[producer]
    until = place[producer] + 1
    local = on[reader] == home[tensor]
    np.maximum.at(until, tensor[local], place[reader[local]] + 1)
    leaves = graph.tensor_kept.astype(bool)
    leaves[tensor[~local]] = True
    until[leaves] = turn[home[leaves]]
    copy, last_use = _last_use(
        (tensor * len(problem.cluster) + on[reader])[~local], place[reader[~local]] + 1
    )
    copied, target = np.divmod(copy, len(problem.cluster))
    return _joined(
        problem,
        on,
        (np.arange(graph.tensor_count), home, place[producer], until),
        (copied, target, np.zeros_like(copied), last_use),
        (place, place + 1),
    )


def places(on: NDArray[np.int64], devices: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Place of every operator among those of its device, and the number of operators of every device."""
    turn = np.bincount(on, minlength=devices)
    by_device = np.argsort(on, kind="stable")
    place = np.empty_like(on)
    place[by_device] = np.arange(len(on)) - np.repeat(np.cumsum(turn) - turn, turn)
    return place, turn


def peak_of(blocks: Blocks, problem: Problem, device: int, *, at_tick: bool) -> Peak:
    """The most a device holds, when, and what it is made of."""
    curve = blocks.curve(device)
    top = int(np.argmax(curve.bytes))
    at = int(curve.at[top])
    held = blocks.alive(device, at)
    split = np.zeros(len(KINDS), dtype=np.int64)
    np.add.at(split, blocks.kind[held], blocks.bytes[held])
    running = held[blocks.kind[held] == KINDS.index("workspace")]
    return Peak(
        device=problem.cluster.names[device],
        capacity_bytes=problem.cluster.devices[device].usable_bytes,
        peak_bytes=int(curve.bytes[top]),
        at_seconds=at / TICKS_PER_SECOND if at_tick else None,
        at_operator=blocks.name(int(running[0])) if running.size and not at_tick else "",
        weights_bytes=int(split[0]),
        activations_bytes=int(split[1]),
        received_bytes=int(split[2]),
        workspace_bytes=int(split[3]),
        blocks=tuple(
            Block(blocks.name(block), KINDS[blocks.kind[block]], int(blocks.bytes[block]))
            for block in held[:LARGEST_BLOCKS].tolist()
            if blocks.bytes[block]
        ),
    )


def _last_use(key: NDArray[np.int64], time: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct keys, sorted, and the largest time of each."""
    distinct, slot = np.unique(key, return_inverse=True)
    last = np.zeros(len(distinct), dtype=np.int64)
    np.maximum.at(last, slot, time)
    return distinct, last


def _joined(
    problem: Problem,
    on: NDArray[np.int64],
    outputs: tuple[NDArray[Any], ...],
    copies: tuple[NDArray[Any], ...],
    running: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> Blocks:
    """All four kinds of blocks as one; outputs and copies are (tensor, device, begin, end)."""
    graph, operators = problem.graph, np.arange(len(problem.graph))
    weight, host = resident(graph, on)
    parts = (
        (weight, host, np.zeros_like(weight), np.full_like(weight, ALWAYS), graph.weight_bytes[weight]),
        (*outputs, graph.tensor_bytes[outputs[0]]),
        (*copies, graph.tensor_bytes[copies[0]]),
        (operators, on, *running, problem.costs.workspace_on(on)),
    )
    kind = np.repeat(np.arange(len(KINDS), dtype=np.uint8), [len(part[0]) for part in parts])
    columns = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    return Blocks(graph, kind, *columns)
