"""One placement -> Trace, for each way of executing it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stead import _native
from stead.cluster.classes import DeviceIndices
from stead.problem import Load, Pieces, Placement, PlacetoDispatch, Policy, Problem
from stead.problem.in_ticks import Tables
from stead.problem.ticks import TICKS_PER_SECOND
from stead.sim.core_calls import bad_input, engine_arguments, placeto_graph, value_of_loads
from stead.sim.offload_run import offload, offload_timeline, spent_in_calls
from stead.sim.pipeline import unrolled
from stead.sim.published_placeto import simulate_placeto
from stead.sim.replication import sharing_of
from stead.sim.timeline import NO_CAUSE, Timeline, Transfers, duration_ticks, transfers_from_rows
from stead.sim.trace import Cyclic, Shortfall, TornApart, Trace, Unreachable, Unsupported, Violation

Ticks = NDArray[np.int64]


def trace_dataflow(placement: Placement, policy: Policy, *, memory: bool) -> Trace:
    """Run by the event engine: operators as soon as inputs and device are there, transfers meanwhile."""
    problem = placement.problem
    obstacle = find_obstacle(placement)
    if obstacle is not None:
        return _not_run(placement, policy.name, obstacle)
    if isinstance(policy, PlacetoDispatch):
        return _trace_placeto(placement)
    with bad_input():
        schedule = _native.simulate(
            problem.native,
            placement.devices,
            memory="peak" if memory else "off",
            **engine_arguments(problem, policy),
        )
    timeline = _native_timeline(problem, placement.devices, schedule)
    ticks = int(schedule.makespan)
    return _judged(placement, policy.name, ticks, _spent(timeline), _peaks(schedule, memory), timeline)


def trace_pipelined(placement: Placement, *, memory: bool) -> Trace:
    """All micro-batches of a step, in the order of the schedule."""
    problem = placement.problem
    step = unrolled(problem)
    policy = step.copies.schedule
    obstacle = find_obstacle(placement)
    if obstacle is not None:
        return _not_run(placement, policy, obstacle)
    order = step.order(placement.devices)
    if isinstance(order, Cyclic):
        return _not_run(placement, policy, order)
    devices = step.lift(placement.devices)
    schedule = _native.simulate(
        step.problem.native, devices, policy="program_order", order=order, memory="peak" if memory else "off"
    )
    timeline = _native_timeline(step.problem, devices, schedule)
    trace = _judged(
        placement, policy, int(schedule.makespan), _spent(timeline), _peaks(schedule, memory), timeline
    )
    return replace(trace, objective_seconds=trace.objective_seconds / step.copies.microbatches)


def trace_sequential(placement: Placement, *, memory: bool) -> Trace:
    """One operator or transfer at a time; the core scores it."""
    problem = placement.problem
    obstacle = find_obstacle(placement)
    if obstacle is not None:
        return _not_run(placement, "sequential", obstacle)
    scores = _native.sequential_many(
        problem.native, placement.devices[None, :], memory="peak" if memory else "off", threads=1
    )
    timeline = sequential_timeline(problem, placement.devices)
    return _judged(placement, "sequential", int(scores.ticks[0]), _spent(timeline), scores.peak_bytes[0], timeline)


def sequential_timeline(problem: Problem, devices: DeviceIndices) -> Timeline:
    """One thing at a time: operators by index, each followed by the copies of its outputs; nothing has a cause."""
    tables, on, clock = Tables(problem), devices.tolist(), 0
    start, finish, moved = [], [], []
    for v, d in enumerate(on):
        start.append(clock)
        clock += tables.duration[v][d]
        finish.append(clock)
        for t in tables.outputs[v]:
            for k in tables.destinations(t, on):
                begin, clock = clock, clock + tables.wire(t, d, k) + tables.latency[d][k]
                moved.append((t, d, k, -1, begin, clock))
    return Timeline(
        problem=problem,
        devices=devices,
        execution="sequential",
        start_ticks=np.array(start, dtype=np.int64),
        finish_ticks=np.array(finish, dtype=np.int64),
        order=np.arange(len(devices), dtype=np.int32),
        cause=np.full(len(devices), NO_CAUSE, dtype=np.int32),
        transfers=transfers_from_rows(np.array(moved, dtype=np.int64)),
    )


def trace_offload(placement: Placement, pieces: Pieces, *, memory: bool) -> Trace:
    """Every piece of an accelerator as one call; the core scores it."""
    problem = placement.problem
    obstacle = find_obstacle(placement, through_host=True)
    if obstacle is not None:
        return _not_run(placement, "offload", obstacle)
    tables, published = Tables(problem), pieces == "published"
    calls = offload(tables, placement.devices.tolist(), published=published)
    if calls is None:
        return _not_run(
            placement, "offload", Cyclic("the accelerators' calls wait for each other in a circle")
        )
    scores = _native.offload_many(
        problem.native,
        placement.devices[None, :],
        published=published,
        memory="peak" if memory else "off",
        threads=1,
    )
    timeline = offload_timeline(problem, placement.devices, calls)
    spent = spent_in_calls(tables, calls)
    return _judged(placement, "offload", int(scores.ticks[0]), spent, scores.peak_bytes[0], timeline)


def trace_steady(placement: Placement, load: Load, *, memory: bool) -> Trace:
    """The load of every device for one sample of a pipeline that is kept full; there is no time line."""
    problem = placement.problem
    obstacle = find_obstacle(placement)
    if obstacle is not None:
        return _not_run(placement, "steady", obstacle)
    loads = _native.loads_many(
        problem.native, placement.devices[None, :], memory="peak" if memory else "off", threads=1
    )
    sharing = sharing_of(placement) if placement.replicas else None
    ticks = int(value_of_loads(loads, load, sharing)[0])
    spent = np.stack(
        [part[0].sum(axis=1) for part in (loads.compute_ticks, loads.received_ticks, loads.sent_ticks)]
    )
    busy = {
        "sum": spent.sum(axis=0),
        "fwbw": spent.sum(axis=0),
        "overlap": np.maximum(spent[0], spent[1] + spent[2]),
        "duplex": spent.max(axis=0),
    }[load]
    if sharing is not None:
        busy = sharing.shared(busy)
    return _judged(placement, "steady", ticks, np.concatenate([spent, busy[None, :]]), loads.peak_bytes[0], None)


def _trace_placeto(placement: Placement) -> Trace:
    """What the published simulator says; it judges no memory, and its times are doubles: no time line."""
    problem = placement.problem
    result = simulate_placeto(placeto_graph(problem), placement.devices, len(problem.cluster))
    spent = np.zeros((4, len(problem.cluster)), dtype=np.int64)
    np.add.at(spent[0], placement.devices, duration_ticks(problem, placement.devices))
    spent[3] = spent[0]
    trace = _judged(placement, "placeto", round(result.makespan_us * 1e6), spent, result.peak_bytes, None)
    return replace(trace, objective_seconds=result.makespan_us * 1e-6)


def find_obstacle(placement: Placement, *, through_host: bool = False) -> Violation | None:
    """Why a placement cannot run at all: an operator that cannot run there, a tensor without a way."""
    problem, on, names = placement.problem, placement.devices, placement.problem.cluster.names
    graph = problem.graph
    unsupported = np.flatnonzero(~problem.column_allowed[np.arange(len(on)), problem.columns[on]])
    if unsupported.size:
        v, device = int(unsupported[0]), names[on[unsupported[0]]]
        can = np.isfinite(problem.costs.seconds_on(on)[v])
        reason = "the constraints exclude it" if can else problem.costs.reason(graph.kinds[v], device)
        return Unsupported(graph.operator_names[v], device, reason, others=len(unsupported) - 1)
    tensor = graph.tensor_of_read
    source, target = on[graph.tensor_producer[tensor]], on[graph.readers]
    routes = problem.routes
    if through_host:
        latency = routes.host_latency_seconds[0][source] + routes.host_latency_seconds[1][target]
    else:
        latency = routes.latency_seconds[source, target]
    lost = np.flatnonzero((source != target) & np.isinf(latency))
    if lost.size:
        at = lost[0]
        return Unreachable(names[source[at]], names[target[at]], graph.tensor_names[tensor[at]])
    return None


def _not_run(placement: Placement, policy: str, obstacle: Violation) -> Trace:
    """The trace of a placement that cannot run."""
    count = len(placement.problem.cluster)
    nothing = np.zeros(count)
    return Trace(
        placement=placement,
        policy=policy,
        objective_ticks=-1,
        objective_seconds=np.inf,
        problems=(obstacle, *_torn(placement)),
        compute_seconds=nothing,
        received_seconds=nothing,
        sent_seconds=nothing,
        busy_seconds=nothing,
        peak_bytes=np.full(count, -1, dtype=np.int64),
        limit_bytes=placement.problem.limit_bytes,
    )


def _judged(
    placement: Placement, policy: str, ticks: int, spent: Ticks, peak_bytes: Any, timeline: Timeline | None
) -> Trace:
    """A trace with its verdicts; `spent` is [compute | received | sent | busy, device]."""
    trace = Trace(
        placement=placement,
        policy=policy,
        objective_ticks=ticks,
        objective_seconds=ticks / TICKS_PER_SECOND,
        problems=_torn(placement),
        compute_seconds=spent[0] / TICKS_PER_SECOND,
        received_seconds=spent[1] / TICKS_PER_SECOND,
        sent_seconds=spent[2] / TICKS_PER_SECOND,
        busy_seconds=spent[3] / TICKS_PER_SECOND,
        peak_bytes=np.asarray(peak_bytes, dtype=np.int64),
        limit_bytes=placement.problem.limit_bytes,
        timeline=timeline,
    )
    if not trace.memory_known:
        return trace
    names = placement.problem.cluster.names
    over = np.flatnonzero(trace.headroom_bytes < 0).tolist()
    shortfalls = tuple(Shortfall(trace.blocks_at_peak(names[d])) for d in over)
    return replace(trace, problems=(*trace.problems, *shortfalls))


def _torn(placement: Placement) -> tuple[Violation, ...]:
    return tuple(TornApart(sentence) for sentence in placement.violations())


def _peaks(schedule: Any, memory: bool) -> NDArray[np.int64]:
    return np.asarray(schedule.peak_bytes) if memory else np.full_like(schedule.peak_bytes, -1)


def _spent(run: Timeline) -> Ticks:
    """[compute | received | sent | busy, device] of a run: a device is busy while it computes and carries."""
    spent = np.zeros((4, len(run.problem.cluster)), dtype=np.int64)
    way = run.transfers.arrive_ticks - run.transfers.begin_ticks
    np.add.at(spent[0], run.devices, run.finish_ticks - run.start_ticks)
    np.add.at(spent[1], run.transfers.target, way)
    np.add.at(spent[2], run.transfers.source, way)
    np.add.at(spent[3], run.devices, run.busy_until_ticks() - run.start_ticks)
    return spent


def _native_timeline(problem: Problem, devices: DeviceIndices, schedule: Any) -> Timeline:
    return Timeline(
        problem=problem,
        devices=devices,
        execution="dataflow",
        start_ticks=schedule.start,
        finish_ticks=schedule.finish,
        order=schedule.order,
        cause=schedule.operator_cause,
        transfers=Transfers(
            schedule.transfer_tensor,
            schedule.transfer_source,
            schedule.transfer_target,
            schedule.transfer_channel,
            schedule.transfer_begin,
            schedule.transfer_arrive,
            schedule.transfer_cause,
        ),
    )
