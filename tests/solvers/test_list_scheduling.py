"""List scheduling: published examples to the number, and promises that hold for every rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from orders import is_topological
from strategies import problems

from stead import _native
from stead.cluster import Cluster, Device, link_all
from stead.costs import Costs, Roofline, Source
from stead.errors import BadInput, Infeasible
from stead.graph import GraphBuilder, TensorId
from stead.placing.loading import load
from stead.problem import Constraints, Latency, Placement, Problem, ProgramOrder, Throughput
from stead.sim import simulate
from stead.solvers import Budget, Search, Solver
from stead.solvers.build.list_scheduling import (
    DfsSticky,
    Etf,
    Heft,
    MEtf,
    MSct,
    Peft,
    Variant,
    drawn_schedules,
)
from stead.solvers.build.schedules import tied_units, weight_units
from stead.testing import tiny_cluster, two_towers
from stead.testing.contracts import SolverContract
from stead.workloads.synthetic import synthetic

RULES = ("heft", "peft", "etf", "sct", "dfs-sticky")
SOLVERS = (Heft(), Peft(), Etf(), MEtf(), MSct(), DfsSticky())
ONE = Budget()


class TestHeft(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Heft()


class TestPeft(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Peft()


class TestEtf(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return Etf()


class TestMEtf(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return MEtf()


class TestMSct(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return MSct()


class TestDfsSticky(SolverContract):
    @pytest.fixture
    def solver(self) -> Solver:
        return DfsSticky()


def published(seconds: Sequence[Sequence[float]], edges: dict[tuple[int, int], int]) -> Problem:
    """A graph as papers print it: operators from 1, times per processor, a transfer time for every edge."""
    build = GraphBuilder("published")
    arrives: dict[int, list[TensorId]] = {}
    for v in range(1, len(seconds) + 1):
        operator = build.operator(f"n{v}", reads=arrives.get(v, []))
        for (source, target), length in edges.items():
            if source == v:
                arrives.setdefault(target, []).append(build.tensor(operator, size_bytes=length))
    graph = build.build()
    names = [f"p{d}" for d in range(1, len(seconds[0]) + 1)]
    cluster = Cluster(
        tuple(Device(name) for name in names), link_all(names, bytes_per_second=1.0), contention="none"
    )
    return Problem(graph, cluster, Costs(graph, cluster, np.array(seconds, dtype=np.float64)))


def topcuoglu() -> Problem:
    """Figure 2 and table 1 of Topcuoglu, Hariri and Wu, IEEE TPDS 2002."""
    seconds = [
        [14, 16, 9], [13, 19, 18], [11, 13, 19], [13, 8, 17], [12, 13, 10],
        [13, 16, 9], [7, 15, 11], [5, 11, 14], [18, 12, 20], [21, 7, 16],
    ]  # fmt: skip
    edges = {
        (1, 2): 18, (1, 3): 12, (1, 4): 9, (1, 5): 11, (1, 6): 14, (2, 8): 19, (2, 9): 16, (3, 7): 23,
        (4, 8): 27, (4, 9): 23, (5, 9): 13, (6, 8): 15, (7, 10): 17, (8, 10): 11, (9, 10): 13,
    }  # fmt: skip
    return published(seconds, edges)


def arabnejad() -> Problem:
    """Figure 1 of Arabnejad and Barbosa, IEEE TPDS 2014."""
    seconds = [
        [22, 21, 36], [22, 18, 18], [32, 27, 43], [7, 10, 4], [29, 27, 35],
        [26, 17, 24], [14, 25, 30], [29, 23, 36], [15, 21, 8], [13, 16, 33],
    ]  # fmt: skip
    edges = {
        (1, 2): 17, (1, 3): 31, (1, 4): 29, (1, 5): 13, (1, 6): 7, (2, 8): 3, (2, 9): 30, (3, 7): 16,
        (4, 8): 11, (4, 9): 7, (5, 9): 57, (6, 8): 5, (7, 10): 9, (8, 10): 42, (9, 10): 7,
    }  # fmt: skip
    return published(seconds, edges)


def built(
    problem: Problem,
    rule: str,
    *,
    bias: float = 1.0,
    average: str = "mean",
    insertion: bool = True,
    unit_of: NDArray[np.int32] | None = None,
) -> _native.ListSchedule:
    """What one rule builds."""
    variant = Variant(rule, bias, average, insertion)
    (schedule,) = _native.list_schedules(
        problem.native,
        problem.units if unit_of is None else unit_of,
        variants=[variant.native],
        limit_bytes=usable(problem),
    )
    return schedule


def usable(problem: Problem) -> NDArray[np.int64]:  # [device]
    return np.array([device.usable_bytes for device in problem.cluster], dtype=np.int64)


def test_heft_schedules_the_example_of_its_paper_in_80() -> None:
    assert built(topcuoglu(), "heft").ticks == 80 * 10**12


def test_heft_places_the_example_of_its_paper_as_printed() -> None:
    assert (built(topcuoglu(), "heft").devices + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]


def test_heft_without_insertion_is_no_shorter_on_that_example() -> None:
    assert built(topcuoglu(), "heft", insertion=False).ticks >= 80 * 10**12


def test_peft_schedules_the_example_of_its_paper_in_122() -> None:
    assert built(arabnejad(), "peft").ticks == 122 * 10**12


def test_heft_schedules_the_example_of_peft_in_133() -> None:
    assert built(arabnejad(), "heft").ticks == 133 * 10**12


@pytest.mark.parametrize("rule", RULES)
@given(problem=problems(training=True), bias=st.sampled_from([0.5, 1.0, 4.0]), insertion=st.booleans())
@settings(max_examples=40)
def test_schedules_are_what_program_order_runs(
    rule: str, problem: Problem, bias: float, insertion: bool
) -> None:
    schedule = built(problem, rule, bias=bias, insertion=insertion)
    devices, order = schedule.devices, schedule.order
    assert is_topological(problem.graph, order)
    assert problem.allowed[np.arange(len(devices)), devices].all()
    assert not Placement(problem, devices).violations()
    if schedule.ticks >= 0:
        run = _native.simulate(problem.native, devices, policy="program_order", order=order, memory="off")
        assert run.makespan == schedule.ticks


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
@given(problem=problems(training=True))
@settings(max_examples=20)
def test_answers_fit_or_say_what_is_missing(solver: Solver, problem: Problem) -> None:
    try:
        found = solver.solve(problem, ONE)
    except Infeasible:
        return
    assert simulate(problem, found.placement).feasible
    assert not found.placement.violations()


def equal_devices(count: int, memory_bytes: int) -> Cluster:
    """GPUs that cannot be told apart."""
    names = [f"g{d}" for d in range(count)]
    devices = tuple(
        Device(
            name,
            memory_bytes=memory_bytes,
            flops_per_second={"fp32": 15e12},
            bytes_per_second=6e11,
            launch_seconds=5e-6,
        )
        for name in names
    )
    return Cluster(devices, link_all(names, bytes_per_second=12e9, latency_seconds=1e-5))


def priced(
    family: str, memory_bytes: int = 2**44, *, training: bool = False, operators: int = 400
) -> Problem:
    """A synthetic graph on four equal devices."""
    graph, cluster = synthetic(family, operators=operators, training=training), equal_devices(4, memory_bytes)
    return Problem(graph, cluster, Roofline().costs(graph, cluster))


def single_peak(problem: Problem) -> int:
    """The bytes that one device would need for everything."""
    alone = Placement(problem, np.zeros(len(problem.graph), dtype=np.uint8))
    return int(simulate(problem, alone).peak_bytes[0])


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
@pytest.mark.parametrize(("family", "training"), [("transformer", False), ("lstm-grid", True)])
def test_what_does_not_fit_one_device_fits_four(solver: Solver, family: str, training: bool) -> None:
    ample = priced(family, training=training)
    tight = priced(family, int(single_peak(ample) * 0.5), training=training)
    assert simulate(tight, solver.solve(tight, ONE).placement).feasible


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_branches_are_spread_where_that_pays(solver: Solver) -> None:
    problem = priced("inception")
    alone = simulate(problem, Placement(problem, np.zeros(len(problem.graph), dtype=np.uint8)))
    assert solver.solve(problem, ONE).objective_seconds < 0.9 * alone.objective_seconds


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.name)
def test_placements_are_offered_for_throughput_too(solver: Solver) -> None:
    problem = priced("inception").with_objective(Throughput())
    assert np.isfinite(solver.solve(problem, ONE).objective_seconds)


@pytest.mark.parametrize("rule", RULES)
def test_threads_change_nothing(rule: str) -> None:
    problem = priced("inception")
    given = {
        "variants": [Variant(rule, bias).native for bias in (0.5, 1.0, 2.0, 4.0)],
        "limit_bytes": usable(problem),
    }
    once, again = (
        [
            (one.devices.tolist(), one.order.tolist(), one.ticks)
            for one in _native.list_schedules(problem.native, problem.units, **given, threads=threads)
        ]
        for threads in (1, 3)
    )
    assert once == again


def test_a_heavier_bias_keeps_more_operators_together() -> None:
    problem = priced("lstm-grid")
    first, readers = problem.graph.reader_first, problem.graph.readers
    producers = np.repeat(problem.graph.tensor_producer, np.diff(first))

    def crossings(bias: float) -> int:
        devices = built(problem, "heft", bias=bias).devices
        return int((devices[producers] != devices[readers]).sum())

    assert crossings(10.0) < crossings(0.5)


def test_thrift_keeps_a_device_for_what_only_it_does_well() -> None:
    # `long` takes 4 s or 5 s, each `short` 1 s or 4 s. By finish alone the first `short` goes to the device that is
    # slow at it. Time has prices 5/9 and 4/9, at which `long` costs the same on both (20/9), a `short` 5/9 or 16/9.
    build = GraphBuilder("unlike")
    for name in ("long", "short0", "short1", "short2", "short3"):
        build.tensor(build.operator(name), size_bytes=4)
    graph, cluster = build.build(), tiny_cluster(2)
    seconds = np.array([[4.0, 5.0]] + 4 * [[1.0, 4.0]])
    sources = np.full(seconds.shape, Source.IMPORTED, dtype=np.uint8)
    problem = Problem(graph, cluster, Costs(graph, cluster, seconds, sources=sources))
    quick = Heft(bias=1.0, average="mean").solve(problem, ONE).placement.devices.tolist()
    thrifty = Heft(bias=1.0, average="mean", thrift=10.0).solve(problem, ONE).placement.devices.tolist()
    assert quick == [0, 1, 0, 0, 0]
    assert thrifty[1:] == [0, 0, 0, 0]


def test_devices_without_room_are_avoided_while_there_is_another() -> None:
    build = GraphBuilder("weights")
    for v in range(4):
        build.weight(f"w{v}", size_bytes=10, users=[build.operator(f"v{v}")])
    graph = build.build()
    cluster = Cluster(
        (Device("small", memory_bytes=15), Device("large", memory_bytes=35)),
        link_all(["small", "large"], bytes_per_second=1.0),
    )
    problem = Problem(graph, cluster, Costs(graph, cluster, np.array([[1.0, 9.0]] * 4)))
    assert built(problem, "heft").devices.tolist() == [0, 1, 1, 1]


def test_a_weight_that_two_operators_share_takes_room_once() -> None:
    build = GraphBuilder("tied")
    operators = [build.operator(f"v{v}") for v in range(3)]
    build.weight("w", size_bytes=10, users=operators)
    graph = build.build()
    cluster = Cluster(
        (Device("small", memory_bytes=15), Device("large", memory_bytes=35)),
        link_all(["small", "large"], bytes_per_second=1.0),
    )
    problem = Problem(graph, cluster, Costs(graph, cluster, np.array([[1.0, 9.0]] * 3)))
    assert built(problem, "heft").devices.tolist() == [0, 0, 0]


def test_backward_operators_share_the_device_of_their_forward_operator_when_tied() -> None:
    problem = priced("transformer", training=True)
    devices = built(problem, "heft", unit_of=tied_units(problem)).devices
    twins = problem.graph.twins
    late = np.flatnonzero(twins >= 0)
    assert np.array_equal(devices[late], devices[twins[late]])


def test_all_users_of_a_weight_share_a_device_in_weight_units() -> None:
    graph = (problem := priced("lstm-grid", training=True)).graph
    unit_of = weight_units(problem)
    weight = np.repeat(np.arange(len(graph.weight_bytes)), np.diff(graph.weight_user_first))
    pairs = np.unique(np.stack([weight, unit_of[graph.weight_users]], axis=1), axis=0)
    assert len(pairs) == len(graph.weight_bytes)


def twins_on(constraints: Constraints) -> Problem:
    """A forward operator and its backward twin on two devices."""
    build = GraphBuilder("twins")
    forward = build.tensor(build.operator("forward"), size_bytes=4)
    build.operator("backward", reads=[forward], phase="backward", twin="forward")
    graph, cluster = build.build(), equal_devices(2, 2**40)
    return Problem(graph, cluster, Costs(graph, cluster, np.ones((2, 2))), constraints=constraints)


def test_tied_units_hold_twins() -> None:
    assert tied_units(twins_on(Constraints())).tolist() == [0, 0]


def test_tied_units_are_the_own_units_where_twins_have_no_device_in_common() -> None:
    pins = Constraints(pin=(("forward", "g0"), ("backward", "g1")))
    assert tied_units(twins_on(pins)).tolist() == [0, 1]


@pytest.mark.parametrize("bad", [{"bias": -1.0}, {"average": "median"}])
def test_options_are_checked(bad: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        Heft(**bad)  # type: ignore[arg-type]


def test_relabelling_devices_does_not_change_the_length() -> None:
    problem = priced("inception")
    turned = Cluster(problem.cluster.devices[::-1], problem.cluster.links)
    other = Problem(problem.graph, turned, Costs(problem.graph, turned, problem.costs.seconds[:, ::-1]))
    assert built(problem, "heft").ticks == built(other, "heft").ticks


def test_a_fixed_bias_builds_one_variant() -> None:
    assert Heft(bias=2.0, average="mean").variants() == [Variant("heft", 2.0)]


def test_a_latency_answer_carries_its_order() -> None:
    found = Heft(bias=1.0).solve(two_towers(), ONE)
    assert isinstance(found.placement.order, ProgramOrder)


def test_equal_devices_have_one_average() -> None:
    found = Heft().solve(two_towers(), Budget())
    assert found.evaluations == Heft(average="mean").solve(two_towers(), Budget()).evaluations


@pytest.mark.parametrize("rule", RULES)
def test_every_operator_runs_once_where_units_find_no_room(rule: str) -> None:
    """A member of a unit may have been turned away from a device that another member is forced onto later."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        build = GraphBuilder("crowded")
        tensors: list[TensorId] = []
        for v in range(12):
            reads = [tensors[u] for u in rng.choice(v, size=min(v, int(rng.integers(0, 3))), replace=False)]
            operator = build.operator(f"o{v}", flops=float(rng.integers(1, 9)) * 1e9, reads=reads)
            build.weight(f"w{v}", size_bytes=int(rng.integers(1, 100)), users=[operator])
            tensors.append(build.tensor(operator, size_bytes=int(rng.integers(1, 100)) * 10**6))
        graph, cluster = build.build(), equal_devices(3, 10**4)
        problem = Problem(graph, cluster, Roofline().costs(graph, cluster))
        unit_of = rng.integers(0, 4, 12).astype(np.int32)
        unit_of = np.unique(unit_of, return_inverse=True)[1].astype(np.int32)
        limits = rng.integers(0, 200, 3).astype(np.int64)
        (schedule,) = _native.list_schedules(
            problem.native, unit_of, variants=[Variant(rule, 1.0).native], limit_bytes=limits
        )
        assert sorted(schedule.order.tolist()) == list(range(12))


def test_what_time_does_not_suffice_for_is_not_built() -> None:
    graph = synthetic("layered", operators=4_000)
    problem = load(graph, "60x A100-80GB").problem(Latency())
    variants = [Variant("etf", 1.0, insertion=False).native, Variant("heft", 1.0).native]
    given = {"variants": variants, "limit_bytes": np.full(60, 2**60)}
    late = _native.list_schedules(problem.native, problem.units, **given, seconds=0.0)
    assert [one.ticks for one in late] == [-2, -2]
    assert all(one.ticks > 0 for one in _native.list_schedules(problem.native, problem.units, **given))


def test_after_its_time_a_rule_scores_no_more_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load(synthetic("transformer", operators=200), "3090,3060").problem(Throughput())
    scored: list[object] = []
    monkeypatch.setattr(
        "stead.solvers.build.list_scheduling.offer_schedule",
        lambda search, schedule: scored.append(search.offer(schedule.devices)),
    )
    Heft().solve(problem, Budget(0.0))
    assert len(scored) == 1


def test_drawn_schedules_differ_and_come_again_with_the_same_part() -> None:
    problem = two_towers()
    first, same, other = (
        [(one.name, one.devices.tolist(), one.order.tolist()) for one in drawn_schedules(search, 6, part=part)]
        for part in (1, 1, 2)
        for search in [Search(problem, Budget(), solver="test", seed=3)]
    )
    assert first == same
    assert first != other
    assert all(sorted(order) == list(range(5)) for _, _, order in first)
