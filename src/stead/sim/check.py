"""Checks that a trace adds up: nothing overlaps or starts too early, every sum and every peak agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stead.problem.ticks import to_ticks
from stead.sim.timeline import Timeline, duration_ticks
from stead.sim.transfer_times import wire_ticks

if TYPE_CHECKING:
    from stead.sim.trace import Trace


def check_trace(trace: Trace) -> None:
    """Raise an AssertionError that says what does not add up."""
    if trace.timeline is not None:
        _check_lengths(trace.timeline)
        _check_devices(trace.timeline)
        _check_transfers(trace.timeline)
        _check_dependencies(trace.timeline)
        _check_causes(trace.timeline)
        _demand(
            trace.timeline.makespan_ticks == trace.objective_ticks,
            f"the run ends at {trace.timeline.makespan_ticks}, the objective is {trace.objective_ticks}",
        )
    if trace.memory_known:
        for d, name in enumerate(trace.placement.problem.cluster.names):
            peak = int(trace.memory_curve(name).bytes.max())
            _demand(
                peak == trace.peak_bytes[d],
                f"the memory curve of {name} peaks at {peak} bytes, the trace says {trace.peak_bytes[d]}",
            )


def _demand(holds: bool, sentence: str) -> None:
    if not holds:
        raise AssertionError(sentence)


def _check_lengths(run: Timeline) -> None:
    """Operators take as long as the costs say; those of an offloaded call take the whole call."""
    length = run.finish_ticks - run.start_ticks
    expected = duration_ticks(run.problem, run.devices)
    wrong = np.flatnonzero(length < expected if run.execution == "offload" else length != expected)
    _demand(
        not wrong.size, f"operator {wrong[:1]} takes {length[wrong[:1]]} ticks, not {expected[wrong[:1]]}"
    )
    _demand(bool((run.start_ticks >= 0).all()), "an operator starts before the run")
    _demand(
        np.array_equal(np.sort(run.order), np.arange(len(run.devices))),
        "not every operator is processed once",
    )


def _check_devices(run: Timeline) -> None:
    """A device runs one operator at a time; an offloading host has unlimited cores, a call many operators."""
    if run.execution == "offload":
        return
    by_device = run.order[np.argsort(run.devices[run.order], kind="stable")]
    earlier, later = by_device[:-1], by_device[1:]
    same = run.devices[earlier] == run.devices[later]
    overlap = same & (run.start_ticks[later] < run.busy_until_ticks()[earlier])
    _demand(
        not overlap.any(), f"operators {earlier[overlap][:1]} and {later[overlap][:1]} overlap on a device"
    )


def _check_transfers(run: Timeline) -> None:
    """Each tensor goes to a device once, leaves when it is there, and has its channel for itself."""
    moved, problem = run.transfers, run.problem
    wire = wire_ticks(problem, moved.tensor, moved.source, moved.target)
    pair = moved.source, moved.target
    latency = to_ticks(problem.routes.latency_seconds[pair])
    gap = to_ticks(problem.routes.gap_seconds[pair])
    producer = problem.graph.tensor_producer[moved.tensor]
    _demand(np.array_equal(moved.source, run.devices[producer]), "a transfer does not start at its producer")
    _demand(
        bool((moved.begin_ticks >= run.finish_ticks[producer]).all()),
        "a transfer begins before its producer ends",
    )
    _demand(
        np.array_equal(moved.arrive_ticks, moved.begin_ticks + wire + latency),
        "a transfer has a wrong length",
    )
    copies = np.stack([moved.tensor, moved.target], axis=1)
    _demand(len(np.unique(copies, axis=0)) == len(moved), "a tensor is sent twice to one device")
    queueing = np.flatnonzero(moved.channel >= 0)
    by_channel = queueing[np.argsort(moved.channel[queueing], kind="stable")]
    earlier, later = by_channel[:-1], by_channel[1:]
    same = moved.channel[earlier] == moved.channel[later]
    overlap = same & (moved.begin_ticks[later] < (moved.begin_ticks + wire + gap)[earlier])
    _demand(
        not overlap.any(), f"transfers {earlier[overlap][:1]} and {later[overlap][:1]} overlap on a channel"
    )


def _check_dependencies(run: Timeline) -> None:
    """No operator starts before everything it reads is there."""
    graph = run.problem.graph
    tensor = graph.tensor_of_read
    producer, reader = graph.tensor_producer[tensor], graph.readers
    there = run.finish_ticks[producer]
    if run.execution == "offload":
        early = (run.start_ticks[reader] < there) & ~_same_call(run, producer, reader)
    else:
        away = np.flatnonzero(run.devices[producer] != run.devices[reader])
        arrived = run.transfers.find(tensor[away], run.devices[reader[away]])
        lost = tensor[away[arrived < 0]]
        _demand(not lost.size, f"tensor {lost[:1]} never reaches a device that reads it")
        there[away] = run.transfers.arrive_ticks[arrived]
        early = run.start_ticks[reader] < there
    _demand(
        not early.any(), f"operator {reader[early][:1]} starts before tensor {tensor[early][:1]} is there"
    )


def _same_call(run: Timeline, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Whether two operators belong to one call: an accelerator's operators with the same times."""
    hosts = np.array([device.is_host for device in run.problem.cluster])
    together: NDArray[np.bool_] = run.devices[first] == run.devices[second]
    together &= ~hosts[run.devices[first]]
    together &= run.start_ticks[first] == run.start_ticks[second]
    together &= run.finish_ticks[first] == run.finish_ticks[second]
    return together


def _check_causes(run: Timeline) -> None:
    """The pieces of the critical path follow each other from 0 to the end."""
    clock = 0
    for step in run.critical_path():
        _demand(step.begin_ticks == clock, f"the critical path has a gap before {step.name!r} at {clock}")
        clock = step.end_ticks
    _demand(
        clock == run.makespan_ticks, f"the critical path ends at {clock}, the run at {run.makespan_ticks}"
    )
