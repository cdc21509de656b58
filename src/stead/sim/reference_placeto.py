"""Placeto's simulator in plain Python: the specification of policy `placeto`.

Addanki et al., "Placeto: Learning Generalizable Device Placement Algorithms for Distributed Machine Learning"
(NeurIPS 2019), as their published code behaves: one compute queue and one outgoing bus per device, a gap after every
operator and every transfer, one transfer per output for all its remote readers together. Doubles in exactly this
order of arithmetic; the native engine is compared with this file bit for bit. It trusts its input: `PlacetoGraph`
checks.

A node is `(name, cost in us, output sizes in bytes, inputs)`; an input is `"p"` (output 0 of p), `"p:k"` (output k)
or `"^p"` (a control edge, which moves output 0 all the same).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from stead.sim.placeto import BYTES_PER_US, OPERATOR_GAP_US, TRANSFER_GAP_US, PlacetoNode, PlacetoResult

REMOVE, BUS, RUN = range(3)  # at equal times events happen in this order


def simulate_placeto_reference(
    nodes: Sequence[PlacetoNode], placement: Sequence[int], devices: int
) -> PlacetoResult:
    """Makespan, starts and peaks of `nodes` on `devices` equal devices, node v on device `placement[v]`."""
    children = _children(nodes)
    makespan, start = _run(nodes, children, placement, devices)
    return PlacetoResult(
        makespan, np.array(start, np.float64), np.array(_peaks(nodes, children, placement, devices, start))
    )


def _children(nodes: Sequence[PlacetoNode]) -> list[dict[int, int]]:
    """Per node its readers in the order they first name it, each with the output it names last."""
    index = {name: v for v, (name, *_) in enumerate(nodes)}
    children: list[dict[int, int]] = [{} for _ in nodes]
    for v, (_, _, _, inputs) in enumerate(nodes):
        for text in inputs:
            parent, _, output = text.removeprefix("^").partition(":")
            children[index[parent]][v] = int(output or 0)  # an overwritten entry keeps its position
    return children


def _run(
    nodes: Sequence[PlacetoNode], children: list[dict[int, int]], placement: Sequence[int], devices: int
) -> tuple[float, list[float]]:
    """The event loop: time of the last event, start of every node."""
    names = [name for name, *_ in nodes]
    index = {name: v for v, name in enumerate(names)}
    device_names = [
        f"/device:GPU:{d}" for d in range(devices)
    ]  # ties are broken by text: GPU:10 before GPU:2
    need = [0] * len(nodes)
    for readers in children:
        for c in readers:
            need[c] += 1
    start = [0.0] * len(nodes)
    waiting: list[deque[int]] = [deque() for _ in range(devices)]
    bus: list[deque[tuple[float, float, int, list[int]]]] = [
        deque() for _ in range(devices)
    ]  # (from, us, node, readers)
    computing = [False] * devices  # whether a run event is pending
    sending = [False] * devices  # whether a bus event is pending
    events: list[tuple[float, int, tuple[str, ...]]] = []

    def enqueue(now: float, v: int) -> None:
        d = placement[v]
        waiting[d].append(v)
        if not computing[d]:
            computing[d] = True
            heappush(events, (now, RUN, (device_names[d],)))

    def run(now: float, d: int) -> None:
        if not waiting[d]:
            computing[d] = False
            return
        v = waiting[d].popleft()
        _, cost, sizes, _ = nodes[v]
        start[v] = now
        end = now + cost
        free = (
            isinstance(cost, int) and cost == 0
        )  # the published test is `cost is 0`: a float 0.0 pays the gap
        heappush(events, (end + (0 if free else OPERATOR_GAP_US), RUN, (device_names[d],)))
        groups: dict[int, list[int]] = {}  # output -> remote readers, in order of creation
        for c, output in children[v].items():
            if placement[c] == d:
                heappush(events, (end, REMOVE, (names[v], names[c])))
            else:
                groups.setdefault(output, []).append(c)
        for output, readers in groups.items():
            size = sizes[output] if output < len(sizes) else 0
            bus[d].append((end, size / BYTES_PER_US, v, readers))
        if groups and not sending[d]:
            sending[d] = True
            heappush(events, (end, BUS, (device_names[d],)))

    def send(now: float, d: int) -> None:
        if not bus[d]:
            sending[d] = False
        elif bus[d][0][0] > now:
            heappush(events, (bus[d][0][0], BUS, (device_names[d],)))
        else:
            _, delay, v, readers = bus[d].popleft()
            for c in readers:
                heappush(events, (now + delay, REMOVE, (names[v], names[c])))
            heappush(events, ((now + delay) + TRANSFER_GAP_US, BUS, (device_names[d],)))

    for v in range(len(nodes)):
        if need[v] == 0:
            enqueue(0.0, v)
    now = 0.0
    while events:
        now, kind, payload = heappop(events)
        if kind == REMOVE:
            c = index[payload[1]]
            need[c] -= 1
            if need[c] == 0:
                enqueue(now, c)
        else:
            (run if kind == RUN else send)(now, device_names.index(payload[0]))
    return now, start


def _peaks(
    nodes: Sequence[PlacetoNode],
    children: list[dict[int, int]],
    placement: Sequence[int],
    devices: int,
    start: list[float],
) -> list[float]:
    """Most bytes ever held per device: outputs from the start of their node until its last reader is nearly done."""
    changes: list[tuple[float, bool, float, int]] = []  # (time, is a release, signed bytes, device)
    for v, (_, _, sizes, _) in enumerate(nodes):
        held = 0.0
        for size in sizes:  # not sum(): since Python 3.12 it compensates rounding
            held += size
        if held != 0:
            release = max([start[v]] + [int(start[c]) + int(nodes[c][1]) - 1 for c in children[v]])
            changes += [(start[v], False, held, placement[v]), (release, True, -held, placement[v])]
    now, peak = [0.0] * devices, [0.0] * devices
    for _, _, size, d in sorted(changes):
        now[d] += size
        peak[d] = max(peak[d], now[d])
    return peak
