"""Loads, sequential and offload runs against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hand import small

from stead import testing
from stead.cluster import Cluster, Device, link_all, link_both_ways
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder, Phase
from stead.problem import Fifo, Latency, Load, Objective, Pieces, Placement, Problem, Throughput
from stead.problem.in_ticks import Tables
from stead.sim import Cyclic, Status, Trace, simulate, simulate_many
from stead.sim.offload_run import offload, pieces
from stead.sim.spec.loads import loads, sequential
from stead.sim.spec.memory import standing_peaks

LOADS: tuple[Load, ...] = ("sum", "overlap", "duplex", "fwbw")


def traced(problem: Problem, objective: Objective, on: list[int]) -> Trace:
    """The trace of a placement, checked against itself and against the batch."""
    problem = problem.with_objective(objective)
    trace = simulate(problem, Placement(problem, on))
    trace.check()
    scores = simulate_many(problem, np.array([on], dtype=np.uint8), memory="peak")
    assert scores.ticks[0] == trace.objective_ticks
    assert scores.seconds[0] == trace.objective_seconds
    assert scores.peak_bytes[0].tolist() == trace.peak_bytes.tolist()
    return trace


def through_host(
    us: list[float], tensors: list[tuple[int, list[int], int]], *, by_time: bool = False
) -> Problem:
    """Devices cpu, gpu0, gpu1; one microsecond for 1,000 bytes between an accelerator and host memory."""
    build = GraphBuilder("hosted")
    operators = [build.operator(f"v{v}") for v in range(len(us))]
    for producer, readers, size in tensors:
        tensor = build.tensor(operators[producer], size_bytes=size)
        for reader in readers:
            build.read(operators[reader], tensor)
    graph = build.build()
    links = [link for gpu in ("gpu0", "gpu1") for link in link_both_ways("cpu", gpu, bytes_per_second=1e9)]
    cluster = Cluster((Device("cpu", "cpu"), Device("gpu0"), Device("gpu1")), tuple(links), routing="host")
    seconds = np.repeat(np.array(us, dtype=float)[:, None] * 1e-6, 3, axis=1)
    times = graph.tensor_bytes * 1e-9 if by_time else None
    return Problem(graph, cluster, Costs(graph, cluster, seconds, tensor_seconds=times))


CPU, GPU0, GPU1 = range(3)


@pytest.mark.parametrize(("load", "us"), [("sum", 11), ("overlap", 7), ("duplex", 7), ("fwbw", 11)])
def test_the_busiest_device_sets_the_pace(load: Load, us: float) -> None:
    # 1,000 bytes take 1 us and 1 us of latency. gpu0: compute 4 + 3, receives 2, sends 2; gpu1: 2, 2, 2.
    problem = small([4, 2, 3], [(0, [1], 1000), (1, [2], 1000)], latency_us=1)
    trace = traced(problem, Throughput(load=load), [0, 1, 0])
    assert trace.objective_ticks == us * 1e6
    assert loads(Tables(problem), [0, 1, 0]).value(load) == us * 1e6


def test_a_load_is_split_into_compute_received_and_sent() -> None:
    problem = small([4, 2, 3], [(0, [1], 1000), (1, [2], 1000)], latency_us=1)
    trace = traced(problem, Throughput(), [0, 1, 0])
    assert (trace.compute_seconds * 1e6).tolist() == [7, 2]
    assert (trace.received_seconds * 1e6).tolist() == [2, 2]
    assert (trace.sent_seconds * 1e6).tolist() == [2, 2]
    assert (trace.busy_seconds * 1e6).tolist() == [11, 6]


def test_direct_links_carry_a_tensor_to_each_device_once() -> None:
    problem = small([1, 1, 1, 1], [(0, [1, 2, 3], 1000)], devices=3)
    trace = traced(problem, Throughput(), [0, 1, 2, 2])
    assert (trace.sent_seconds * 1e6).tolist() == [2, 0, 0]
    assert (trace.received_seconds * 1e6).tolist() == [0, 1, 1]


@pytest.mark.parametrize("by_time", [False, True])
def test_host_memory_is_written_once_and_read_by_every_accelerator(by_time: bool) -> None:
    problem = through_host([1, 1, 1], [(0, [1, 2], 1000)], by_time=by_time)
    trace = traced(problem, Throughput(), [GPU0, GPU1, CPU])
    assert (trace.sent_seconds * 1e6).tolist() == [0, 1, 0]
    assert (trace.received_seconds * 1e6).tolist() == [0, 0, 1]


def training_chain(on_links_us: float = 0.0) -> Problem:
    """f0 -> f1 -> b1 -> b0 -> u0 of 1, 2, 3, 4 and 1 us; tensors of 1,000 bytes."""
    build = GraphBuilder("training")
    phases: list[tuple[str, Phase]] = [
        ("f0", "forward"),
        ("f1", "forward"),
        ("b1", "backward"),
        ("b0", "backward"),
        ("u0", "update"),
    ]
    reads = []
    for name, phase in phases:
        operator = build.operator(name, reads=reads, phase=phase)
        reads = [build.tensor(operator, size_bytes=1000)]
    graph = build.build()
    names = ["gpu0", "gpu1"]
    links = link_all(names, bytes_per_second=1e9, latency_seconds=on_links_us * 1e-6)
    cluster = Cluster(tuple(Device(name) for name in names), links)
    seconds = np.repeat(np.array([[1.0], [2.0], [3.0], [4.0], [1.0]]) * 1e-6, 2, axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds))


def test_forward_and_backward_have_bottlenecks_of_their_own() -> None:
    # Forward: gpu0 1 + 1 sent, gpu1 2 + 1 received. Backward: gpu0 4 + 1 + 1 received, gpu1 3 + 1 sent.
    trace = traced(training_chain(), Throughput(load="fwbw"), [0, 1, 1, 0, 0])
    assert trace.objective_ticks == 9 * 1e6


@pytest.mark.parametrize("on", [[0, 1, 1, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1]])
def test_finer_models_of_a_load_are_never_larger(on: list[int]) -> None:
    sum_, overlap, duplex, fwbw = (
        traced(training_chain(1), Throughput(load=load), on).objective_ticks for load in LOADS
    )
    assert duplex <= overlap <= sum_ <= fwbw


def test_without_a_time_line_tensors_that_leave_stay_and_tensors_that_come_are_there() -> None:
    # gpu0 runs v0, v2, v3: x (100) leaves and stays, y (10) comes and is there until v2, z (1,000) from v2.
    tensors = [(0, [1, 2], 100), (1, [2], 10), (2, [3], 1000)]
    problem = small([1, 1, 1, 1], tensors, workspace=7, weights=[(5, [0]), (3, [1])])
    trace = traced(problem, Throughput(), [0, 1, 0, 0])
    assert trace.peak_bytes.tolist() == [5 + 100 + 10 + 1000 + 7, 3 + 100 + 10 + 7]
    assert standing_peaks(Tables(problem), [0, 1, 0, 0]) == trace.peak_bytes.tolist()
    assert trace.memory_curve("gpu0").bytes.tolist() == [122, 1122, 1112, 5]


def test_a_load_over_memory_names_the_operator() -> None:
    problem = small([1, 1], [(0, [1], 100)], capacities=[90, 90]).with_objective(Throughput())
    trace = simulate(problem, Placement(problem, [0, 0]))
    assert str(trace.problems[0]) == (
        "gpu0 is short by 10 B: peak 100 B of 90 B at operator 'v0' (activations 100 B)"
    )


@pytest.mark.parametrize(
    ("problem", "on", "seconds"),
    [
        (testing.chain3(), [0, 1, 0], 9),
        (testing.diamond(), [0, 1, 1, 0], 1 + 2.5 + 2 + 2.5 + 3 + 2.5 + 1),
        (testing.two_towers(), [0, 1, 0, 1, 0], 4 * 2 + 2.5 + 1),
    ],
)
def test_a_sequential_run_adds_everything_up(problem: Problem, on: list[int], seconds: float) -> None:
    trace = traced(problem, Latency("sequential"), on)
    assert trace.objective_seconds == seconds
    assert sequential(Tables(problem), on).makespan == seconds * 1e12


def test_a_sequential_run_has_a_time_line() -> None:
    trace = traced(testing.chain3(), Latency("sequential"), [0, 1, 0])
    assert trace.start_seconds.tolist() == [0, 3.5, 8]
    assert (trace.transfers.begin_ticks / 1e12).tolist() == [1, 5.5]
    assert [step.name for step in trace.critical_path()] == ["a", "a", "b", "b", "c"]


def test_an_accelerator_is_called_once() -> None:
    # v0 on the CPU until 1; the call copies 1 in, computes 2 + 3, copies 1 out; v3 on the CPU takes 1 more.
    problem = through_host([1, 2, 3, 1], [(0, [1], 1000), (1, [2], 1000), (2, [3], 1000)])
    trace = traced(problem, Latency("offload"), [CPU, GPU0, GPU0, CPU])
    assert trace.objective_ticks == 9 * 1e6
    assert (trace.start_seconds * 1e6).tolist() == [0, 1, 1, 8]
    assert (trace.busy_seconds * 1e6).tolist() == [2, 7, 0]
    assert [step.name for step in trace.critical_path()] == ["v0", "v2", "v3"]


def test_a_host_has_as_many_cores_as_operators() -> None:
    trace = traced(through_host([5, 5, 5], []), Latency("offload"), [CPU, CPU, CPU])
    assert trace.objective_ticks == 5 * 1e6


def test_a_call_waits_for_all_its_inputs_and_gives_nothing_early() -> None:
    # gpu0 = {v1, v2}: v1 could go at once, but the call waits for v0 (10) and v3 waits for the whole call.
    problem = through_host([10, 1, 1, 1], [(0, [2], 0), (1, [3], 0)])
    trace = traced(problem, Latency("offload"), [CPU, GPU0, GPU0, CPU])
    assert (trace.start_seconds * 1e6).tolist() == [0, 10, 10, 12]


@pytest.mark.parametrize("how", ["serial", "published"])
def test_a_device_that_a_path_comes_back_to_makes_two_calls(how: Pieces) -> None:
    # v0 (gpu0) -> v1 (CPU) -> v2 (gpu0); v3 (gpu0) reads nothing, so is in the first call: 1 + 4, then 1, 1.
    problem = through_host([1, 1, 1, 4], [(0, [1], 0), (1, [2], 0)])
    on = [GPU0, CPU, GPU0, GPU0]
    assert pieces(Tables(problem), on) == [0, 0, 1, 0]
    assert traced(problem, Latency("offload", pieces=how), on).objective_ticks == 7 * 1e6


def test_calls_that_wait_for_each_other_have_no_value() -> None:
    # v0 (gpu0) feeds v1 (gpu1), v2 (gpu1) feeds v3 (gpu0): each accelerator's one call waits for the other's.
    problem = through_host([1, 1, 1, 1], [(0, [1], 0), (2, [3], 0)]).with_objective(Latency("offload"))
    on = [GPU0, GPU1, GPU1, GPU0]
    trace = simulate(problem, Placement(problem, on))
    assert isinstance(trace.problems[0], Cyclic)
    assert trace.objective_seconds == np.inf
    scores = simulate_many(problem, np.array([on], dtype=np.uint8))
    assert (scores.status[0], scores.ticks[0], scores.seconds[0]) == (Status.CYCLIC, -1, np.inf)
    assert offload(Tables(problem), on) is None


def test_an_accelerator_without_a_way_to_host_memory_cannot_be_called() -> None:
    build = GraphBuilder()
    build.operator("b", reads=[build.tensor(build.operator("a"), size_bytes=4)])
    graph = build.build()
    links = link_both_ways("gpu0", "gpu1", bytes_per_second=1e9)
    cluster = Cluster((Device("cpu", "cpu"), Device("gpu0"), Device("gpu1")), links)
    problem = Problem(graph, cluster, Costs(graph, cluster, np.ones((2, 3))), objective=Latency("offload"))
    trace = simulate(problem, Placement(problem, [GPU0, GPU1]))
    assert str(trace.problems[0]) == "tensor 'a' has no route from gpu0 to gpu1"
    assert simulate_many(problem, np.array([[1, 2]], dtype=np.uint8)).status[0] == Status.UNREACHABLE


@pytest.mark.parametrize("objective", [Throughput(), Latency("sequential"), Throughput(microbatches=2)])
def test_a_policy_is_refused_where_there_is_none(objective: Objective) -> None:
    problem = testing.chain3(objective)
    with pytest.raises(BadInput, match="a policy belongs to dataflow latency"):
        simulate(problem, Placement(problem, [0, 0, 0]), policy=Fifo())
    with pytest.raises(BadInput, match="a policy belongs to dataflow latency"):
        simulate_many(problem, np.zeros((1, 3), dtype=np.uint8), policy=Fifo())
