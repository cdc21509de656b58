"""The core against the specification, bit for bit, on random problems."""

from __future__ import annotations

from typing import Any

import numpy as np
from hand import ask, reference_run
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import permutations, placed_problems, topological_orders

from stead import _native
from stead.problem import Fifo, Latency, Placement, Policy, Priority, Problem, ProgramOrder, Throughput
from stead.problem.in_ticks import Tables
from stead.sim import Status, simulate_many
from stead.sim.offload_run import offload
from stead.sim.spec.loads import loads, sequential
from stead.sim.spec.memory import peaks, standing_peaks
from stead.sim.tracing import sequential_timeline

Placed = tuple[Problem, NDArray[np.uint8]]


def can_run(problem: Problem, on: NDArray[np.uint8], *, through_host: bool = False) -> bool:
    tables = Tables(problem)
    blocked = tables.unreachable(on.tolist(), through_host=through_host)
    return tables.unsupported(on.tolist()) is None and blocked is None


def agree(problem: Problem, on: NDArray[np.uint8], policy: Policy) -> None:
    """Both engines say the same about everything that is specified."""
    if not can_run(problem, on):
        return
    expected, got = ask("reference", problem, on, policy), ask("native", problem, on, policy)
    assert got == expected


@given(placed_problems())
def test_fifo(placed: Placed) -> None:
    agree(*placed, Fifo())


@given(placed_problems(), st.data())
def test_priority(placed: Placed, data: st.DataObject) -> None:
    position = data.draw(permutations(len(placed[0].graph)))
    agree(*placed, Priority(position))


@given(placed_problems(), st.data())
def test_priority_with_transfer_positions(placed: Placed, data: st.DataObject) -> None:
    graph = placed[0].graph
    policy = Priority(data.draw(permutations(len(graph))), data.draw(permutations(graph.tensor_count)))
    agree(*placed, policy)


@given(placed_problems(), st.data())
def test_program_order(placed: Placed, data: st.DataObject) -> None:
    agree(*placed, ProgramOrder(data.draw(topological_orders(placed[0].graph))))


@given(placed_problems(), st.data())
def test_program_order_that_lists_sends(placed: Placed, data: st.DataObject) -> None:
    problem, on = placed
    order = data.draw(topological_orders(problem.graph))
    agree(problem, on, ProgramOrder(with_sends(problem, order, data), sends=True))


def with_sends(problem: Problem, order: NDArray[np.int32], data: st.DataObject) -> NDArray[np.int32]:
    """The order with all transfers put in, each somewhere between its producer and its first reader."""
    graph, devices = problem.graph, len(problem.cluster)
    items = order.tolist()
    for t in range(graph.tensor_count):
        readers = graph.readers[graph.reader_first[t] : graph.reader_first[t + 1]].tolist()
        for k in range(devices):
            first = items.index(int(graph.tensor_producer[t])) + 1
            last = min((items.index(v) for v in readers), default=len(items))
            items.insert(data.draw(st.integers(first, last)), len(graph) + t * devices + k)
    return np.array(items, dtype=np.int32)


@given(placed_problems())
def test_the_fast_form_of_fifo_equals_the_general_one(placed: Placed) -> None:
    problem, on = placed
    fast = _native.simulate(problem.native, on, policy="fifo")
    general = _native.simulate(problem.native, on, policy="fifo_general")
    assert fast.start.tolist() == general.start.tolist()
    assert fast.finish.tolist() == general.finish.tolist()
    assert fast.order.tolist() == general.order.tolist()
    assert fast.operator_cause.tolist() == general.operator_cause.tolist()
    assert fast.peak_bytes.tolist() == general.peak_bytes.tolist()
    assert booked(fast) == booked(general)


def booked(schedule: Any) -> set[tuple[int, ...]]:
    columns = (schedule.transfer_tensor, schedule.transfer_target, schedule.transfer_begin)
    return set(zip(*(column.tolist() for column in columns), schedule.transfer_arrive.tolist(), strict=True))


@given(placed_problems())
def test_the_first_moment_of_a_peak(placed: Placed) -> None:
    problem, on = placed
    if can_run(problem, on):
        run = reference_run(Placement(problem, on), Fifo())
        schedule = _native.simulate(problem.native, on)
        got = zip(schedule.peak_bytes.tolist(), schedule.peak_at.tolist(), strict=True)
        assert list(got) == peaks(run)


@given(placed_problems())
def test_what_cannot_run_is_told_apart(placed: Placed) -> None:
    problem, on = placed[0], placed[1].tolist()
    schedule = _native.simulate(problem.native, placed[1])
    tables = Tables(problem)
    unsupported, unreachable = tables.unsupported(on), tables.unreachable(on)
    if unsupported is not None:
        assert (schedule.status, schedule.status_operator) == (Status.UNSUPPORTED, unsupported)
    elif unreachable is not None:
        found = (schedule.status_source, schedule.status_target, schedule.status_tensor)
        assert (schedule.status, found) == (Status.UNREACHABLE, unreachable)
    else:
        assert schedule.status <= Status.MEMORY


def expected_status(
    problem: Problem, on: NDArray[np.uint8], peak: list[int], *, through_host: bool
) -> Status:
    tables = Tables(problem)
    if tables.unsupported(on.tolist()) is not None:
        return Status.UNSUPPORTED
    if tables.unreachable(on.tolist(), through_host=through_host) is not None:
        return Status.UNREACHABLE
    limits = [device.usable_bytes for device in problem.cluster]
    return Status.MEMORY if any(p > m for p, m in zip(peak, limits, strict=True)) else Status.OK


@given(
    placed_problems(objective=Throughput(), training=True),
    st.sampled_from(["sum", "overlap", "duplex", "fwbw"]),
)
def test_loads(placed: Placed, load: Any) -> None:
    problem, on = placed[0].with_objective(Throughput(load=load)), placed[1]
    tables = Tables(problem)
    scores = simulate_many(problem, on[None, :], memory="peak")
    peak = standing_peaks(tables, on.tolist())
    assert scores.status[0] == expected_status(problem, on, peak, through_host=False)
    if can_run(problem, on):
        expected = loads(tables, on.tolist())
        found = _native.loads_many(problem.native, on[None, :])
        assert found.compute_ticks[0].tolist() == expected.compute
        assert found.received_ticks[0].tolist() == expected.received
        assert found.sent_ticks[0].tolist() == expected.sent
        assert scores.ticks[0] == expected.value(load)
        assert scores.peak_bytes[0].tolist() == peak


@given(placed_problems(objective=Latency("sequential")))
def test_sequential_runs(placed: Placed) -> None:
    problem, on = placed
    scores = simulate_many(problem, on[None, :], memory="peak")
    if not can_run(problem, on):
        assert scores.status[0] in (Status.UNSUPPORTED, Status.UNREACHABLE)
        return
    run = sequential(Tables(problem), on.tolist())
    assert scores.ticks[0] == run.makespan
    assert scores.peak_bytes[0].tolist() == [peak for peak, _ in peaks(run)]
    drawn = sequential_timeline(problem, on)
    assert (drawn.start_ticks.tolist(), drawn.finish_ticks.tolist()) == (run.start, run.finish)
    moved = drawn.transfers
    assert [*zip(moved.tensor, moved.source, moved.target, strict=True)] == [move[:3] for move in run.transfers]
    assert [*zip(moved.begin_ticks, moved.arrive_ticks, strict=True)] == [move[4:] for move in run.transfers]


@given(placed_problems(objective=Latency("offload"), host=True), st.sampled_from(["serial", "published"]))
def test_offload_runs(placed: Placed, pieces: Any) -> None:
    problem, on = placed[0].with_objective(Latency("offload", pieces=pieces)), placed[1]
    tables = Tables(problem)
    scores = simulate_many(problem, on[None, :], memory="peak")
    peak = standing_peaks(tables, on.tolist())
    status = expected_status(problem, on, peak, through_host=True)
    if status > Status.MEMORY:
        assert scores.status[0] == status
        return
    calls = offload(tables, on.tolist(), published=pieces == "published")
    if calls is None:
        assert scores.status[0] == Status.CYCLIC
    else:
        assert scores.status[0] == status
        assert scores.ticks[0] == max((call.finish for call in calls), default=0)
        assert scores.peak_bytes[0].tolist() == peak
