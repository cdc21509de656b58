"""What a trace tells: critical paths, memory, verdicts, and whether it adds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand import small
from hypothesis import given
from numpy.typing import NDArray
from strategies import placed_problems
from test_reference import memory_problem

from stead import testing
from stead.cluster import Cluster, Device
from stead.costs import Costs, Roofline
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.problem import Constraints, Placement, Problem, Throughput
from stead.sim import Peak, Shortfall, Status, Trace, Unsupported, simulate, simulate_many


def traced(problem: Problem, on: list[int], **options: Any) -> Trace:
    trace = simulate(problem, Placement(problem, on), **options)
    trace.check()
    return trace


def test_a_tensor_read_twice_crosses_once() -> None:
    assert traced(testing.diamond(), [0, 1, 1, 0]).finish_seconds[-1] == 12.0


def test_the_critical_path_tells_what_the_run_waited_for() -> None:
    path = traced(testing.diamond(), [0, 1, 1, 0]).critical_path()
    assert [(step.kind, step.name, step.where, step.seconds) for step in path] == [
        ("operator", "a", "d0", 1),
        ("transfer", "a", "d0 -> d1", 2.5),
        ("operator", "b", "d1", 2),
        ("operator", "c", "d1", 3),
        ("transfer", "c", "d1 -> d0", 2.5),
        ("operator", "d", "d0", 1),
    ]


def test_the_critical_path_goes_through_a_busy_channel() -> None:
    # The second tensor waits 8 us for the first, although its own way takes 1 + 1.
    trace = traced(small([1, 1, 9], [(0, [1], 8000), (0, [2], 1000)], latency_us=1), [0, 1, 1])
    steps = [
        (step.kind, step.name, (step.end_ticks - step.begin_ticks) / 1e6) for step in trace.critical_path()
    ]
    assert steps == [
        ("operator", "v0", 1),
        ("queue", "v0", 8),
        ("transfer", "v0:1", 2),
        ("operator", "v2", 9),
    ]


def test_an_empty_graph_takes_no_time() -> None:
    trace = traced(small([], devices=1), [])
    assert (trace.objective_seconds, trace.critical_path(), trace.peak_bytes.tolist()) == (0.0, (), [0])


def test_an_overfull_device_is_told_with_its_split() -> None:
    problem = memory_problem([6000, 6399])
    trace = traced(problem, [0, 1, 0, 0])
    assert not trace.feasible
    assert trace.objective_seconds == 36.1e-6
    (shortfall,) = trace.problems
    assert isinstance(shortfall, Shortfall)
    assert (shortfall.device, shortfall.bytes_over) == ("gpu1", 1)
    peak = shortfall.peak
    assert (peak.capacity_bytes, peak.peak_bytes, peak.at_seconds) == (6399, 6400, 15e-6)
    assert (peak.weights_bytes, peak.received_bytes) == (2000, 4000)
    assert (peak.activations_bytes, peak.workspace_bytes) == (100, 300)
    assert [(block.name, block.kind, block.size_bytes) for block in peak.blocks] == [
        ("v0", "received", 4000),
        ("w[1]", "weights", 2000),
        ("v1", "workspace", 300),
        ("v1", "activations", 100),
    ]
    assert trace.headroom_bytes.tolist() == [0, -1]


def test_one_byte_more_of_memory_makes_it_feasible() -> None:
    assert traced(memory_problem([6000, 6400]), [0, 1, 0, 0]).feasible


def test_a_shortfall_reads_like_a_sentence() -> None:
    peak = Peak(
        device="gpu1",
        capacity_bytes=8 * 2**30,
        peak_bytes=int(9.84 * 2**30),
        at_seconds=0.0123,
        at_operator="",
        weights_bytes=int(6.1 * 2**30),
        activations_bytes=int(2.9 * 2**30),
        received_bytes=int(0.6 * 2**30),
        workspace_bytes=int(0.23 * 2**30),
        blocks=(),
    )
    assert str(Shortfall(peak)) == (
        "gpu1 is short by 1.8 GiB: peak 9.8 GiB of 8.0 GiB at 12.3 ms "
        "(weights 6.1 GiB, activations 2.9 GiB, received 614.4 MiB, workspace 235.5 MiB)"
    )


def test_the_memory_curve_follows_blocks_from_begin_to_end() -> None:
    # v0 writes 100 bytes at 0, v1 reads them from 1 to 3 and writes 10 that are kept to the end at 3.
    trace = traced(small([1, 2], [(0, [1], 100), (1, [], 10)], kept=[1], devices=1), [0, 0])
    curve = trace.memory_curve("gpu0")
    assert (curve.at / 1e6).tolist() == [0, 1, 3]
    assert curve.bytes.tolist() == [100, 110, 0]


def test_memory_can_be_left_out() -> None:
    problem = memory_problem([1, 1])
    trace = simulate(problem, Placement(problem, [0, 0, 0, 0]), memory="off")
    assert trace.feasible
    assert trace.peak_bytes.tolist() == [-1, -1]
    with pytest.raises(BadInput, match="knows no memory"):
        trace.memory_curve("gpu0")


def test_an_unknown_device_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match="no device 'gpu00'; did you mean 'gpu0'"):
        traced(memory_problem(), [0, 0, 0, 0]).memory_curve("gpu00")


def test_a_load_has_no_time_line() -> None:
    problem = testing.chain3(Throughput())
    with pytest.raises(BadInput, match="there is no time line: throughput, load sum has none"):
        _ = simulate(problem, Placement(problem, [0, 0, 0])).start_ticks


def supported_on_cpu_only() -> Problem:
    build = GraphBuilder()
    a = build.tensor(build.operator("a", kind="Conv", flops=1e9), size_bytes=4)
    b = build.tensor(build.operator("b", kind="NonZero", flops=1e9, reads=[a]), size_bytes=4)
    build.operator("c", kind="NonZero", flops=1e9, reads=[b])
    graph = build.build()
    rates = {"fp32": 1e12}
    cluster = Cluster(
        (
            Device("cpu", "cpu", flops_per_second=rates),
            Device("npu", unsupported_kinds=frozenset({"NonZero"}), flops_per_second=rates),
        )
    )
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def test_an_unsupported_operator_is_an_answer() -> None:
    problem = supported_on_cpu_only()
    trace = simulate(problem, Placement(problem, [1, 1, 1]))
    assert (trace.objective_ticks, trace.objective_seconds, trace.feasible) == (-1, np.inf, False)
    assert str(trace.problems[0]) == (
        "operator 'b' cannot run on npu: npu does not support NonZero (and 1 more operator)"
    )
    assert repr(trace) == f"Trace(inf s, fifo, {trace.problems[0]})"


def test_a_tensor_without_a_route_is_an_answer() -> None:
    problem = supported_on_cpu_only()
    trace = simulate(problem, Placement(problem, [1, 0, 0]))
    assert str(trace.problems[0]) == "tensor 'a' has no route from npu to cpu"


def test_what_the_constraints_exclude_is_told_from_what_cannot_run() -> None:
    problem = testing.chain3().with_constraints(Constraints(pin=(("b", "d1"),)))
    trace = simulate(problem, Placement(problem, [0, 0, 0]))
    assert trace.problems == (Unsupported("b", "d0", "the constraints exclude it"),)


def test_a_torn_group_is_infeasible_and_keeps_its_time() -> None:
    problem = testing.chain3().with_constraints(Constraints(colocate=(("a", "b"),)))
    trace = traced(problem, [0, 1, 0])
    assert trace.objective_seconds == 9
    assert [str(reason) for reason in trace.problems] == [
        "'a' on d0 and 'b' on d1 must share a device (1 such group)"
    ]
    scores = simulate_many(problem, np.array([[0, 1, 0], [1, 1, 0]], dtype=np.uint8))
    assert scores.status.tolist() == [Status.TORN, Status.OK]
    assert scores.seconds.tolist() == [9, 6.5]


@given(placed_problems())
def test_every_trace_adds_up(placed: tuple[Problem, NDArray[np.uint8]]) -> None:
    problem, on = placed
    simulate(problem, Placement(problem, on)).check()


def tampered(trace: Trace, **changes: Any) -> Trace:
    assert trace.timeline is not None
    return replace(trace, timeline=replace(trace.timeline, **changes))


def test_the_check_finds_operators_that_overlap() -> None:
    trace = traced(small([1, 1], devices=1), [0, 0])
    early = np.zeros_like(trace.start_ticks)
    with pytest.raises(AssertionError, match="overlap on a device"):
        tampered(trace, start_ticks=early, finish_ticks=early + 1_000_000).check()


def test_the_check_finds_operators_of_a_wrong_length() -> None:
    trace = traced(testing.chain3(), [0, 0, 0])
    with pytest.raises(AssertionError, match="takes"):
        tampered(trace, finish_ticks=trace.finish_ticks + 1).check()


def test_the_check_finds_transfers_that_overlap() -> None:
    trace = traced(small([1, 1, 9], [(0, [1], 8000), (0, [2], 1000)], latency_us=1), [0, 1, 1])
    moved = trace.transfers
    early = np.full_like(moved.begin_ticks, 1_000_000)
    arrive = early + (moved.arrive_ticks - moved.begin_ticks)
    with pytest.raises(AssertionError, match="overlap on a channel"):
        tampered(trace, transfers=replace(moved, begin_ticks=early, arrive_ticks=arrive)).check()


def test_the_check_finds_a_reader_that_did_not_wait() -> None:
    trace = traced(testing.chain3(), [0, 1, 0])
    hasty = trace.start_ticks.copy()
    hasty[1:] -= 1
    with pytest.raises(AssertionError, match="starts before tensor"):
        tampered(
            trace, start_ticks=hasty, finish_ticks=hasty + (trace.finish_ticks - trace.start_ticks)
        ).check()


def test_the_check_finds_a_wrong_cause() -> None:
    trace = traced(testing.two_towers(), [0, 1, 0, 1, 0])
    assert trace.timeline is not None
    cause = trace.timeline.cause.copy()
    cause[4] = -1 - 0  # head did not wait for l1
    with pytest.raises(AssertionError, match="critical path has a gap"):
        tampered(trace, cause=cause).check()


def test_the_check_finds_a_wrong_peak() -> None:
    trace = traced(memory_problem(), [0, 0, 0, 0])
    with pytest.raises(AssertionError, match="the memory curve of gpu0 peaks at 8100 bytes"):
        replace(trace, peak_bytes=trace.peak_bytes + 1).check()


def test_the_check_finds_a_wrong_value() -> None:
    trace = traced(testing.chain3(), [0, 0, 0])
    with pytest.raises(AssertionError, match="the objective is 1"):
        replace(trace, objective_ticks=1).check()


def test_costs_without_a_reason_say_so() -> None:
    graph_problem = testing.chain3()
    seconds = np.array([[1.0, 1.0], [1.0, np.inf], [1.0, 1.0]])
    costs = Costs(graph_problem.graph, graph_problem.cluster, seconds)
    problem = Problem(graph_problem.graph, graph_problem.cluster, costs)
    trace = simulate(problem, Placement(problem, [0, 1, 0]))
    assert str(trace.problems[0]) == "operator 'b' cannot run on d1: no cost is given for it there"
