"""A time line for chrome://tracing and Perfetto."""

from __future__ import annotations

from typing import Any

import numpy as np

from stead.sim import Timeline, Trace


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """Operators and transfers as complete events, memory as counters, flows from a transfer to its first reader.

    Times are microseconds. Every device is a process; its operators run in one thread, transfers to each other device
    in threads of their own, several where they overlap.
    """
    timeline = trace.timeline
    if timeline is None:
        return {"traceEvents": [], "displayTimeUnit": "ms"}
    names = timeline.problem.cluster.names
    events: list[dict[str, Any]] = []
    for d, name in enumerate(names):
        events.append({"ph": "M", "name": "process_name", "pid": d, "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "thread_name", "pid": d, "tid": 0, "args": {"name": "operators"}})
    events += _operators(timeline)
    events += _transfers(timeline)
    if trace.memory_known and timeline.execution != "offload":
        for d, name in enumerate(names):
            curve = trace.memory_curve(name)
            events += [
                {"ph": "C", "name": "memory", "pid": d, "tid": 0, "ts": at / 1e6, "args": {"bytes": held}}
                for at, held in zip(curve.at.tolist(), curve.bytes.tolist(), strict=True)
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _operators(timeline: Timeline) -> list[dict[str, Any]]:
    graph = timeline.problem.graph
    return [
        {
            "ph": "X",
            "name": graph.operator_names[v],
            "cat": graph.kinds[v] or "operator",
            "pid": int(timeline.devices[v]),
            "tid": 0,
            "ts": int(timeline.start_ticks[v]) / 1e6,
            "dur": int(timeline.finish_ticks[v] - timeline.start_ticks[v]) / 1e6,
        }
        for v in np.argsort(timeline.start_ticks, kind="stable").tolist()
    ]


def _transfers(timeline: Timeline) -> list[dict[str, Any]]:
    """Transfers with the names of their threads, and an arrow from each to what waits for it first."""
    moved, names = timeline.transfers, timeline.problem.cluster.names
    graph, count = timeline.problem.graph, len(timeline.problem.cluster)
    lanes: dict[tuple[int, int], list[int]] = {}  # of a source and a target: when each of its threads is free again
    events: list[dict[str, Any]] = []
    order = np.argsort(moved.begin_ticks, kind="stable").tolist()
    for number, x in enumerate(order):
        tensor, source, target = int(moved.tensor[x]), int(moved.source[x]), int(moved.target[x])
        begin, arrive = int(moved.begin_ticks[x]), int(moved.arrive_ticks[x])
        free = lanes.setdefault((source, target), [])
        lane = next((n for n, end in enumerate(free) if end <= begin), len(free))
        tid = 1 + target + lane * (count + 1)
        if lane == len(free):
            free.append(arrive)
            label = {"name": f"to {names[target]}{f' ({lane + 1})' if lane else ''}"}
            events.append({"ph": "M", "name": "thread_name", "pid": source, "tid": tid, "args": label})
        free[lane] = arrive
        name = graph.tensor_names[tensor]
        place = {"pid": source, "tid": tid, "ts": begin / 1e6}
        size = {"bytes": int(graph.tensor_bytes[tensor])}
        duration = (arrive - begin) / 1e6
        events.append({"ph": "X", "name": name, "cat": "transfer", **place, "dur": duration, "args": size})
        read = _first_read(timeline, tensor, target, arrive)
        if read is not None:
            flow = {"name": name, "cat": "transfer", "id": number}
            events.append({"ph": "s", **flow, **place})
            events.append({"ph": "f", "bp": "e", **flow, "pid": target, "tid": 0, "ts": read / 1e6})
    return events


def _first_read(timeline: Timeline, tensor: int, device: int, after: int) -> int | None:
    """When the first operator on a device that reads a tensor begins; None where none does."""
    graph = timeline.problem.graph
    readers = graph.readers[graph.reader_first[tensor] : graph.reader_first[tensor + 1]]
    starts = timeline.start_ticks[readers[timeline.devices[readers] == device]]
    late = starts[starts >= after]
    return int(late.min()) if late.size else None
