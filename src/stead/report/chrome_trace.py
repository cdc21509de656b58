"""A time line for chrome://tracing and Perfetto."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead.files import write_bytes
from stead.problem import Throughput
from stead.report.slices import first_readers
from stead.sim import Timeline, Trace
from stead.sim.pipeline import unrolled


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """Operators and transfers as complete events, memory as counters, flows from a transfer to its first reader.

    What lies on the critical path says so in its arguments, as do modules and micro-batches; memory is told apart into
    weights, caches of keys and values, and activations.
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
    critical = timeline.critical_path()
    events += _operators(timeline, _microbatches(trace), {one.index for one in critical if one.kind == "operator"})
    events += _transfers(timeline, {one.index for one in critical if one.kind != "operator"})
    if trace.memory_known and timeline.execution != "offload":
        for d, name in enumerate(names):
            curve = trace.memory_split(name)
            held = np.stack([curve.weights_bytes, curve.kv_bytes, curve.activation_bytes], axis=1)
            events += [
                {"ph": "C", "name": "memory", "pid": d, "tid": 0, "ts": at / 1e6,
                 "args": {"weights": weights, "KV": caches, "activations": passing}}
                for at, (weights, caches, passing) in zip(curve.at.tolist(), held.tolist(), strict=True)
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write the time line; packed where the name ends in .gz, which Perfetto opens as it is, a tenth of the size."""
    write_bytes(path, json.dumps(chrome_trace(trace)).encode())


def packed_trace(trace: Trace) -> bytes:
    """The time line as gzipped JSON; the same bytes for the same run."""
    return gzip.compress(json.dumps(chrome_trace(trace)).encode(), mtime=0)


def _microbatches(trace: Trace) -> NDArray[np.int64] | None:  # [operator of the run]
    """The micro-batch of every operator, -1 for none; None where there are none at all."""
    objective = trace.placement.problem.objective
    if not isinstance(objective, Throughput) or objective.microbatches is None:
        return None
    return unrolled(trace.placement.problem).copies.microbatch


def _operators(
    timeline: Timeline, microbatch: NDArray[np.int64] | None, critical: set[int]
) -> list[dict[str, Any]]:
    graph = timeline.problem.graph
    events = []
    for v in np.argsort(timeline.start_ticks, kind="stable").tolist():
        told: dict[str, Any] = {"module": graph.modules[v]} if graph.modules[v] else {}
        if v in critical:
            told["critical"] = True
        if microbatch is not None and microbatch[v] >= 0:
            told["microbatch"] = int(microbatch[v])
        events.append({
            "ph": "X",
            "name": graph.operator_names[v],
            "cat": graph.kinds[v] or "operator",
            "pid": int(timeline.devices[v]),
            "tid": 0,
            "ts": int(timeline.start_ticks[v]) / 1e6,
            "dur": int(timeline.finish_ticks[v] - timeline.start_ticks[v]) / 1e6,
            **({"args": told} if told else {}),
        })  # fmt: skip
    return events


def _transfers(timeline: Timeline, critical: set[int]) -> list[dict[str, Any]]:
    """Transfers with the names of their threads, and an arrow from each to what waits for it first."""
    moved, names = timeline.transfers, timeline.problem.cluster.names
    graph, count = timeline.problem.graph, len(timeline.problem.cluster)
    readers = first_readers(timeline)
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
        size: dict[str, Any] = {"bytes": int(graph.tensor_bytes[tensor])}
        if x in critical:
            size["critical"] = True
        duration = (arrive - begin) / 1e6
        events.append({"ph": "X", "name": name, "cat": "transfer", **place, "dur": duration, "args": size})
        if readers[x] >= 0:
            read = int(timeline.start_ticks[readers[x]])
            flow = {"name": name, "cat": "transfer", "id": number}
            events.append({"ph": "s", **flow, **place})
            events.append({"ph": "f", "bp": "e", **flow, "pid": target, "tid": 0, "ts": read / 1e6})
    return events

