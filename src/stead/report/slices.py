"""What ran when, as columns: slices of operators by device, transfers by link, memory by device.

Where an objective has no time line (steady throughput, or a placement that cannot run), every device shows its own
operators in a row: how much it has to do, not when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.graph import PHASES
from stead.problem import Throughput
from stead.problem.ticks import TICKS_PER_SECOND, to_ticks
from stead.report.columns import Column, array_column, names_column, shown_name
from stead.sim import SplitCurve, Timeline
from stead.sim.memory import places
from stead.sim.pipeline import unrolled
from stead.sim.timeline import OPERATOR, STEP_KINDS

if TYPE_CHECKING:
    from stead.plan import Plan

CRITICAL, NO_TIME, BACKWARD, UPDATE = 1, 2, 4, 8
NO_MICROBATCH = 65_535
MOST_STEPS = 4_000  # of a memory curve: of each bunch of steps the highest stays
MOST_TICKS = NO_SLICE = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Run:
    """Slices of operators, by index of the run: with micro-batches, one for every copy."""

    origin: NDArray[np.int64]  # [slice]; operator of the plan's graph
    microbatch: NDArray[np.int64] | None  # [slice]; -1 for none
    devices: NDArray[np.int64]  # [slice]
    start_ticks: NDArray[np.int64]  # [slice]
    finish_ticks: NDArray[np.int64]  # [slice]
    timeline: Timeline | None
    critical: NDArray[np.int64]  # pieces of the critical path, as `Timeline.critical_pieces` gives them
    span_ticks: int  # of the time axis

    @property
    def unit_ticks(self) -> int:
        """The finest unit in which the whole run can be written with 32 bits."""
        return max(1, -(-self.span_ticks // MOST_TICKS))

    def units(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Moments in such units, rounded down, so that what follows each other does so still."""
        return ticks // self.unit_ticks

    @cached_property
    def by_start(self) -> NDArray[np.int64]:
        """Slices sorted by device and start."""
        return np.lexsort((np.arange(len(self.origin)), self.finish_ticks, self.start_ticks, self.devices))

    @cached_property
    def critical_slices(self) -> NDArray[np.bool_]:
        """Which slices lie on the critical path."""
        marked = np.zeros(len(self.origin), dtype=bool)
        marked[self.critical[self.critical[:, 0] == OPERATOR, 1]] = True
        return marked


def run_of(plan: Plan) -> Run:
    """The run that a plan's page shows."""
    timeline = plan.trace.timeline
    if timeline is None:
        return _turns(plan)
    origin, microbatch = np.arange(len(timeline.devices)), None
    objective = plan.problem.objective
    if isinstance(objective, Throughput) and objective.microbatches is not None:
        copies = unrolled(plan.problem).copies
        origin, microbatch = copies.origin, copies.microbatch
    last = max(timeline.makespan_ticks, int(timeline.transfers.arrive_ticks.max(initial=0)))
    return Run(
        origin,
        microbatch,
        timeline.devices.astype(np.int64),
        timeline.start_ticks,
        timeline.finish_ticks,
        timeline,
        timeline.critical_pieces(),
        max(last, 1),
    )


def _turns(plan: Plan) -> Run:
    """Every device's own operators in a row."""
    devices = plan.placement.devices.astype(np.int64)
    seconds = plan.problem.costs.seconds_on(devices)
    ticks = to_ticks(np.where(np.isfinite(seconds), seconds, 0.0))
    finish = np.zeros_like(ticks)
    for d in range(len(plan.problem.cluster)):
        own = devices == d
        finish[own] = np.cumsum(ticks[own])
    value = plan.trace.objective_ticks
    span = max(int(finish.max(initial=0)), value, 1)
    nothing = np.zeros((0, 4), dtype=np.int64)
    return Run(np.arange(len(devices)), None, devices, finish - ticks, finish, None, nothing, span)


def slice_columns(plan: Plan, run: Run, leaf: NDArray[np.int64]) -> dict[str, Column]:
    """Operators, sorted by device and start, with their names."""
    graph = plan.problem.graph
    origin = run.origin[run.by_start]
    kinds, kind = np.unique(np.array(graph.kinds, dtype=object), return_inverse=True)
    return {
        **timed_columns(plan, run),
        "box": array_column("u2", leaf[origin]),
        "kind": array_column("u2", np.minimum(kind, 2**16 - 1)[origin]),
        "names": names_column(graph.operator_names),
        "kinds": names_column(kinds.tolist()),
    }


def timed_columns(plan: Plan, run: Run) -> dict[str, Column]:
    """What another placement changes of operators: where and when they run."""
    order = run.by_start
    origin = run.origin[order]
    begin, end = run.units(run.start_ticks[order]), run.units(run.finish_ticks[order])
    phases = plan.problem.graph.phases[origin]
    flags = run.critical_slices[order] * CRITICAL
    flags = flags + (run.start_ticks == run.finish_ticks)[order] * NO_TIME
    flags += (phases == PHASES.index("backward")) * BACKWARD + (phases == PHASES.index("update")) * UPDATE
    columns = {
        "op": array_column("d4", origin),
        "dev": array_column("u1", run.devices[order]),
        "start": array_column("d4", begin),
        "dur": array_column("u4", end - begin),
        "flags": array_column("u1", flags),
    }
    if run.microbatch is not None:
        own = run.microbatch[order]
        columns["micro"] = array_column("u2", np.where(own < 0, NO_MICROBATCH, own))
    return columns


def transfer_columns(run: Run) -> dict[str, Column]:
    """Tensors on their way, sorted by source, target and begin."""
    timeline = run.timeline
    if timeline is None:
        empty = np.zeros(0, dtype=np.int64)
        kinds = {"tsrc": "u1", "tdst": "u1", "tten": "d4", "tbeg": "d4", "tdur": "u4", "tflags": "u1", "tfrom": "d4",
                 "tto": "u4"}  # fmt: skip
        return {**{name: array_column(kind, empty) for name, kind in kinds.items()}, "tensors": names_column(())}
    moved = timeline.transfers
    critical = np.zeros(len(moved), dtype=bool)
    critical[run.critical[run.critical[:, 0] != OPERATOR, 1]] = True
    order = np.lexsort((np.arange(len(moved)), moved.begin_ticks, moved.target, moved.source))
    sent, tensor = np.unique(moved.tensor, return_inverse=True)
    begin, end = run.units(moved.begin_ticks[order]), run.units(moved.arrive_ticks[order])
    graph, place = timeline.problem.graph, np.empty(len(run.origin) + 1, dtype=np.int64)
    place[run.by_start], place[-1] = np.arange(len(run.origin)), NO_SLICE
    return {
        "tsrc": array_column("u1", moved.source[order]),
        "tdst": array_column("u1", moved.target[order]),
        "tten": array_column("d4", tensor[order]),
        "tbeg": array_column("d4", begin),
        "tdur": array_column("u4", end - begin),
        "tflags": array_column("u1", critical[order] * CRITICAL),
        "tfrom": array_column("d4", place[graph.tensor_producer[moved.tensor[order]]]),
        "tto": array_column("u4", place[first_readers(timeline)[order]]),
        "tensors": names_column([graph.tensor_names[t] for t in sent.tolist()]),
    }


def first_readers(timeline: Timeline) -> NDArray[np.int64]:  # [transfer]
    """The first operator that reads a tensor where it was sent to, once it has arrived; -1 for none."""
    graph, moved = timeline.problem.graph, timeline.transfers
    transfer = moved.find(graph.tensor_of_read, timeline.devices[graph.readers])
    read = np.flatnonzero(transfer >= 0)
    starts = timeline.start_ticks[graph.readers[read]]
    read = read[starts >= moved.arrive_ticks[transfer[read]]]
    order = read[np.lexsort((graph.readers[read], timeline.start_ticks[graph.readers[read]], transfer[read]))]
    found, first = np.unique(transfer[order], return_index=True)
    readers = np.full(len(moved), -1, dtype=np.int64)
    readers[found] = graph.readers[order[first]]
    return readers


def memory_columns(plan: Plan, run: Run) -> dict[str, Column]:
    """Steps of memory on every used device; nothing where memory is not known or has no times."""
    trace, problem = plan.trace, plan.problem
    if not trace.memory_known or (run.timeline is not None and run.timeline.execution == "offload"):
        return {}
    columns: dict[str, Column] = {}
    for d in np.unique(run.devices).tolist():
        curve = trace.memory_split(problem.cluster.names[d])
        at, kept = curve.at, highest(curve)
        if run.timeline is None:
            at = _moments(run, d, at)
        parts = {"weights": curve.weights_bytes, "kv": curve.kv_bytes, "act": curve.activation_bytes}
        columns[f"m{d}at"] = array_column("d4", run.units(at[kept].clip(0, run.span_ticks)))
        columns |= {f"m{d}{name}": array_column("f4", values[kept]) for name, values in parts.items()}
    return columns


def highest(curve: SplitCurve, most: int = MOST_STEPS) -> NDArray[np.int64]:
    """Steps of a curve that are kept: all, or of each bunch the highest."""
    count = len(curve.at)
    if count <= most:
        return np.arange(count)
    total = curve.bytes
    firsts = np.linspace(0, count, most + 1).astype(np.int64)
    bunch = np.repeat(np.arange(most), np.diff(firsts))
    order = np.lexsort((np.arange(count), -total, bunch))
    return order[np.unique(bunch[order], return_index=True)[1]]


def _moments(run: Run, d: int, turns: NDArray[np.int64]) -> NDArray[np.int64]:
    """When so many operators of a device have run, where there is no time line."""
    own = np.flatnonzero(run.devices == d)
    place, count = places(run.devices, int(run.devices.max()) + 1)
    begins = np.zeros(count[d] + 1, dtype=np.int64)
    begins[place[own]] = run.start_ticks[own]
    begins[-1] = run.finish_ticks[own].max(initial=0)
    moments: NDArray[np.int64] = begins[turns.clip(0, count[d])]
    return moments


def critical_facts(run: Run, most: int = 10) -> Mapping[str, object]:
    """What the run waited for: seconds by kind of step, and the longest steps."""
    kind, _, begin, end = run.critical.T
    seconds = {name: float((end - begin)[kind == k].sum() / TICKS_PER_SECOND) for k, name in enumerate(STEP_KINDS)}
    chosen = run.critical[np.argsort(begin - end, kind="stable")[:most]]
    longest = () if run.timeline is None else run.timeline.steps(chosen)
    return {
        "seconds": seconds,
        "steps": [
            {
                "kind": step.kind,
                "name": shown_name(step.name),
                "where": shown_name(step.where),
                "seconds": step.seconds,
                "begin": step.begin_ticks // run.unit_ticks,
                "op": int(run.origin[step.index]) if step.kind == "operator" else None,
            }
            for step in longest
        ],
    }


def seconds_of(ticks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Ticks as seconds."""
    return np.asarray(ticks / TICKS_PER_SECOND)
