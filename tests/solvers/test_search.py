"""search: local search on devices and order, from the starts that cheaper solvers give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stead import _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs
from stead.errors import BadInput
from stead.graph import GraphBuilder
from stead.problem import Constraints, Latency, Placement, PlacetoDispatch, Problem, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Solver, solver
from stead.solvers.build.schedules import Schedule
from stead.solvers.rules.settle import started
from stead.solvers.search.search import ScheduleSearch, long_lived_bytes, schedule_of
from stead.testing import chain3, diamond, two_towers
from stead.testing.contracts import SolverContract
from stead.workloads.synthetic import synthetic


class TestScheduleSearch(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return ScheduleSearch(effort=200)


def lstm(operators: int = 300, *, memory_bytes: int = 2**40, objective: Latency | None = None) -> Problem:
    """An LSTM grid on three devices, about 100 us per operator."""
    graph = synthetic("lstm-grid", operators=operators)
    names = ["d0", "d1", "d2"]
    cluster = Cluster(
        tuple(Device(name, memory_bytes=memory_bytes) for name in names),
        link_all(names, bytes_per_second=12e9, latency_seconds=5e-6),
    )
    seconds = np.random.default_rng(0).uniform(5e-5, 1.5e-4, size=(len(graph), 1)).repeat(3, axis=1)
    return Problem(graph, cluster, Costs(graph, cluster, seconds), objective=objective)


def urgent() -> Problem:
    """`source` (1 s) on d0 sends 8 bytes to `late` (1 s) and 1 byte to `soon` (9 s), both on d1, at 1 byte/s.

    By producer: the small tensor waits for the large one and is there at 1 + 8 + 1 = 10; 10 + 9 + 1 = 20, or 19 with
    `late` before `soon`. By reader: it is there at 2, `soon` ends at 11, the large one came at 10, `late` ends at 12.
    """
    build = GraphBuilder()
    source = build.operator("source")
    large, small = build.tensor(source, size_bytes=8), build.tensor(source, size_bytes=1)
    build.operator("soon", reads=(small,))
    build.operator("late", reads=(large,))
    graph = build.build()
    cluster = Cluster((Device("d0"), Device("d1")), link_all(["d0", "d1"], bytes_per_second=1.0))
    seconds = np.array([1.0, 9.0, 1.0])[:, None].repeat(2, axis=1)
    pins = Constraints(pin=(("source", "d0"), ("soon", "d1"), ("late", "d1")))
    return Problem(graph, cluster, Costs(graph, cluster, seconds), constraints=pins)


@pytest.mark.parametrize("name", ["search", "auto"])
def test_what_is_read_first_is_sent_first_and_the_answer_says_so(name: str) -> None:
    options = {"exact": False, "exhaustive_below": 0} if name == "auto" else {}
    found = solver(name, **options).solve(urgent(), Budget(evaluations=30_000))
    assert found.objective_seconds == 12.0
    assert simulate(urgent(), found.placement).objective_seconds == 12.0


def test_an_order_of_sends_by_reader_is_listed_in_the_answer() -> None:
    problem = lstm(operators=200)
    slow = Cluster(
        problem.cluster.devices, link_all(problem.cluster.names, bytes_per_second=2e8, latency_seconds=5e-6)
    )
    problem = Problem(problem.graph, slow, Costs(problem.graph, slow, problem.costs.seconds))
    search = started(ScheduleSearch(effort=20_000), problem, Budget(evaluations=30_000), 0)
    start = Schedule(np.arange(len(problem.graph), dtype=np.uint8) % 3, np.arange(len(problem.graph), dtype=np.int32))
    left = ScheduleSearch(effort=2_000).improve(search, [replace(start, by_reader=True)], settled=True)
    assert all(schedule.by_reader for schedule in left)
    order = left[0].program(problem)
    assert order.sends
    found = simulate(problem, Placement(problem, left[0].devices, order)).objective_seconds
    believed = _native.decode_moves(
        problem.native, placement=left[0].devices, order=left[0].order, operators=np.zeros(1, np.int32),
        targets=left[0].devices[:1], kept=np.zeros(1, np.uint8), by_reader=True,
    )  # fmt: skip
    assert round(found * 1e12) == believed[0]
    assert search.best_seconds <= found


def test_a_start_that_lists_transfers_goes_on_by_reader() -> None:
    problem = urgent()
    order = Schedule(np.array([0, 1, 1], np.uint8), np.arange(3, dtype=np.int32), by_reader=True).program(problem)
    schedule = schedule_of(Placement(problem, [0, 1, 1], order), "test")
    assert schedule.by_reader
    assert schedule.order.tolist() == [0, 1, 2]


def test_it_finds_the_best_of_the_tiny_problems() -> None:
    found = [
        ScheduleSearch(effort=500).solve(problem, Budget()) for problem in (chain3(), diamond(), two_towers())
    ]
    assert [solution.objective_seconds for solution in found] == [4.0, 7.0, 7.5]


def test_it_is_better_than_its_starts_and_keeps_the_order() -> None:
    problem = lstm()
    solution = ScheduleSearch(starts="single,even").solve(problem, Budget(evaluations=3000))
    starts = [solver(name).solve(problem, Budget()).objective_seconds for name in ("single", "even")]
    assert solution.objective_seconds < 0.8 * min(starts)
    assert solution.placement.order is not None
    assert simulate(problem, solution.placement).objective_seconds == solution.objective_seconds
    assert solution.evaluations <= 3000


def test_threads_do_not_change_the_answer() -> None:
    one, two = (
        ScheduleSearch(starts="single,even", threads=threads).solve(lstm(), Budget(evaluations=2000), seed=3)
        for threads in (1, 2)
    )
    assert one.objective_seconds == two.objective_seconds
    assert one.placement.devices.tolist() == two.placement.devices.tolist()


def test_a_fixed_policy_gets_devices_alone() -> None:
    problem = lstm(objective=Latency(order="policy"))
    solution = ScheduleSearch(starts="single,even").solve(problem, Budget(evaluations=2000))
    assert solution.placement.order is None
    assert simulate(problem, solution.placement).objective_seconds == solution.objective_seconds


def test_constraints_are_kept() -> None:
    problem = two_towers().with_constraints(Constraints(pin=(("head", "d1"),), colocate=(("l1", "r1"),)))
    devices = ScheduleSearch(effort=300).solve(problem, Budget()).placement.devices
    assert devices[4] == 1
    assert devices[0] == devices[1]


def test_activations_that_do_not_fit_are_learned_from_the_simulator() -> None:
    """Four towers of two operators whose kept outputs of 100 bytes fit on a device only two at a time."""
    build = GraphBuilder("towers")
    for tower in range(4):
        first = build.operator(f"a{tower}")
        second = build.operator(f"b{tower}", reads=[build.tensor(first, size_bytes=1)])
        build.tensor(second, size_bytes=100, kept=True)
    graph = build.build()
    cluster = Cluster(
        (Device("fast", memory_bytes=250), Device("slow", memory_bytes=1000)),
        link_all(["fast", "slow"], bytes_per_second=1e9, latency_seconds=0.0),
    )
    problem = Problem(graph, cluster, Costs(graph, cluster, np.tile([1.0, 3.0], (8, 1))))
    solution = ScheduleSearch(starts="single").solve(problem, Budget(evaluations=4000))
    # Three towers on fast and one on slow would take 6 s, but fast has room for two results: slow runs two b
    # from 1 s on.
    assert solution.objective_seconds == pytest.approx(7.0, abs=1e-6)


def test_outputs_that_wait_for_the_backward_pass_are_long_lived() -> None:
    build = GraphBuilder("training")
    a = build.operator("a")
    x = build.tensor(a, size_bytes=10)
    b = build.operator("b", reads=[x])
    y = build.tensor(b, size_bytes=20)
    c = build.operator("c", reads=[y])
    build.tensor(c, size_bytes=40, kept=True)
    build.operator("b'", reads=[x], phase="backward")
    problem = lstm(30)
    graph = build.build()
    cluster = problem.cluster
    held = long_lived_bytes(Problem(graph, cluster, Costs(graph, cluster, np.ones((4, 3)))))
    assert held.tolist() == [10, 0, 40, 0]


def test_it_says_what_it_does_not_search() -> None:
    search = ScheduleSearch()
    assert "dataflow" in (search.unsupported(chain3(Throughput())) or "")
    assert "dataflow" in (search.unsupported(chain3(Latency(execution="sequential"))) or "")
    assert "Placeto" in (search.unsupported(chain3(Latency(policy=PlacetoDispatch()))) or "")
    with pytest.raises(BadInput, match="search does not apply"):
        search.solve(chain3(Throughput()), Budget())


@pytest.mark.parametrize("options", [{"effort": 0}, {"streams": 0}, {"streams": 65}])
def test_options_that_make_no_sense_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadInput):
        ScheduleSearch(**options)


def test_starts_that_have_no_way_for_a_tensor_are_passed_over():
    # x -> z beside y on two devices without a link: heft puts x on a and z on b, where they are quickest. Together
    # they take 7 + 2 s on b, beside y's 7 s on a.
    build = GraphBuilder("apart")
    x = build.tensor(build.operator("x"), size_bytes=1)
    build.operator("y")
    build.operator("z", reads=[x])
    graph, cluster = build.build(), Cluster((Device("a"), Device("b")), ())
    costs = Costs(graph, cluster, np.array([[1.0, 7], [7, 1], [9, 2]]))
    assert ScheduleSearch(effort=200).solve(Problem(graph, cluster, costs), Budget()).objective_seconds == 9.0
