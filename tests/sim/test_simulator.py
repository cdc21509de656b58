"""simulate, simulate_many and screen_many: batches, cutoffs, threads, refusals, and what always holds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hand import ask, small
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import placed_problems, problems

from stead import testing
from stead.cluster import Cluster, Device, link_all, link_both_ways
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder
from stead.problem import (
    Fifo,
    Latency,
    Objective,
    Placement,
    PlacetoDispatch,
    Policy,
    Priority,
    Problem,
    ProgramOrder,
    Throughput,
)
from stead.problem.in_ticks import Tables
from stead.sim import Scores, Status, screen_many, simulate, simulate_many
from stead.sim.core_calls import placeto_nodes
from stead.sim.ranks import rank_positions, upward_rank

Placed = tuple[Problem, NDArray[np.uint8]]


def layered(
    operators: int, devices: int = 4, *, objective: Objective | None = None, seed: int = 0
) -> Problem:
    """A random graph whose operators read one to three of the twenty before them; a quarter is free."""
    rng = np.random.default_rng(seed)
    build = GraphBuilder("layered")
    tensors: list[Any] = []
    for v in range(operators):
        near = tensors[-20:]
        reads = [
            near[i]
            for i in rng.choice(len(near), size=min(len(near), int(rng.integers(1, 4))), replace=False)
        ]
        operator = build.operator(f"v{v}", reads=reads)
        tensors.append(build.tensor(operator, size_bytes=int(rng.integers(0, 100_000))))
        if v % 7 == 0:
            build.weight(f"w{v}", size_bytes=10_000, users=[operator])
    graph = build.build()
    names = [f"d{d}" for d in range(devices)]
    cluster = Cluster(
        tuple(
            Device(name, "cpu" if d == 0 else "gpu", memory_bytes=4_000_000) for d, name in enumerate(names)
        ),
        link_all(names, bytes_per_second=7.6e9, latency_seconds=5e-6),
    )
    seconds = rng.integers(1, 100, size=(operators, devices)) * 1e-6 * (rng.random((operators, 1)) > 0.25)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)


def random_rows(problem: Problem, rows: int, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, len(problem.cluster), size=(rows, len(problem.graph)), dtype=np.uint8)


def same(first: Scores, second: Scores) -> bool:
    columns = ("ticks", "seconds", "status", "peak_bytes", "over_bytes")
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in columns)


OBJECTIVES: list[Objective] = [
    Latency(),
    Latency(policy=Priority()),
    Latency(policy=ProgramOrder()),
    Latency("sequential"),
    Latency("offload"),
    Throughput(),
    Throughput(load="fwbw"),
    Throughput(microbatches=3),
    Throughput(microbatches=3, schedule="1f1b"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.describe())
def test_the_number_of_threads_changes_nothing(objective: Objective) -> None:
    problem = layered(60, objective=objective)
    rows = random_rows(problem, 100)
    rows[50:60] = rows[0]
    rows[::3] = np.sort(rows[::3], axis=1)  # stages in pipeline order
    scores = [simulate_many(problem, rows, memory="peak", threads=threads) for threads in (1, 2, 7)]
    assert same(scores[0], scores[1])
    assert same(scores[0], scores[2])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective.describe())
def test_a_batch_says_of_each_row_what_simulate_says(objective: Objective) -> None:
    problem = layered(30, objective=objective)
    rows = random_rows(problem, 12)
    rows[::3] = np.sort(rows[::3], axis=1)
    scores = simulate_many(problem, rows, memory="peak")
    for row, on in enumerate(rows):
        trace = simulate(problem, Placement(problem, on))
        trace.check()
        assert scores.ticks[row] == trace.objective_ticks
        assert scores.seconds[row] == trace.objective_seconds
        assert scores.feasible[row] == trace.feasible
        assert scores.peak_bytes[row].tolist() == trace.peak_bytes.tolist()
        assert scores.policy == trace.policy


def test_splitting_a_batch_changes_nothing() -> None:
    problem = layered(40)
    rows = random_rows(problem, 37)
    whole = simulate_many(problem, rows)
    parts = [simulate_many(problem, part) for part in (rows[:5], rows[5:21], rows[21:])]
    assert whole.ticks.tolist() == [tick for part in parts for tick in part.ticks.tolist()]


def test_a_row_can_have_an_order_of_its_own() -> None:
    problem = layered(25)
    rows = random_rows(problem, 3)
    rng = np.random.default_rng(1)
    positions = np.stack([rng.permutation(25) for _ in rows])
    scores = simulate_many(problem, rows, policy=Priority(positions))
    single = [
        simulate(problem, Placement(problem, on), policy=Priority(position)).objective_ticks
        for on, position in zip(rows, positions, strict=True)
    ]
    assert scores.ticks.tolist() == single


@pytest.mark.parametrize("objective", [Latency(), Latency("sequential"), Throughput()])
def test_a_cutoff_gives_up_rows_that_are_worse_and_keeps_equal_ones(objective: Objective) -> None:
    problem = testing.chain3(objective)
    rows = np.array([[0, 0, 0], [0, 1, 0]], dtype=np.uint8)
    best = simulate_many(problem, rows).seconds.min()
    scores = simulate_many(problem, rows, cutoff_seconds=best)
    assert sorted(scores.status.tolist()) == [Status.OK, Status.CUT]
    cut = int(np.argmax(scores.status))
    assert (scores.ticks[cut], scores.seconds[cut]) == (-1, np.inf)


@pytest.mark.parametrize("cutoff", [-1.0, float("nan")])
def test_a_cutoff_that_makes_no_sense_is_refused(cutoff: float) -> None:
    with pytest.raises(BadInput, match="cutoff_seconds must be at least 0"):
        simulate_many(testing.chain3(), np.zeros((1, 3), dtype=np.uint8), cutoff_seconds=cutoff)


def test_a_batch_may_be_empty() -> None:
    for objective in OBJECTIVES:
        scores = simulate_many(layered(5, objective=objective), np.zeros((0, 5), dtype=np.uint8))
        assert len(scores) == 0


def test_placements_of_another_type_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="uint8, got int64"):
        simulate_many(testing.chain3(), np.zeros((1, 3), dtype=np.int64))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="uint8, got list"):
        simulate_many(testing.chain3(), [[0, 0, 0]])  # type: ignore[arg-type]


def test_placements_of_another_shape_are_refused() -> None:
    with pytest.raises(BadInput, match=r"shape \[rows, 3\], got \[1, 4\]"):
        simulate_many(testing.chain3(), np.zeros((1, 4), dtype=np.uint8))


def test_a_device_that_does_not_exist_is_named() -> None:
    rows = np.array([[0, 0, 0], [0, 7, 0]], dtype=np.uint8)
    with pytest.raises(BadInput, match=r"row 1, operator 1 \('b'\): no device 7; they are 0..1"):
        simulate_many(testing.chain3(), rows)


@pytest.mark.parametrize(
    "policy",
    [Priority(np.array([0, 1])), Priority(np.array([0, 0, 1])), ProgramOrder(np.array([2, 1, 0]))],
)
def test_an_order_that_does_not_fit_the_graph_is_refused(policy: Policy) -> None:
    problem = testing.chain3()
    with pytest.raises(BadInput):
        simulate(problem, Placement(problem, [0, 0, 0]), policy=policy)
    with pytest.raises(BadInput):
        simulate_many(problem, np.zeros((2, 3), dtype=np.uint8), policy=policy)


def test_an_unknown_memory_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="memory is one of peak, check, off, got 'all'"):
        simulate_many(testing.chain3(), np.zeros((1, 3), dtype=np.uint8), memory="all")  # type: ignore[arg-type]


def test_a_placement_of_the_same_graph_under_another_objective_is_taken() -> None:
    problem = testing.chain3()
    assert (
        simulate(testing.chain3(Latency("sequential")), Placement(problem, [0, 1, 0])).objective_seconds == 9
    )


def test_inputs_stay_as_they_are_and_results_are_not_shared() -> None:
    problem = layered(20)
    rows = random_rows(problem, 4)
    before = rows.copy()
    first, again = simulate_many(problem, rows), simulate_many(problem, rows[::-1])
    assert np.array_equal(rows, before)
    assert np.array_equal(first.ticks, again.ticks[::-1])
    trace = simulate(problem, Placement(problem, rows[0]))
    started = trace.start_ticks.copy()
    simulate(problem, Placement(problem, rows[1]))
    assert np.array_equal(trace.start_ticks, started)


def test_results_of_a_trace_cannot_be_written() -> None:
    problem = testing.chain3()
    with pytest.raises(ValueError, match="read-only"):
        simulate(problem, Placement(problem, [0, 0, 0])).start_ticks[0] = 1


def cpu_seconds(work: Any) -> float:
    times = []
    for _ in range(3):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def test_an_operator_with_a_hundred_thousand_inputs_is_quick() -> None:
    count = 100_000
    problem = small([0.0] * (count + 1), [(v, [count], 4) for v in range(count)])
    row = (np.arange(count + 1) % 2).astype(np.uint8)[None, :]
    _ = problem.native
    taken = cpu_seconds(lambda: simulate_many(problem, row, memory="off", threads=1))
    assert taken < 1.0  # 0.01 s; quadratic work takes minutes


def test_an_upward_rank_is_the_mean_work_that_is_left() -> None:
    # Means: a (1 + 3) / 2, b 2 on the one device that can run it, c 1; a tensor takes 0.5 + 4 / 2 = 2.5.
    tiny = testing.chain3()
    costs = Costs(tiny.graph, tiny.cluster, np.array([[1.0, 3.0], [np.inf, 2.0], [1.0, 1.0]]))
    problem = Problem(tiny.graph, tiny.cluster, costs)
    assert upward_rank(problem).tolist() == [2 + 2.5 + 2 + 2.5 + 1, 2 + 2.5 + 1, 1]


def test_positions_follow_the_rank_and_ties_the_index() -> None:
    assert rank_positions(testing.two_towers()).tolist() == [0, 1, 2, 3, 4]
    assert rank_positions(small([1, 1, 5], [])).tolist() == [1, 2, 0]


def test_ranks_of_fifty_thousand_operators_are_quick() -> None:
    problem = layered(50_000)
    assert cpu_seconds(lambda: rank_positions(problem)) < 5.0  # 0.1 s; quadratic work takes minutes


def test_a_screen_is_close_to_the_order_it_follows() -> None:
    problem = layered(60)
    rows = random_rows(problem, 40)
    order = simulate(problem, Placement(problem, rows[0])).order
    exact = simulate_many(problem, rows, policy=ProgramOrder(order)).seconds
    rough = screen_many(problem, rows, order=order)
    assert rough.dtype == np.float32
    assert np.allclose(rough, exact, rtol=1e-5)


def placeto_chain() -> Problem:
    """10 us, then 20 us, with 76,000 bytes in between: 10 us at Placeto's speed."""
    return small([10, 20], [(0, [1], 76_000)], latency_us=1)


def test_placeto_pays_its_gaps_and_no_latency() -> None:
    # The second operator starts at 10 + 10 and ends at 40; the gap of 5.7 after it counts.
    problem = placeto_chain()
    trace = simulate(problem, Placement(problem, [0, 1]), policy=PlacetoDispatch())
    assert trace.objective_seconds == 45.7e-6
    assert (trace.policy, trace.objective_ticks) == ("placeto", 45_700_000)
    scores = simulate_many(problem, np.array([[0, 1], [0, 0]], dtype=np.uint8), policy=PlacetoDispatch())
    assert scores.seconds.tolist() == pytest.approx([45.7e-6, 41.4e-6], rel=1e-12)
    assert scores.policy == "placeto"


def test_placeto_never_judges_memory() -> None:
    problem = placeto_chain().with_memory("gpu0", 1)
    trace = simulate(problem, Placement(problem, [0, 0]), policy=PlacetoDispatch())
    assert trace.feasible
    assert trace.peak_bytes.tolist() == [76_000, 0]


def test_placeto_takes_one_cost_for_all_devices() -> None:
    tiny = testing.chain3()
    costs = Costs(tiny.graph, tiny.cluster, np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 1.0]]))
    problem = Problem(tiny.graph, tiny.cluster, costs, objective=Latency(policy=PlacetoDispatch()))
    with pytest.raises(BadInput, match="operator 'b' takes different times"):
        simulate(problem, Placement(problem, [0, 0, 0]))


def test_placeto_takes_no_tensors_in_seconds() -> None:
    tiny = testing.chain3()
    costs = Costs(tiny.graph, tiny.cluster, np.ones((3, 2)), tensor_seconds=np.ones(3))
    problem = Problem(tiny.graph, tiny.cluster, costs, objective=Latency(policy=PlacetoDispatch()))
    with pytest.raises(BadInput, match="these costs give tensors in seconds"):
        simulate_many(problem, np.zeros((1, 3), dtype=np.uint8))


def test_placeto_nodes_name_operators_by_index_and_tensors_by_slot() -> None:
    problem = small([10, 0, 5], [(0, [1], 100), (0, [2], 200), (1, [2], 0)])
    nodes = placeto_nodes(problem.graph, problem.costs.seconds[:, 0] * 1e6)
    assert nodes == [
        ("00000000", 10.0, [100, 200], []),
        ("00000001", 0, [0], ["00000000:0"]),
        ("00000002", 5.0, [], ["00000000:1", "00000001:0"]),
    ]
    assert isinstance(nodes[1][1], int)


# What always holds.


def fifo_starts(problem: Problem, on: NDArray[np.uint8]) -> list[int] | None:
    trace = simulate(problem, Placement(problem, on), policy=Fifo())
    return trace.start_ticks.tolist() if trace.timeline is not None else None


@given(placed_problems())
def test_program_order_of_a_fifo_run_is_that_run(placed: Placed) -> None:
    problem, on = placed
    trace = simulate(problem, Placement(problem, on))
    if trace.timeline is not None and problem.native.single_sender_channels:
        again = simulate(problem, Placement(problem, on), policy=ProgramOrder(trace.order))
        assert again.start_ticks.tolist() == trace.start_ticks.tolist()


@given(placed_problems(equal_devices=True), st.randoms(use_true_random=False))
def test_renaming_equal_devices_renames_the_run(placed: Placed, random: Any) -> None:
    problem, on = placed
    names = list(range(len(problem.cluster)))
    random.shuffle(names)
    renamed = np.array(names, dtype=np.uint8)[on] if len(on) else on
    assert fifo_starts(problem, renamed) == fifo_starts(problem, on)


@given(placed_problems())
def test_no_run_beats_its_longest_path_or_its_busiest_device(placed: Placed) -> None:
    problem, on = placed
    trace = simulate(problem, Placement(problem, on))
    if trace.timeline is None:
        return
    tables = Tables(problem)
    earliest: list[int] = []
    for v, row in enumerate(tables.duration):
        ready = max((earliest[tables.producer[t]] for t in tables.inputs[v]), default=0)
        earliest.append(ready + min(x for x in row if x >= 0))
    assert trace.objective_ticks >= max(earliest, default=0)
    assert trace.objective_ticks >= round(trace.compute_seconds.max() * 1e12)


@given(placed_problems())
def test_a_device_holds_at_least_its_weights(placed: Placed) -> None:
    problem, on = placed
    trace = simulate(problem, Placement(problem, on))
    if trace.memory_known:
        assert (trace.peak_bytes >= Tables(problem).resident_weights(on.tolist())).all()


@given(placed_problems())
def test_no_peak_rises_when_outputs_need_not_be_kept(placed: Placed) -> None:
    problem, on = placed
    trace = simulate(problem, Placement(problem, on))
    if trace.memory_known:
        freed = Problem(without_kept(problem.graph), problem.cluster, problem.costs)
        assert (simulate(freed, Placement(freed, on)).peak_bytes <= trace.peak_bytes).all()


def without_kept(graph: Graph) -> Graph:
    parts = {name: value for name, value in vars(graph).items() if name in Graph.__init__.__annotations__}
    return Graph(**{**parts, "tensor_kept": np.zeros_like(graph.tensor_kept)})


@given(problems(), st.data())
def test_bytes_are_over_exactly_where_the_peak_exceeds_the_capacity(problem: Problem, data: Any) -> None:
    count = len(problem.graph)
    devices = st.integers(0, len(problem.cluster) - 1)
    row = st.lists(devices, min_size=count, max_size=count)
    rows = np.array(data.draw(st.lists(row, min_size=1, max_size=5)), dtype=np.uint8)
    exact, quick = simulate_many(problem, rows, memory="peak"), simulate_many(problem, rows, memory="check")
    limits = np.array([device.usable_bytes for device in problem.cluster])
    assert np.array_equal(exact.over_bytes > 0, exact.peak_bytes > limits)
    assert np.array_equal(exact.status, quick.status)
    assert np.array_equal(exact.ticks, quick.ticks)
    known = quick.peak_bytes >= 0
    assert np.array_equal(quick.peak_bytes[known], exact.peak_bytes[known])


@given(st.integers(1, 12), st.integers(1, 4), st.data())
def test_a_chain_is_never_faster_spread_over_equal_devices(count: int, devices: int, data: Any) -> None:
    us = data.draw(st.lists(st.sampled_from([0.0, 1.0, 6.7]), min_size=count, max_size=count))
    problem = small(us, [(v, [v + 1], 76) for v in range(count - 1)], devices=devices, bytes_per_second=7.6e9)
    on = data.draw(st.lists(st.integers(0, devices - 1), min_size=count, max_size=count))
    alone = ask("native", problem, [0] * count).makespan_us
    assert ask("native", problem, on).makespan_us >= alone


def test_a_cpu_hands_over_through_host_memory_with_one_copy() -> None:
    build = GraphBuilder()
    build.operator("b", reads=[build.tensor(build.operator("a"), size_bytes=1000)])
    graph = build.build()
    cluster = Cluster(
        (Device("cpu", "cpu"), Device("gpu")),
        link_both_ways("cpu", "gpu", bytes_per_second=1e9),
        routing="host",
    )
    problem = Problem(graph, cluster, Costs(graph, cluster, np.full((2, 2), 1e-6)))
    assert simulate(problem, Placement(problem, [0, 1])).objective_ticks == 3 * 1e6
