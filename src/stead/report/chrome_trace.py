"""A time line for chrome://tracing and Perfetto."""

from __future__ import annotations

from typing import Any

import numpy as np

from stead.sim import Timeline, Trace


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """Operators and transfers as complete events, memory as counters; times in microseconds.

    Every device is a process; its operators run in one thread, transfers to each other device in threads of their own.
    """
    timeline = trace.timeline
    if timeline is None:
        return {"traceEvents": [], "displayTimeUnit": "ms"}
    names = timeline.problem.cluster.names
    events: list[dict[str, Any]] = []
    for d, name in enumerate(names):
        events.append({"ph": "M", "name": "process_name", "pid": d, "tid": 0, "args": {"name": name}})
        events.append({"ph": "M", "name": "thread_name", "pid": d, "tid": 0, "args": {"name": "operators"}})
        for k, target in enumerate(names):
            if k != d:
                label = {"name": f"to {target}"}
                events.append({"ph": "M", "name": "thread_name", "pid": d, "tid": k + 1, "args": label})
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
    moved, graph = timeline.transfers, timeline.problem.graph
    return [
        {
            "ph": "X",
            "name": graph.tensor_names[moved.tensor[x]],
            "cat": "transfer",
            "pid": int(moved.source[x]),
            "tid": int(moved.target[x]) + 1,
            "ts": int(moved.begin_ticks[x]) / 1e6,
            "dur": int(moved.arrive_ticks[x] - moved.begin_ticks[x]) / 1e6,
            "args": {"bytes": int(graph.tensor_bytes[moved.tensor[x]])},
        }
        for x in range(len(moved))
    ]
