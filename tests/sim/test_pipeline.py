"""Steps of micro-batches: the unrolled graph, the order of the schedules, time and memory."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from strategies import graphs, placed_problems

from stead.cluster import Cluster, Contention, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import Graph, GraphBuilder, TensorId
from stead.problem import Latency, Placement, Problem, ProgramOrder, Schedule, Throughput
from stead.sim import Cyclic, Status, Trace, simulate, simulate_many
from stead.sim.pipeline import unrolled

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)


def training_chain(
    stages: int = 3,
    *,
    microbatches: int = 4,
    schedule: Schedule = "1f1b",
    stash: int = 0,
    gradient: int = 0,
    updates: bool = False,
    devices: int | None = None,
) -> Problem:
    """f0 -> f1 -> ... -> b1 -> b0 of 1 us and 2 us over free links; b_k also reads what f_k stashed."""
    build = GraphBuilder("chain")
    reads: list[TensorId] = []
    forward, stashed = [], []
    for k in range(stages):
        forward.append(build.operator(f"f{k}", reads=reads))
        reads = [build.tensor(forward[k], size_bytes=0)]
        stashed.append(build.tensor(forward[k], size_bytes=stash, name=f"stash{k}"))
    for k in reversed(range(stages)):
        backward = build.operator(f"b{k}", reads=[*reads, stashed[k]], phase="backward", twin=f"f{k}")
        reads = [build.tensor(backward, size_bytes=0)]
        if updates:
            summed = build.tensor(backward, size_bytes=gradient, name=f"gradient{k}")
            update = build.operator(f"u{k}", reads=[summed], phase="update")
            build.weight(f"w{k}", size_bytes=0, users=[forward[k], update])
    objective = Throughput(microbatches=microbatches, schedule=schedule)
    return on_free_links(build, devices or stages, objective, {"f": 1, "b": 2, "u": 1})


def on_free_links(
    build: GraphBuilder,
    devices: int,
    objective: Throughput,
    us: dict[str, float],
    *,
    bytes_per_second: float = np.inf,
    contention: Contention = "link",
) -> Problem:
    """Operators cost what the first letter of their name says."""
    graph = build.build()
    names = [f"gpu{d}" for d in range(devices)]
    cluster = Cluster(
        tuple(Device(name) for name in names),
        link_all(names, bytes_per_second=bytes_per_second),
        contention=contention,
    )
    column = np.array([us[name[0]] for name in graph.operator_names]) * 1e-6
    return Problem(
        graph,
        cluster,
        Costs(graph, cluster, np.repeat(column[:, None], devices, axis=1)),
        objective=objective,
    )


def by_stage(problem: Problem) -> list[int]:
    """Every operator on the stage that its name ends with."""
    return [int(name[1:]) for name in problem.graph.operator_names]


def traced(problem: Problem, on: list[int]) -> Trace:
    trace = simulate(problem, Placement(problem, on))
    trace.check()
    scores = simulate_many(problem, np.array([on], dtype=np.uint8), memory="peak")
    assert (scores.ticks[0], scores.seconds[0]) == (trace.objective_ticks, trace.objective_seconds)
    assert scores.peak_bytes[0].tolist() == trace.peak_bytes.tolist()
    return trace


def names_on(trace: Trace, device: int) -> list[str]:
    """Operators of a device as they ran."""
    assert trace.timeline is not None
    run = trace.timeline
    return [run.problem.graph.operator_names[v] for v in run.order.tolist() if run.devices[v] == device]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_step_takes_fill_and_drain_and_one_slot_per_micro_batch(schedule: Schedule) -> None:
    # (m + p - 1) slots of 1 + 2 us: 6 * 3; per sample a quarter of it.
    problem = training_chain(schedule=schedule)
    trace = traced(problem, by_stage(problem))
    assert trace.objective_ticks == 18 * 1e6
    assert trace.objective_seconds == 4.5e-6


def test_gpipe_runs_all_forward_passes_then_the_backward_ones_in_reverse() -> None:
    problem = training_chain(schedule="gpipe")
    trace = traced(problem, by_stage(problem))
    assert names_on(trace, 0) == ["f0@0", "f0@1", "f0@2", "f0@3", "b0@3", "b0@2", "b0@1", "b0@0"]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (0, "f0@0 f0@1 f0@2 b0@0 f0@3 b0@1 b0@2 b0@3"),
        (1, "f1@0 f1@1 b1@0 f1@2 b1@1 f1@3 b1@2 b1@3"),
        (2, "f2@0 b2@0 f2@1 b2@1 f2@2 b2@2 f2@3 b2@3"),
    ],
)
def test_1f1b_alternates_after_a_head_start(stage: int, expected: str) -> None:
    problem = training_chain()
    assert names_on(traced(problem, by_stage(problem)), stage) == expected.split()


@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 7])
def test_1f1b_holds_as_many_micro_batches_as_there_are_stages_left(microbatches: int) -> None:
    problem = training_chain(microbatches=microbatches, stash=1000)
    peaks = traced(problem, by_stage(problem)).peak_bytes.tolist()
    assert peaks == [1000 * min(microbatches, 3 - k) for k in range(3)]


@pytest.mark.parametrize("microbatches", [1, 2, 3, 4, 7])
def test_gpipe_holds_all_micro_batches(microbatches: int) -> None:
    problem = training_chain(microbatches=microbatches, schedule="gpipe", stash=1000)
    assert traced(problem, by_stage(problem)).peak_bytes.tolist() == [1000 * microbatches] * 3


def test_stages_follow_the_data_and_not_the_device_numbers() -> None:
    problem = training_chain(stash=1000)
    on = [2 - k for k in by_stage(problem)]
    assert traced(problem, on).peak_bytes.tolist() == [1000, 2000, 3000]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("microbatches", "held"), [(1, 500), (2, 1000), (3, 1000), (8, 1000)])
def test_gradients_are_summed_up_and_not_collected(schedule: Schedule, microbatches: int, held: int) -> None:
    # While a backward pass adds to the sum, the old and the new sum are there; afterwards only the new one.
    problem = training_chain(microbatches=microbatches, schedule=schedule, gradient=500, updates=True)
    assert traced(problem, by_stage(problem)).peak_bytes.tolist() == [held] * 3


def test_only_the_sum_of_the_gradients_travels_to_an_update_elsewhere() -> None:
    problem = training_chain(1, gradient=500, updates=True, devices=2)
    trace = traced(problem, [0, 0, 1])
    assert len(trace.transfers) == 1


def test_updates_run_once_and_last() -> None:
    problem = training_chain(microbatches=2, updates=True)
    assert names_on(traced(problem, by_stage(problem)), 0) == ["f0@0", "f0@1", "b0@0", "b0@1", "u0"]


def test_the_unrolled_graph_has_a_copy_for_each_micro_batch_and_shares_weights() -> None:
    problem = training_chain(1, microbatches=2, updates=True)
    graph = unrolled(problem).problem.graph
    names = graph.operator_names
    assert names == ("f0@0", "f0@1", "b0@0", "b0@1", "u0")
    edges = {(names[a], names[b]) for a, b in graph.edges.tolist()}
    assert edges == {("f0@0", "b0@0"), ("f0@1", "b0@1"), ("b0@0", "b0@1"), ("b0@1", "u0")}
    assert [names[v] for v in graph.weight_users.tolist()] == ["f0@0", "f0@1", "u0"]
    assert [names[v] if v >= 0 else "" for v in graph.twins.tolist()] == ["", "", "f0@0", "f0@1", ""]


def test_gpipe_sums_gradients_in_the_order_of_its_backward_passes() -> None:
    problem = training_chain(1, microbatches=3, schedule="gpipe", updates=True)
    graph = unrolled(problem).problem.graph
    names = graph.operator_names
    assert names[3:] == ("b0@2", "b0@1", "b0@0", "u0")
    backward = [(names[a], names[b]) for a, b in graph.edges.tolist() if names[a][0] == "b"]
    assert backward == [("b0@2", "b0@1"), ("b0@1", "b0@0"), ("b0@0", "u0")]


def test_a_problem_is_unrolled_once() -> None:
    problem = training_chain()
    assert unrolled(problem) is unrolled(problem)


def inference_chain(schedule: Schedule, contention: Contention = "link") -> Problem:
    """Three stages of 4 us with 1 us of transfer in between."""
    build = GraphBuilder("inference")
    reads: list[TensorId] = []
    for k in range(3):
        reads = [build.tensor(build.operator(f"f{k}", reads=reads), size_bytes=1000)]
    objective = Throughput(microbatches=4, schedule=schedule)
    return on_free_links(build, 3, objective, {"f": 4}, bytes_per_second=1e9, contention=contention)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("contention", get_args(Contention))
def test_inference_streams_through_the_stages(schedule: Schedule, contention: Contention) -> None:
    # The first sample takes 4 + 1 + 4 + 1 + 4, the others 4 more each; transfers never meet, even on a bus.
    problem = inference_chain(schedule, contention)
    assert traced(problem, [0, 1, 2]).objective_ticks == 26 * 1e6


def test_1f1b_refuses_devices_that_feed_each_other() -> None:
    problem = inference_chain("1f1b")
    trace = simulate(problem, Placement(problem, [0, 1, 0]))
    assert [str(reason) for reason in trace.problems] == [
        "1F1B needs stages in pipeline order: gpu0 and gpu1 feed each other"
    ]
    assert isinstance(trace.problems[0], Cyclic)
    assert trace.objective_seconds == np.inf
    scores = simulate_many(problem, np.array([[0, 1, 0], [0, 1, 1]], dtype=np.uint8))
    assert scores.status.tolist() == [Status.CYCLIC, Status.OK]
    assert scores.ticks.tolist() == [-1, (4 + 1 + 4 * 8) * 1_000_000]


def test_gpipe_takes_devices_that_feed_each_other() -> None:
    problem = inference_chain("gpipe")
    assert traced(problem, [0, 1, 0]).feasible


def test_backward_into_forward_is_refused() -> None:
    build = GraphBuilder()
    b = build.operator("b", phase="backward")
    build.operator("f", reads=[build.tensor(b, size_bytes=0)])
    problem = on_free_links(build, 1, Throughput(microbatches=2), {"b": 1, "f": 1})
    with pytest.raises(BadInput, match=r"'b' \(backward\) feeds 'f' \(forward\)"):
        simulate(problem, Placement(problem, [0, 0]))


def test_a_cutoff_is_per_sample() -> None:
    problem = training_chain()
    rows = np.array([by_stage(problem), [0] * 6], dtype=np.uint8)  # 18 us and 4 * 9 us for four samples
    scores = simulate_many(problem, rows, cutoff_seconds=4.5e-6)
    assert scores.status.tolist() == [Status.OK, Status.CUT]


def test_a_small_memory_is_judged_on_the_whole_step() -> None:
    problem = training_chain(stash=1000, schedule="gpipe").with_memory("gpu1", 3999)
    trace = traced(problem, by_stage(problem))
    assert str(trace.problems[0]).startswith("gpu1 is short by 1 B: peak 3.9 KiB of 3.9 KiB at ")
    names = [block.name for block in trace.blocks_at_peak("gpu1").blocks]
    assert names == ["stash1@0", "stash1@1", "stash1@2", "stash1@3"]


def copied_by_hand(
    graph: Graph, microbatches: int, *, reverse: bool
) -> dict[str, tuple[int, bool, str, set[str]]]:
    """Tensors of a step: bytes, kept, producer and readers by name, one copy after another."""
    forward = [f"@{i}" for i in range(microbatches)]
    turns = {"forward": forward, "backward": forward[::-1] if reverse else forward, "update": [""]}
    step = {}
    for tensor in graph.tensors():
        producer = graph.operator(tensor.producer)
        readers = [graph.operator(v) for v in tensor.readers]
        own = turns[producer.phase]
        for copy, following in zip(own, [*own[1:], ""], strict=True):
            read_by = {reader.name + copy for reader in readers if reader.phase != "update"}
            updates = {reader.name for reader in readers if reader.phase == "update"}
            if following:
                read_by |= {producer.name + following} if updates else set()
            else:
                read_by |= updates
            step[tensor.name + copy] = (tensor.size_bytes, tensor.kept, producer.name + copy, read_by)
    return step


Placed = tuple[Problem, NDArray[np.uint8]]


@given(placed_problems(training=True), st.sampled_from(SCHEDULES), st.integers(1, 3))
def test_every_step_adds_up(placed: Placed, schedule: Schedule, microbatches: int) -> None:
    problem = placed[0].with_objective(Throughput(microbatches=microbatches, schedule=schedule))
    trace = simulate(problem, Placement(problem, placed[1]))
    trace.check()
    scores = simulate_many(problem, placed[1][None, :], memory="peak")
    assert scores.ticks[0] == trace.objective_ticks
    assert bool(scores.feasible[0]) == trace.feasible


@given(graphs(training=True), st.sampled_from(SCHEDULES), st.integers(1, 4))
def test_the_unrolled_graph_is_what_copying_by_hand_gives(
    graph: Graph, schedule: Schedule, microbatches: int
) -> None:
    cluster = Cluster((Device("gpu0"),))
    objective = Throughput(microbatches=microbatches, schedule=schedule)
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((len(graph), 1))), objective=objective)
    step = unrolled(problem).problem.graph
    names = step.operator_names
    got = {
        tensor.name: (
            tensor.size_bytes,
            tensor.kept,
            names[tensor.producer],
            {names[v] for v in tensor.readers},
        )
        for tensor in step.tensors()
    }
    assert got == copied_by_hand(graph, microbatches, reverse=schedule == "gpipe")


@given(placed_problems(runs_everywhere=True))
def test_one_micro_batch_of_inference_is_a_run_in_program_order(placed: Placed) -> None:
    problem, on = placed
    if not problem.native.single_sender_channels:  # the schedule then orders transfers by time
        return
    step = problem.with_objective(Throughput(microbatches=1))
    expected = simulate(problem, Placement(problem, on), policy=ProgramOrder())
    assert simulate(step, Placement(step, on)).objective_ticks == expected.objective_ticks


def test_an_objective_without_micro_batches_cannot_be_unrolled() -> None:
    problem: Any = training_chain().with_objective(Latency())
    with pytest.raises(BadInput, match="only throughput with microbatches can be unrolled"):
        unrolled(problem)
