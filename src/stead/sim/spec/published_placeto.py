"""Placeto's simulator in plain Python: the specification of policy `placeto`.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning"
(NeurIPS 2019), as their published code behaves. A device has a compute queue and an outgoing bus; one transfer
serves all remote readers of an output. Doubles in exactly this order of arithmetic: the native engine is compared
with this file bit for bit. It trusts its input, which `PlacetoGraph` checks and describes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import chain

import numpy as np

from stead.sim.published_placeto import (
    BYTES_PER_US,
    OPERATOR_GAP_US,
    TRANSFER_GAP_US,
    PlacetoNode,
    PlacetoResult,
)

REMOVE, BUS, RUN = range(3)  # at equal times events happen in this order


def simulate_placeto_reference(
    nodes: Sequence[PlacetoNode], placement: Sequence[int], devices: int
) -> PlacetoResult:
    """Makespan, starts and peaks of `nodes` on `devices` equal devices, node v on device `placement[v]`."""
    simulation = _Simulation(nodes, placement, devices)
    makespan = simulation.run_all()
    return PlacetoResult(makespan, np.array(simulation.start, np.float64), np.array(simulation.peaks()))


class _Simulation:
    def __init__(self, nodes: Sequence[PlacetoNode], placement: Sequence[int], devices: int) -> None:
        self.nodes, self.on = nodes, placement
        self.index = {name: v for v, (name, *_) in enumerate(nodes)}
        # Readers in the order in which they first name a node, with the output that they name last.
        self.children: list[dict[int, int]] = [{} for _ in nodes]
        for v, (_, _, _, inputs) in enumerate(nodes):
            for text in inputs:
                parent, _, output = text.removeprefix("^").partition(":")
                self.children[self.index[parent]][v] = int(output or 0)
        self.need = [0] * len(nodes)
        for c in chain.from_iterable(self.children):
            self.need[c] += 1
        self.start = [0.0] * len(nodes)
        self.waiting: list[deque[int]] = [deque() for _ in range(devices)]
        self.sending: list[deque[tuple[float, float, int, list[int]]]] = [deque() for _ in range(devices)]
        self.pending = {RUN: [False] * devices, BUS: [False] * devices}
        # Ties are broken by text: GPU:10 comes before GPU:2.
        self.device_names = [f"/device:GPU:{d}" for d in range(devices)]
        self.events: list[tuple[float, int, tuple[str, ...]]] = []

    def run_all(self) -> float:
        """The time of the last event."""
        for v, need in enumerate(self.need):
            if need == 0:
                self.enqueue(0.0, v)
        now = 0.0
        while self.events:
            now, kind, payload = heappop(self.events)
            if kind == REMOVE:
                c = self.index[payload[1]]
                self.need[c] -= 1
                if self.need[c] == 0:
                    self.enqueue(now, c)
            else:
                d = self.device_names.index(payload[0])
                self.pending[kind][d] = False
                (self.run if kind == RUN else self.send)(now, d)
        return now

    def wake(self, at: float, kind: int, d: int) -> None:
        if not self.pending[kind][d]:
            self.pending[kind][d] = True
            heappush(self.events, (at, kind, (self.device_names[d],)))

    def remove(self, at: float, v: int, c: int) -> None:
        heappush(self.events, (at, REMOVE, (self.nodes[v][0], self.nodes[c][0])))

    def enqueue(self, now: float, v: int) -> None:
        self.waiting[self.on[v]].append(v)
        self.wake(now, RUN, self.on[v])

    def run(self, now: float, d: int) -> None:
        if not self.waiting[d]:
            return
        v = self.waiting[d].popleft()
        _, cost, sizes, _ = self.nodes[v]
        self.start[v] = now
        end = now + cost
        free = (
            isinstance(cost, int) and cost == 0
        )  # a float 0.0 pays the gap: the published test is `cost is 0`
        self.wake(end + (0 if free else OPERATOR_GAP_US), RUN, d)
        groups: dict[int, list[int]] = {}  # output -> remote readers
        for c, output in self.children[v].items():
            if self.on[c] == d:
                self.remove(end, v, c)
            else:
                groups.setdefault(output, []).append(c)
        for output, readers in groups.items():
            size = sizes[output] if output < len(sizes) else 0
            self.sending[d].append((end, size / BYTES_PER_US, v, readers))
            self.wake(end, BUS, d)

    def send(self, now: float, d: int) -> None:
        if not self.sending[d]:
            return
        ready, delay, v, readers = self.sending[d][0]
        if ready > now:
            self.wake(ready, BUS, d)
            return
        self.sending[d].popleft()
        for c in readers:
            self.remove(now + delay, v, c)
        self.wake((now + delay) + TRANSFER_GAP_US, BUS, d)

    def peaks(self) -> list[float]:
        """Most bytes per device: a node's outputs stay from its start until its last reader is nearly done."""
        changes: list[tuple[float, bool, float, int]] = []  # (time, is a release, signed bytes, device)
        for v, (_, _, sizes, _) in enumerate(self.nodes):
            held = 0.0
            for size in sizes:  # not sum(), which compensates rounding since Python 3.12
                held += size
            if held != 0:
                done = [int(self.start[c]) + int(self.nodes[c][1]) - 1 for c in self.children[v]]
                changes.append((self.start[v], False, held, self.on[v]))
                changes.append((max([self.start[v], *done]), True, -held, self.on[v]))
        now, peak = [0.0] * len(self.device_names), [0.0] * len(self.device_names)
        for _, _, size, d in sorted(changes):
            now[d] += size
            peak[d] = max(peak[d], now[d])
        return peak
